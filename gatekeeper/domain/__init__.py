"""Facts, rules and verdicts as plain immutable values. Standard library, Pydantic and SciPy's special functions only."""
