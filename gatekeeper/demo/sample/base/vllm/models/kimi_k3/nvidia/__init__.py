"""Part of the sample upstream."""
