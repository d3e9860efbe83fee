"""The main paths, one module each. Every function takes the context and a claim; services never commit outside a unit of work."""
