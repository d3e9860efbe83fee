"""Where an arm can write what it may only read, the first byte that it changed is named."""

from __future__ import annotations

import pytest
import torch

from kernels_under_test.contract import Shape
from tests.workers.toy_model.trusted import ToyOracle, ToyProblem
from workers.arena import Arena, layout
from workers.loop.runs import Weights, prepare
from workers.loop.unsealed import changed, words
from workers.models import Model

SHAPE = Shape(rows=2, query_tokens=1, context=64, page_size=4)
STEPS = 5


@pytest.fixture
def run():
    """An arena that holds one run's data, its weights and the run."""
    weights = Weights(Model(ToyProblem(), ToyOracle()), SHAPE, 3, STEPS)
    arena = Arena(layout(weights.specs, STEPS, 1))
    weights.place(arena)
    data = weights.draw(4, STEPS - 1)
    prepare(weights, arena, data)
    arena.tensors["noise"][0].copy_(data.noise[0])
    yield arena, weights, data
    arena.close()


def test_an_honest_run_changed_nothing_and_steps_behind_its_last_are_not_looked_at(run):
    arena, weights, data = run
    arena.tensors["noise"][data.steps :].fill_(7)
    arena.tensors["schedule.scale"][data.steps :].fill_(7)
    arena.tensors["state"].fill_(7)
    assert list(changed(arena.tensors, weights.specs, data)) == []


@pytest.mark.parametrize("name", ["weight", "slots", "schedule.scale", "noise", "table", "multipliers"])
def test_one_element_that_differs_is_named_with_its_place(run, name):
    arena, weights, data = run
    tensor = arena.tensors[name]
    flat = (tensor[: data.steps] if name in ("noise", "schedule.scale") else tensor).reshape(-1)
    flat[-1] += 1
    (stray,) = changed(arena.tensors, weights.specs, data)
    last = flat.numel() * flat.element_size()
    assert stray.tensor == name and last - 8 <= stray.offset < last


def test_nan_in_place_of_the_same_nan_is_no_change():
    value = torch.full((4,), torch.nan)
    assert torch.equal(words(value), words(value.clone()))


def test_bytes_that_fill_no_wide_integer_are_compared_one_by_one():
    assert words(torch.zeros(9, dtype=torch.uint8)).dtype == torch.uint8
    assert words(torch.zeros(16, dtype=torch.uint8)).dtype == torch.int64
