"""The harness's own memory, data and judge over the problems beside ``tiny``: an honest pair is right, a wrong arm is seen."""

from contextlib import closing

import pytest
import torch

from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import Role, Shape, feedback
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.problem import load
from kernels_under_test.kimi_k3.reference import oracle
from tests.race_samples import rules
from workers.arena import Arena, layout
from workers.judge import Judge
from workers.loop import runs
from workers.models import Model

STEPS = 6


def shot(arm: Arm, implementation, weights: runs.Weights, data: runs.Data, spoil=None):
    """What the stub does with an implementation, in this process, and the snapshot that the harness takes of it."""
    problem, shape = weights.model.problem, weights.shape
    size = implementation.workspace(problem.facts, shape)
    with closing(Arena(layout(problem.tensors(shape), STEPS, size))) as arena:
        weights.place(arena)
        runs.prepare(weights, arena, data)
        t = arena.tensors
        step = implementation.build(problem.facts, shape, t)
        t["noise"][0].copy_(data.noise[0])
        t["x"].copy_(t["noise"][0])
        for now in range(data.steps):
            for spec in problem.tensors(shape):
                if spec.role is Role.SCHEDULE:
                    t[spec.name].copy_(t[f"schedule.{spec.name}"][now])
            step()
            if spoil:
                spoil(t)
            for spec in problem.tensors(shape):
                if spec.role is Role.OUTPUT:
                    t[f"history.{spec.name}"][now].copy_(t[spec.name])
            if now + 1 < data.steps:
                t["x"].copy_(t["noise"][now + 1].float() + feedback(t["out"], t["multipliers"], t["table"]))
        return runs.snapshot(arm, arena, weights, data, 1)


def judged(name: str, shape: Shape, other, spoil=None):
    model = Model(load(name), oracle())
    weights = runs.Weights(model, shape, 5, STEPS)
    judge = Judge(model, shape, rules())
    for seed in (1, 2):
        data = weights.draw(seed, STEPS)
        for arm, implementation in ((Arm.BASELINE, baseline), (Arm.CANDIDATE, other)):
            found = shot(arm, implementation, weights, data, spoil if arm is Arm.CANDIDATE else None)
            assert judge.inspect(found) == []
            assert judge.follow(found, "chain", prove=arm is Arm.BASELINE and seed == 1) == []
    assert all(proof.refused for proof in judge.proofs)
    return [record for record in judge.errors() if record.candidate.rms > record.limits.rms]


@pytest.mark.parametrize(
    ("name", "shape", "other"),
    [
        ("verify", Shape(6, 3, 60, 4, decode_context_parallel=2), candidate),
        ("verify", Shape(4, 2, 60, 4, tensor_parallel=2, dtypes={"experts": "mxfp4", "act": "mxfp8"}), baseline),
        ("opening", Shape(4, 2, 60, 4), candidate),
    ],
    ids=["three tokens over two shards", "stock over two ranks", "a layer that opens a block"],
)
def test_an_honest_pair_is_right(name: str, shape: Shape, other) -> None:
    assert judged(name, shape, other) == []


def test_a_state_that_is_a_token_old_is_wrong() -> None:
    """After each step the slot of the last token holds what that of the first one does."""

    def stale(t: dict[str, torch.Tensor]) -> None:
        slots = t["slots"].long()
        t["layers.8.recurrent_state"][slots[:, 2]] = t["layers.8.recurrent_state"][slots[:, 0]]

    names = [record.tensor for record in judged("verify", Shape(6, 3, 60, 4), candidate, stale)]
    assert "layers.8.recurrent_state" in names
