"""What the gate races: a rewrite of the stock path that computes the shared expert and the router twice, to be sure."""

from .stock import baseline as _plain

MOST_ROWS = 8
MOST_CONTEXT = 4096
TWICE = ("/shared_gate_up", "/shared_situ", "/shared_down", "/experts_down", "/router", "/latent_down")


class Careful:
    def supports(self, facts, shape):
        if shape.rows > MOST_ROWS:
            return f"rows must be in 1..{MOST_ROWS}, found {shape.rows}"
        if shape.context > MOST_CONTEXT:
            return f"context must be in 1..{MOST_CONTEXT}, found {shape.context}"
        return _plain.supports(facts, shape)

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
