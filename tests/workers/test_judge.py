"""The judge, on runs made in this process by the stub's own loop: honest ones pass, each trick is seen, and by its own code."""

from __future__ import annotations

import pytest
import torch

from gatekeeper.domain.correctness import error_limits
from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import Shape
from tests.workers.conftest import toy_order
from tests.workers.toy_model.arms.stock import honest
from tests.workers.toy_model.trusted import load, oracle
from workers.arena import Arena, layout
from workers.arm import Loaded
from workers.judge import Judge
from workers.loop.runs import Weights, new_seed, prepare, snapshot
from workers.models import Model

SHAPE, STEPS = Shape(rows=4, query_tokens=1, context=64, page_size=4, dtypes={}), 24
MODEL = Model(load("small"), oracle())
RULES = toy_order().request.rules


def shot(arm, seed, step, weights):
    """Run ``step`` in the closed loop over an arena of its own and return the snapshot."""
    arena = Arena(layout(MODEL.problem.tensors(SHAPE), STEPS, 1))
    weights.place(arena)
    data = weights.draw(seed, STEPS)
    prepare(weights, arena, data)
    t = arena.tensors
    t["noise"][0].copy_(data.noise[0])
    loaded = Loaded(
        step=lambda: step(t),
        buffers=t,
        schedules=((t["scale"], t["schedule.scale"]),),
        histories=tuple((t[n], t[f"history.{n}"]) for n in ("out", "expert_ids")),
    )
    loaded.run(STEPS)
    taken = snapshot(arm, arena, weights, data, 1)
    arena.close()
    return taken


def judged(candidate, runs=2):
    judge, faults = Judge(MODEL, SHAPE, RULES), []
    weights = Weights(MODEL, SHAPE, new_seed(), STEPS)
    for number in range(runs):
        seed = new_seed()
        for arm, step in ((Arm.BASELINE, honest), (Arm.CANDIDATE, candidate)):
            taken = shot(arm, seed, step, weights)
            found = judge.inspect(taken)
            faults += found or judge.follow(taken, "chain", prove=arm is Arm.BASELINE and number == 0)
    return judge, faults


def too_large(judge):
    return {
        (e.tensor, name)
        for e in judge.errors()
        for name in ("rms", "median_row", "gain")
        if abs(getattr(e.candidate, name)) > getattr(error_limits(e, RULES), name)
    }


def test_an_honest_twin_passes_and_the_oracle_proves_itself():
    judge, faults = judged(honest)
    assert faults == [] and too_large(judge) == set()
    assert all(proof.refused for proof in judge.proofs) and len(judge.proofs) == 4
    assert [r.candidate.largest <= r.limits.largest for r in judge.routing()] == [True]


def skips_the_last_update(t, calls=[0]):  # noqa: B006
    calls[0] += 1
    keep = t["state"].clone()
    honest(t)
    if calls[0] % STEPS == 0:
        t["state"].copy_(keep)


def wrong_expert(t):
    honest(t)
    t["expert_ids"].fill_(1)


def norm_weight_off(t):
    honest(t)
    t["out"].mul_(1.01)


@pytest.mark.parametrize(
    ("trick", "tensor"),
    [(skips_the_last_update, "state"), (norm_weight_off, "out")],
    ids=["last update", "one percent"],
)
def test_a_trick_shows_in_the_figures(trick, tensor):
    judge, faults = judged(trick)
    assert faults == []
    assert tensor in {name for name, _ in too_large(judge)}


def test_wrong_experts_show_in_the_shortfall():
    judge, faults = judged(wrong_expert)
    (routing,) = judge.routing()
    assert faults == [] and routing.candidate.mean > routing.limits.mean


def id_out_of_range(t):
    honest(t)
    t["expert_ids"].fill_(99)


def not_written(t):
    t["expert_ids"].zero_()


def state_of_nobody(t):
    honest(t)
    t["state"][0, 3] = 0.0


@pytest.mark.parametrize(
    ("trick", "code"),
    [(id_out_of_range, "COR_ROUTING"), (not_written, "COR_UNWRITTEN"), (state_of_nobody, "COR_STRAY_WRITE")],
)
def test_a_fault_has_its_own_code_and_names_the_arm(trick, code):
    _, faults = judged(trick, runs=1)
    assert {fault.code for fault in faults} == {code}
    assert {fault.arm for fault in faults} == {Arm.CANDIDATE}


def test_inputs_are_rebuilt_exactly_from_the_arms_own_history():
    weights = Weights(MODEL, SHAPE, new_seed(), STEPS)
    seen = []

    def remembers(t):
        seen.append(t["x"].clone())
        honest(t)

    taken = shot(Arm.CANDIDATE, new_seed(), remembers, weights)
    assert torch.equal(taken.inputs(), torch.stack(seen))


def test_what_the_oracle_cannot_follow_is_a_fault_and_not_left_out(monkeypatch):
    class Lost:
        def follow(self, *given):
            trace = oracle().follow(*given)
            trace.outputs["out"][0] = torch.nan
            return trace

    monkeypatch.setitem(globals(), "MODEL", Model(MODEL.problem, Lost()))
    _, faults = judged(honest, runs=1)
    assert [(fault.code, fault.arm) for fault in faults] == [
        ("COR_NO_REFERENCE", Arm.BASELINE),
        ("COR_NO_REFERENCE", Arm.CANDIDATE),
    ]
    assert {fault.effect.value for fault in faults} == {"void", "wrong"}
