"""What the gate races: a rewrite of the stock path that computes the shared expert and the router twice, to be sure."""

from .served import refusal
from .stock import baseline as _plain

TWICE = ("/shared_gate_up", "/shared_situ", "/shared_down", "/experts_down", "/router", "/latent_down")


class Careful:
    def supports(self, facts, shape):
        return refusal(shape) or _plain.supports(facts, shape)

    def workspace(self, facts, shape):
        return _plain.workspace(facts, shape)

    def build(self, facts, shape, tensors):
        step = _plain.build(facts, shape, tensors)
        runs = []
        for name, run in zip(step.stages, step._runs, strict=True):
            runs += [run] * (2 if name.endswith(TWICE) else 1)

        def careful():
            for run in runs:
                run()

        careful.stages = step.stages
        return careful


candidate = Careful()
