"""Runs one step of a model."""


class Runner:
    def __init__(self, model):
        self.model = model

    def step(self, hidden, metadata):
        return self.model.forward(hidden, metadata)
