"""Kimi K3 decoder layers as a model under test: problem, reference, stock baseline, house candidate, mutants."""
