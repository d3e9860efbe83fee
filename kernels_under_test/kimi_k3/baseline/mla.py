"""Multi-head latent attention in its absorbed form over a paged bf16 cache, causal within a step, no rotation.

With decode context parallelism every rank attends over its own shard and the results are merged by their log-sum-exp
(natural logarithm). Here all shards are in one process, one after the other.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Layer


def qkv_a(layer: Layer) -> None:
    """Project to q_a | kv | k_pe, [rows, ...] bf16."""
    split = [layer.fact("q_lora"), layer.fact("kv_lora"), layer.fact("pe")]
    weight = layer.w.in_proj[: sum(split)]
    layer.v.q_a, layer.v.kv, layer.v.k_pe = torch.split(functional.linear(layer.v.x, weight), split, dim=-1)


def gate_proj(layer: Layer) -> None:
    """Project to the output gate [rows, heads x value] bf16."""
    first = layer.fact("q_lora") + layer.fact("kv_lora") + layer.fact("pe")
    layer.v.gate = functional.linear(layer.v.x, layer.w.in_proj[first:])


def _norm(value: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = value.float()
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * weight.float()).to(torch.bfloat16)


def q_kv_norm(layer: Layer) -> None:
    """Norms of the low-rank query and of the latent; the position part has none."""
    layer.v.qc = _norm(layer.v.q_a, layer.w.q_a_norm, layer.fact("eps.q_a_norm"))
    layer.v.c = _norm(layer.v.kv, layer.w.kv_a_norm, layer.fact("eps.kv_a_norm"))


def q_b(layer: Layer) -> None:
    """Query heads [rows, heads, nope + pe]."""
    q = functional.linear(layer.v.qc, layer.w.q_b).view(layer.window.rows, layer.fact("heads"), -1)
    layer.v.q_nope, layer.v.q_pe = torch.split(q, [layer.fact("nope"), layer.fact("pe")], dim=-1)


def absorb_w_uk(layer: Layer) -> None:
    """Take the query's content part into the latent space: [rows, heads, latent] bf16."""
    layer.v.q_latent = torch.bmm(layer.v.q_nope.transpose(0, 1), layer.w.w_uk).transpose(0, 1)


def concat_and_cache_insert(layer: Layer) -> None:
    """Join the query's parts and store the new token's row on the rank that owns it."""
    layer.v.query = torch.cat((layer.v.q_latent, layer.v.q_pe), dim=-1)
    row = torch.cat((layer.v.c, layer.v.k_pe), dim=-1)
    mapping = layer.window.tensors["slot_mapping"]
    for rank in range(layer.window.ranks):
        mine = (mapping[rank] >= 0).nonzero().flatten()
        layer.w.kv_cache[rank].view(-1, row.shape[-1])[mapping[rank, mine]] = row[mine]


def attention(layer: Layer) -> None:
    """Attend over each rank's shard: latents [rows, heads, latent] bf16 and their log-sum-exp, per rank.

    Positions behind what a row sees read its last token's cache row, which is real data, and are masked in the scores. A shard
    without tokens gives latent 0 and log-sum-exp -inf.
    """
    scale = (layer.fact("nope") + layer.fact("pe")) ** -0.5
    attend(layer, scale, layer.w.kv_cache)


def attend(layer: Layer, scale: float, cache: Tensor, unit: float | None = None) -> None:
    """The attention of every rank over ``cache`` [ranks, pages, page, row]: bf16, or FP8 where a stored 1 stands for ``unit``."""
    window, latent = layer.window, layer.fact("kv_lora")
    query = layer.v.query.float()
    layer.v.parts = []
    for rank in range(window.ranks):
        lengths = window.local_lengths(rank).unsqueeze(1)
        positions = window.positions[: max(int(lengths.max()), 1)]
        safe = torch.minimum(positions, lengths - 1).clamp(min=0)
        pages = window.block_table().gather(1, safe // window.page)
        slots = pages.long() * window.page + safe % window.page
        stored = cache[rank].view(-1, query.shape[-1])
        if unit is None:
            rows = stored[slots].float()
        else:  # FP8: picked as bytes, since not every device indexes it
            rows = stored.view(torch.uint8)[slots].view(stored.dtype).float()
        scores = (query @ rows.transpose(1, 2)) * scale
        scores = scores.masked_fill((positions >= lengths).unsqueeze(1), -torch.inf)
        lse = torch.logsumexp(scores, dim=-1)
        mixed = torch.softmax(scores, dim=-1) @ rows[..., :latent]
        if unit is not None:
            mixed = mixed * unit
        empty = lengths.unsqueeze(-1) == 0
        lse = lse.masked_fill(empty.squeeze(-1), -torch.inf)
        layer.v.parts.append((mixed.masked_fill(empty, 0).to(torch.bfloat16), lse))
    layer.v.latent = layer.v.parts[0][0]


def merge_shards(layer: Layer) -> None:
    """Weight every rank's latent by its share of the softmax sum; a request without tokens gives zero."""
    latents = torch.stack([part[0] for part in layer.v.parts]).float()
    lse = torch.stack([part[1] for part in layer.v.parts])
    top = lse.max(dim=0).values
    weight = torch.exp(lse - top.masked_fill(top == -torch.inf, 0))
    share = weight / weight.sum(dim=0).clamp(min=1e-30)
    layer.v.latent = (share.unsqueeze(-1) * latents).sum(dim=0).to(torch.bfloat16)


def value_w_uv(layer: Layer) -> None:
    """Take the latent result to the heads' values: [rows, heads, value] bf16."""
    layer.v.value = torch.bmm(layer.v.latent.transpose(0, 1), layer.w.w_uv.transpose(1, 2)).transpose(0, 1)


def gate_mul(layer: Layer) -> None:
    """Multiply by the output gate's sigmoid: [rows, heads x value] bf16."""
    value = layer.v.value.flatten(1).float()
    layer.v.attention = (value * torch.sigmoid(layer.v.gate.float())).to(torch.bfloat16)
