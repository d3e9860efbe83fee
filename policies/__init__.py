"""Every rule that a person may argue about: one file each, pure, with fixtures under ``tests/policies/``."""
