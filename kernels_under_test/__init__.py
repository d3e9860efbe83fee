"""Models under test: problem, reference, stock baseline, house candidate and mutants. Imports nothing of the service."""
