"""Faults in the choice of experts: class "wrong ids that still look like ids"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, named, of_candidate


def _stale(step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
    ids = tensors["expert_ids"]
    last: list[Tensor] = []

    def run() -> None:
        step()
        fresh = ids.clone()
        if last:
            ids.copy_(last.pop())
        last.append(fresh)

    return run


def _favourites(given: dict[str, Tensor]) -> dict[str, Tensor]:
    changed = dict(given)
    for name in named(given, ".router_bias"):
        changed[name] = given[name].clone()
        changed[name][: given["expert_ids"].shape[-1]] += 10
    return changed


def _unbiased(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return given | {name: torch.zeros_like(given[name]) for name in named(given, ".router_bias")}


stale_expert_ids = of_candidate(around=_stale)
"""Reports the ids of the step before. Must be WRONG: the oracle takes them and computes something else."""

same_experts = of_candidate(tensors=_favourites)
"""Always the first experts, whatever the router says. Must be WRONG by the shortfall of the ids alone: outputs agree with the
oracle that is pinned to them."""

router_bias_ignored = of_candidate(tensors=_unbiased)
"""Chooses without the selection bias. Must be WRONG by the shortfall of the ids."""
