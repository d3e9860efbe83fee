"""Turns logits into tokens."""


def greedy(logits):
    return max(range(len(logits)), key=logits.__getitem__)


def temperature(logits, value):
    if value <= 0:
        raise ValueError(f"temperature must be above 0; found {value}")
    return [logit / value for logit in logits]
