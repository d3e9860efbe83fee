"""Closed chains of decode steps for the tests: an arm's run, its own history, and how far it is from the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from kernels_under_test import hashrng
from kernels_under_test.contract import TABLE_ROWS, Role, Shape, TensorSpec, Trace, feedback
from kernels_under_test.kimi_k3.problem import KimiProblem
from kernels_under_test.kimi_k3.reference import oracle
from workers.judge import ROUTING_FLOOR

CANARY = 173
SLACK = 4096
"""Bytes before and behind each output, as an arena has them: planted faults write there, and the heap must not be theirs."""


@dataclass
class Run:
    """One run: tensors as they were before, the arm's history and its end states."""

    shape: Shape
    initial: Mapping[str, Tensor]
    x: Tensor
    out: Tensor
    ids: Tensor
    tensors: Mapping[str, Tensor]
    around: Mapping[str, tuple[Tensor, Tensor]]
    """By output: the bytes before and behind it, uint8, which nobody may write."""


def _with_slack(spec: TensorSpec) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    dtype = getattr(torch, spec.dtype)
    size = prod(spec.shape) * dtype.itemsize
    memory = torch.full((SLACK + size + SLACK,), CANARY, dtype=torch.uint8)
    end = SLACK + size
    return memory[SLACK:end].view(dtype).reshape(spec.shape), (memory[:SLACK], memory[end:])


def allocate(problem: KimiProblem, shape: Shape, steps: int) -> dict[str, Tensor]:
    """Every tensor of the problem, schedules with their step axis; outputs are poisoned."""
    tensors = {}
    for spec in problem.tensors(shape):
        size = (steps, *spec.shape) if spec.role is Role.SCHEDULE else spec.shape
        tensors[spec.name] = torch.zeros(size, dtype=getattr(torch, spec.dtype))
    tensors["out"].fill_(torch.nan)
    tensors["expert_ids"].fill_(-7)
    return tensors


def run(
    implementation: Any, problem: KimiProblem, shape: Shape, *, steps: int, seed: int = 1, regime: str = "normal"
) -> Run:
    """Run ``steps`` decode steps in the closed loop of the contract."""
    given = allocate(problem, shape, steps)
    problem.fill(shape, given, steps=steps, seed=seed, regime=regime)
    initial = {name: tensor.clone() for name, tensor in given.items()}
    schedules = [s.name for s in problem.tensors(shape) if s.role is Role.SCHEDULE]
    tensors = {name: (t[0].clone() if name in schedules else t) for name, t in given.items()}
    size = implementation.workspace(problem.facts, shape)
    if size:
        tensors["workspace"] = torch.full((size,), CANARY, dtype=torch.uint8)
    around = {}
    for spec in problem.tensors(shape):
        if spec.role is Role.OUTPUT:
            poison = tensors[spec.name]
            tensors[spec.name], around[spec.name] = _with_slack(spec)
            tensors[spec.name].copy_(poison)
    step = implementation.build(problem.facts, shape, tensors)
    hidden = problem.facts["hidden"]
    noise = hashrng.normal(seed, "noise", (steps, shape.rows, hidden))
    table = hashrng.normal(seed, "table", (TABLE_ROWS, hidden))
    multipliers = hashrng.words(seed, "multipliers", hidden) | 1
    xs, outs, ids = [], [], []
    tensors["x"].copy_(noise[0])
    for t in range(steps):
        for name in schedules:
            tensors[name].copy_(given[name][t])
        xs.append(tensors["x"].clone())
        step()
        outs.append(tensors["out"].clone())
        ids.append(tensors["expert_ids"].clone())
        if t + 1 < steps:
            tensors["x"].copy_(noise[t + 1] + feedback(tensors["out"], multipliers, table))
    return Run(shape, initial, torch.stack(xs), torch.stack(outs), torch.stack(ids), tensors, around)


@dataclass
class Errors:
    """Distance of a run from the oracle that followed it. Row errors are relative L2."""

    rms: float
    median: float
    gain: float
    states: dict[str, float]
    state_gain: dict[str, float]
    worst_shortfall: float
    mean_shortfall: float
    choices: int


def row_errors(found: Tensor, wanted: Tensor) -> Tensor:
    """Relative L2 distance of each row (last axis)."""
    return (found.double() - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp(min=1e-12)


def signed_gain(found: Tensor, wanted: Tensor) -> float:
    """<error, reference> / <reference, reference>: what a wrong scale adds up to."""
    return (((found.double() - wanted) * wanted).sum() / wanted.square().sum().clamp(min=1e-30)).item()


def errors(problem: KimiProblem, made: Run, trace: Trace) -> Errors:
    """Measure a run against the trace of its own pinned oracle."""
    rows = row_errors(made.out, trace.outputs["out"])
    steps = made.x.shape[0]
    untouched = problem.untouched(made.shape, made.initial, steps)
    states, gains = {}, {}
    for name, wanted in trace.states.items():
        touched = ~untouched[name]
        found, want = made.tensors[name].double()[touched], wanted[touched]
        states[name] = ((found - want).norm() / want.norm().clamp(min=1e-12)).item()
        gains[name] = signed_gain(found, want)
    return Errors(
        rms=rows.square().mean().sqrt().item(),
        median=rows.median().item(),
        gain=signed_gain(made.out, trace.outputs["out"]),
        states=states,
        state_gain=gains,
        worst_shortfall=trace.shortfall.max().item(),
        mean_shortfall=trace.shortfall.mean().item(),
        choices=trace.shortfall.numel(),
    )


def measured(
    problem: KimiProblem, arm: Any, shape: Shape, steps: int = 8, seed: int = 3, regime: str = "normal"
) -> tuple[Run, Errors]:
    """A run and how far it is from the oracle that followed it."""
    one = run(arm, problem, shape, steps=steps, seed=seed, regime=regime)
    return one, errors(problem, one, oracle().follow(problem, shape, one.initial, one.x, one.ids))


ROW_RMS, MEDIAN_ROW, STATE, WORST_ID, MEAN_ID = 1.5, 1.15, 1.5, 6.0, 3.0
"""Most that a candidate's figures may be, in units of the stock path's over the same seeds."""


SWAP, MEAN_FLOOR = ROUTING_FLOOR.largest, ROUTING_FLOOR.mean


def worse(found: Errors, stock: Errors) -> list[str]:
    """What of a run is beyond the stock path's figures; a NaN always is."""
    pairs = [
        ("rms", found.rms, ROW_RMS * stock.rms),
        ("median", found.median, MEDIAN_ROW * stock.median),
        # One swap among experts of nearly equal score is chance, as in a race; the stock path may show none.
        ("worst id", found.worst_shortfall, max(SWAP, WORST_ID * stock.worst_shortfall)),
        ("mean id", found.mean_shortfall, max(MEAN_FLOOR, MEAN_ID * stock.mean_shortfall) + SWAP / found.choices),
    ]
    pairs += [(name, error, STATE * stock.states[name]) for name, error in found.states.items()]
    return [name for name, error, limit in pairs if not error <= limit]


def bits(tensor: Tensor) -> Tensor:
    """The same shape as integers, so that NaN equals the same NaN."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def strayed(problem: KimiProblem, made: Run) -> list[str]:
    """Names of tensors that a run wrote where it must not: read-only ones, states outside the addressed part, and
    outputs beside which it wrote."""
    masks = problem.untouched(made.shape, made.initial, made.x.shape[0])
    names = []
    for spec in problem.tensors(made.shape):
        was, found = made.initial[spec.name], made.tensors[spec.name]
        if spec.role in (Role.WEIGHT, Role.METADATA):
            same = was.contiguous().view(torch.uint8).equal(found.contiguous().view(torch.uint8))
        elif spec.role is Role.STATE:
            kept = masks[spec.name]
            same = bits(was)[kept].equal(bits(found)[kept])
        elif spec.role is Role.OUTPUT:
            same = all(bool((band == CANARY).all()) for band in made.around[spec.name])
        else:
            continue
        if not same:
            names.append(spec.name)
    return names
