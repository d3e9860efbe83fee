"""Single runs over inputs that a test chooses: tensors of a problem, random inputs and expert ids, an arm's steps, the oracle's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernels_under_test import hashrng
from kernels_under_test.contract import Role, Shape, Trace
from kernels_under_test.kimi_k3.problem import KimiProblem
from kernels_under_test.kimi_k3.reference import oracle
from tests.kernels_under_test.kimi_k3.chain import CANARY, allocate, bits

POOR = 7
"""What expert ids hold before a step."""


@dataclass
class Ran:
    """Outputs [steps, ...] of an arm and the states that it left."""

    out: Tensor
    ids: Tensor
    states: dict[str, Tensor]


def changed(problem: KimiProblem, **sizes: Any) -> KimiProblem:
    """The problem with other sizes."""
    return KimiProblem(replace(problem.file, sizes=replace(problem.file.sizes, **sizes)))


def filled(problem: KimiProblem, shape: Shape, steps: int, seed: int, regime: str = "normal") -> dict[str, Tensor]:
    """Every tensor as it is before a run."""
    tensors = allocate(problem, shape, steps)
    problem.fill(shape, tensors, steps=steps, seed=seed, regime=regime)
    return tensors


def inputs(problem: KimiProblem, shape: Shape, steps: int, seed: int) -> Tensor:
    """x [steps, rows, hidden] bf16."""
    return hashrng.normal(seed, "x", (steps, shape.rows, problem.facts["hidden"])).to(torch.bfloat16)


def any_ids(problem: KimiProblem, shape: Shape, steps: int, seed: int) -> Tensor:
    """Expert ids [steps, layers with experts, rows, k], distinct within a row, nobody's choice."""
    layers = problem.file.expert_layers
    drawn = hashrng.uniform(seed, "ids", (steps, layers, shape.rows, problem.facts["experts"]))
    return drawn.argsort(dim=-1)[..., : problem.facts["top_k"]]


def followed(problem: KimiProblem, shape: Shape, initial: Mapping[str, Tensor], x: Tensor, ids: Tensor) -> Trace:
    """What the oracle makes of it."""
    return oracle().follow(problem, shape, initial, x, ids)


def stepped(arm: Any, problem: KimiProblem, shape: Shape, initial: Mapping[str, Tensor], x: Tensor) -> Ran:
    """Run an arm over ``x`` without feedback; ``initial`` stays as it is."""
    schedules = [s.name for s in problem.tensors(shape) if s.role is Role.SCHEDULE]
    tensors = {n: (t[0].clone() if n in schedules else t.clone()) for n, t in initial.items()}
    tensors["workspace"] = torch.full((arm.workspace(problem.facts, shape),), CANARY, dtype=torch.uint8)
    step = arm.build(problem.facts, shape, tensors)
    outs, ids = [], []
    for t in range(x.shape[0]):
        for name in schedules:
            tensors[name].copy_(initial[name][t])
        tensors["x"].copy_(x[t])
        tensors["out"].fill_(torch.nan)
        tensors["expert_ids"].fill_(POOR)
        step()
        outs.append(tensors["out"].clone())
        ids.append(tensors["expert_ids"].clone())
    states = {s.name: tensors[s.name] for s in problem.tensors(shape) if s.role is Role.STATE}
    return Ran(torch.stack(outs), torch.stack(ids), states)


def same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit equal, NaN included."""
    return bool(bits(one.contiguous()).equal(bits(other.contiguous())))


def close(one: Tensor, other: Tensor, tolerance: float = 1e-9) -> bool:
    """Equal up to ``tolerance`` of the largest value; NaN only where both have it."""
    if not one.isnan().equal(other.isnan()):
        return False
    one, other = one.nan_to_num(), other.nan_to_num()
    return bool((one - other).abs().max() <= tolerance * other.abs().max().clamp(min=1e-12))
