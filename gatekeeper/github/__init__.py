"""Everything that speaks with GitHub."""
