"""Tensor parallelism in one process: which steps every rank makes on its own shard, and what the collectives add up.

Steps that every rank would make alike (residuals, router, latent projections) are made once. Partial sums are rounded to bf16 on
each rank and added in fp32, in rank order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .latent_moe import finalise, norm_latent
from .layer import Layer, Rank

SHARDED = frozenset(
    {
        *("in_proj", "f_b", "conv", "a_log", "dt_bias", "o_proj", "q_b", "w_uk", "w_uv", "w13", "w2", "w13_scale"),
        *("w2_scale", "shared_gate_up", "shared_down", "dense_gate_up", "dense_down", "recurrent_state", "conv_state"),
    }
)
"""Tensors with a leading axis of ranks."""
ALIKE = frozenset(
    {
        *("attn_res_input_norm", "attn_res_post_norm", "router", "latent_down", "prepare_latent", "route_top_k"),
        *("route_permute", "tail_up_add", "tail_copy"),
    }
)
"""Steps made once for all ranks."""


def _added(parts: list[Tensor]) -> Tensor:
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total.to(torch.bfloat16)


def all_reduce(layer: Layer) -> None:
    """The attention output of all ranks, [rows, hidden] bf16."""
    layer.v.reduced = _added([rank.v.partial for rank in layer.ranks])


def dense_all_reduce(layer: Layer) -> None:
    """The dense feed-forward of all ranks: the next layer's delta."""
    layer.window.delta = _added([rank.v.dense_partial for rank in layer.ranks])


def tail_finalise_norm(layer: Layer) -> None:
    """Each rank's weighted sum over the slots, the latent of all ranks and its norm; the shared expert of all ranks."""
    norm_latent(layer, _added([finalise(rank) for rank in layer.ranks]))
    layer.v.shared = _added([rank.v.shared for rank in layer.ranks])


COLLECTIVES: dict[str, Callable[[Layer], None]] = {
    "attention_all_reduce": all_reduce,
    "dense_all_reduce": dense_all_reduce,
    "tail_finalise_norm": tail_finalise_norm,
}


def spread(layer: Layer) -> None:
    """Give a layer its ranks."""
    layer.ranks = [Rank(layer, rank, SHARDED) for rank in range(layer.window.shards)]


def bound(layer: Layer, name: str, function: Callable[[Layer], None]) -> Callable[[], None]:
    """Return one step of a layer, ready to call: on the layer, on each of its ranks, or as the collective over them."""
    if not layer.ranks or name in ALIKE:
        return partial(function, layer)
    if name in COLLECTIVES:
        return partial(COLLECTIVES[name], layer)
    return partial(_each, layer, function)


def _each(layer: Layer, function: Callable[[Layer], None]) -> None:
    for rank in layer.ranks:
        function(rank)
