"""Which constant of the model an arm has wrong: errors of single steps, projected on what the oracle would change by.

Rounding hides a norm weight that is 1 % too large: each element of an output is off by as much for other reasons. But it is off
in no particular direction, while a wrong constant moves thousands of elements along one that the oracle can compute: what its
answer changes by when the constant is scaled. The least squares estimate of that scale, as a natural logarithm, has a standard
error of a tenth of a percent or less. A constant is a vector among the weights, scaled as a whole, or a number among the facts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gatekeeper.domain.correctness import constant_limit
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import Arm, ConstantRecord
from kernels_under_test.contract import Problem, Role, Shape, Trace
from workers.figures import SMALL_ROW, row_scale
from workers.models import Model

SHIFT = 2.0**-10
"""Relative change of a constant for its direction. The oracle is in float64, so a smaller one loses nothing, nor gains."""
LEAST_ERROR = 1e-3
"""Half a rounding of bf16. Rows are weighted by one over the square of the stock path's relative error, never taken to be
smaller: another path rounds elsewhere."""
FLOOR, EPS_FLOOR = 3e-3, 0.05
"""How far off a constant may seem where the stock path seems right; an eps may seem more, since it is seen in few rows."""
LEAST_RESOLUTION = 0.1
"""Standard error from which on the data say nothing of a constant, and no record of it is made."""

Rows = Mapping[str, tuple[Tensor, Tensor]]
"""By tensor: an arm's rows and the oracle's, both [rows, width]."""


class WithFacts:
    """A problem with other facts."""

    def __init__(self, problem: Problem, facts: Mapping[str, Any]) -> None:
        self._problem, self.facts = problem, facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)


@dataclass
class _Sums:
    """By request and run: weight x <err, d> for each arm, and weight x <d, d>."""

    along: dict[Arm, list[Tensor]] = field(default_factory=lambda: {arm: [] for arm in Arm})
    power: dict[Arm, list[Tensor]] = field(default_factory=lambda: {arm: [] for arm in Arm})

    def estimate(self, arm: Arm) -> tuple[float, float]:
        """Return how far off the constant seems and the standard error of that, from the spread over requests: within one
        request errors go together. Infinite where nothing depends on the constant."""
        along, power = torch.cat(self.along[arm]), torch.cat(self.power[arm])
        total = float(power.sum())
        if total <= 0 or len(power) < 2:
            return 0.0, math.inf
        off = float(along.sum()) / total
        spread = float((along - off * power).square().sum()) * len(power) / (len(power) - 1)
        return off, spread**0.5 / total


class Constants:
    """Gathers what single steps of both arms say about every constant."""

    def __init__(self, model: Model, shape: Shape, left_out: Sequence[str] = ()) -> None:
        self._model, self._shape, self._left_out = model, shape, tuple(left_out)
        self._sums: dict[str, _Sums] = {}

    def add(
        self,
        initial: Mapping[str, Tensor],
        x: Tensor,
        ids: Mapping[Arm, Tensor],
        rows: Mapping[Arm, Rows],
        touched: Mapping[str, Tensor],
        owners: Mapping[str, Tensor],
    ) -> None:
        """Take in one single step of both arms from the same states and inputs.

        ``touched`` masks the rows of each tensor that are in ``rows``; ``owners`` says which request each of those belongs to.
        """
        weights = {name: _weights(*pair) for name, pair in rows[Arm.BASELINE].items()}
        same = torch.equal(ids[Arm.BASELINE], ids[Arm.CANDIDATE])
        for name, problem, tensors in self._shifted(initial):
            sums = self._sums.setdefault(name, _Sums())
            if sums.power[Arm.BASELINE] and not any(bool(part.any()) for part in sums.power[Arm.BASELINE]):
                continue  # nothing depends on it in this problem
            shifted: Trace | None = None
            for arm in Arm:
                if shifted is None or not same:
                    shifted = self._model.oracle.follow(problem, self._shape, tensors, x, ids[arm])
                along, power = torch.zeros(2, self._shape.requests, dtype=torch.float64)
                for tensor, (found, wanted) in rows[arm].items():
                    values = shifted.outputs.get(tensor, shifted.states.get(tensor))
                    assert values is not None
                    moved = values.reshape(-1, values.shape[-1])[touched[tensor]]
                    direction = (moved - wanted) / math.log1p(SHIFT)
                    weight = weights[tensor]
                    along.index_add_(0, owners[tensor], weight * ((found.double() - wanted) * direction).sum(-1))
                    power.index_add_(0, owners[tensor], weight * direction.square().sum(-1))
                sums.along[arm].append(along)
                sums.power[arm].append(power)

    def _shifted(self, initial: Mapping[str, Tensor]) -> Iterator[tuple[str, Any, Mapping[str, Tensor]]]:
        problem = self._model.problem
        for name, value in problem.facts.items():
            if isinstance(value, float) and value and not name.endswith(self._left_out):
                yield name, WithFacts(problem, {**problem.facts, name: value * (1 + SHIFT)}), initial
        for spec in problem.tensors(self._shape):
            if spec.role is Role.WEIGHT and len(spec.shape) == 1 and not spec.name.endswith(self._left_out):
                yield spec.name, problem, {**initial, spec.name: initial[spec.name].double() * (1 + SHIFT)}

    def records(self, check: str, rules: RaceRules) -> tuple[ConstantRecord, ...]:
        """Return the record of every constant that the data say something about."""
        made = []
        for name, sums in self._sums.items():
            (stock, error), (mine, other) = (sums.estimate(arm) for arm in (Arm.BASELINE, Arm.CANDIDATE))
            if math.isinf(other) or error > LEAST_RESOLUTION:
                continue
            record = ConstantRecord(
                name=name, check=check, candidate=mine, baseline=stock, resolution=error, limit=0,
                floor=EPS_FLOOR if name.startswith("eps.") else FLOOR,
            )  # fmt: skip
            made.append(record.model_copy(update={"limit": constant_limit(record, rules)}))
        return tuple(made)


def _weights(found: Tensor, wanted: Tensor) -> Tensor:
    """Return one over the variance of an element's error, by row: [rows]. A row in which the stock path was lucky counts no more
    than a typical row of the tensor does."""
    scale = row_scale(wanted, SMALL_ROW["output"])
    relative = (found.double() - wanted).norm(dim=-1) / scale
    typical = relative.square().mean().sqrt().clamp_min(LEAST_ERROR)
    return wanted.shape[-1] / (torch.maximum(relative, typical) * scale).square()
