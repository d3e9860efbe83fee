"""Planted faults and cheats: what the gate must stop, or must not reward. ``index.toml`` says which is which."""
