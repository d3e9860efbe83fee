"""Runs that go on from an arm's own end states, and the oracle that carries its own."""

from __future__ import annotations

import pytest
import torch

from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import EXPERT_IDS, OUT, Role, Shape
from tests.workers.conftest import toy_order
from tests.workers.toy_model.trusted import ToyOracle, load
from workers.judge import Judge
from workers.loop.follow_on import follow_on
from workers.loop.runs import Snapshot, Weights, new_seed
from workers.models import Model

SHAPE = Shape(rows=3, query_tokens=1, context=64, page_size=4, dtypes={})


class Watched(ToyOracle):
    def __init__(self):
        self.starts = []

    def follow(self, problem, shape, initial, x, expert_ids):
        self.starts.append(initial["state"].clone())
        return super().follow(problem, shape, initial, x, expert_ids)


@pytest.fixture
def weights():
    return Weights(Model(load("small"), Watched()), SHAPE, new_seed(), 6)


def played(weights, data, *, lost=0.0):
    """What an arm leaves that follows the oracle in single precision, and loses a part of its state at the end of each run."""
    x = data.noise
    state = data.initial["state"].float().clone()
    outs, ids = [], []
    t = weights.tensors
    for step in range(data.steps):
        if step:
            x = torch.cat((x[:step], Snapshot.inputs(_shot(data, outs, ids, state))[step : step + 1], x[step + 1 :]))
        row = x[step].float()
        chosen = (row @ t["router"].float().T).argmax(1)
        slots = data.initial["slots"]
        new = (
            torch.tanh(row @ t["weight"].float().T)
            * t["experts"][chosen].float()
            * data.initial["scale"][step][:, None]
        )
        state[slots] = t["decay"] * state[slots] + new
        now = state[slots]
        outs.append((now / (now.square().mean(1, keepdim=True) + 1e-6).sqrt()).to(torch.bfloat16))
        ids.append(chosen.int()[None, :, None])
    state[data.initial["slots"]] *= 1 - lost
    return _shot(data, outs, ids, state)


def _shot(data, outs, ids, state):
    missing = [torch.zeros_like(outs[0])] * (data.steps - len(outs))
    histories = {OUT: torch.stack([*outs, *missing]), EXPERT_IDS: torch.stack([*ids, *[ids[0]] * len(missing)])}
    return Snapshot(Arm.CANDIDATE, data, 1, histories, {"state": state}, ())


def test_requests_stay_where_they_are_and_the_states_are_the_arms_own(weights):
    first = weights.draw(new_seed(), 6)
    states = {"state": torch.randn(4, 32)}
    later = follow_on(weights, first, states, seed=new_seed(), steps=2, at=4)
    assert later.steps == 2 and later.initial["state"] is states["state"]
    for spec in weights.specs:
        if spec.role is Role.METADATA:
            assert torch.equal(later.initial[spec.name], first.initial[spec.name])
        elif spec.role is Role.SCHEDULE:
            assert torch.equal(later.initial[spec.name], first.initial[spec.name][4:6])
    assert not torch.equal(later.noise, first.noise[4:6]) and not torch.equal(later.multipliers, first.multipliers)
    with pytest.raises(ValueError, match="at most 2 steps from step 4 on; found 3"):
        follow_on(weights, first, states, seed=1, steps=3, at=4)


def test_the_oracle_of_a_long_chain_carries_its_own_states_so_that_losses_add_up(weights):
    judge = Judge(weights.model, SHAPE, toy_order().request.rules)
    data = weights.draw(new_seed(), 6)
    shot = played(weights, data, lost=1e-3)
    for index in range(5):
        assert judge.follow_long(shot, first=index == 0, counted=True) == []
        data = follow_on(weights, data, shot.states, seed=new_seed(), steps=6)
        shot = played(weights, data, lost=1e-3)
    starts = weights.model.oracle.starts
    assert len(starts) == 5
    slots = data.initial["slots"]
    assert torch.equal(starts[0], weights.tensors["state"]) or starts[0].dtype == torch.float32
    assert all(start.dtype == torch.float64 for start in starts[1:])  # its own, not the arm's
    assert not torch.equal(starts[4][slots].float(), data.initial["state"][slots])
    assert judge.follow_long(played(weights, weights.draw(new_seed(), 6)), first=True, counted=True) == []
    assert weights.model.oracle.starts[-1].dtype == torch.float32  # a new chain begins from what was drawn
