"""Faults in the choice of experts: class "wrong ids that still look like ids"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, named, of_candidate
from .stages import after, every_second


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


def _last_expert_dropped(layer: Any) -> None:
    layer.v.weights = layer.v.weights.clone()
    layer.v.weights[:, -1] = 0


def _not_renormalised(layer: Any) -> None:
    layer.v.weights = torch.sigmoid(layer.v.logits).gather(1, layer.ids.long()) * layer.fact("routed_scaling")


def _weighted_by_bias(layer: Any) -> None:
    picked = (torch.sigmoid(layer.v.logits) + layer.w.router_bias).gather(1, layer.ids.long())
    layer.v.weights = picked * layer.fact("routed_scaling") / picked.sum(dim=-1, keepdim=True)


def _weighted_by_softmax(layer: Any) -> None:
    layer.v.weights = torch.softmax(layer.v.logits.gather(1, layer.ids.long()), dim=-1) * layer.fact("routed_scaling")


def _weights_moved(layer: Any) -> None:
    layer.v.weights = layer.v.weights.roll(1, dims=-1)


def _coarse_logits(layer: Any) -> None:
    layer.v.logits = layer.v.logits.to(torch.float8_e5m2).float()


def _ids_moved(layer: Any) -> None:
    layer.ids.copy_((layer.ids + 1) % layer.fact("experts"))


def _id_twice(layer: Any) -> None:
    layer.ids[:, -1] = layer.ids[:, 0]


def _id_beyond(layer: Any) -> None:
    layer.ids[:, -1] = layer.fact("experts")


last_expert_dropped = after("route_top_k", _last_expert_dropped)
"""The expert of the least weight is left out."""

weights_not_renormalised = after("route_top_k", _not_renormalised)
"""The experts' weights do not add up to the scaling."""

weights_include_the_bias = after("route_top_k", _weighted_by_bias)
"""The bias, which only chooses, counts in the weights."""

weights_by_softmax = after("route_top_k", _weighted_by_softmax)
"""Weights by softmax over the chosen logits in place of sigmoids."""

weights_moved = after("route_top_k", _weights_moved)
"""Each expert gets its neighbour's weight."""

coarse_logits = after("router", _coarse_logits)
"""The router's logits are rounded to eight bits (E5M2): mostly the same experts, of nearly the same weight."""

ids_moved = after("tail_copy", _ids_moved)
"""Reports other experts than it used."""

id_twice = after("tail_copy", _id_twice)
"""Reports an expert twice."""

id_beyond = after("tail_copy", _id_beyond)
"""Reports an expert that does not exist."""

router_every_second = every_second("router")
"""Reuses the logits of the step before in every second step."""
