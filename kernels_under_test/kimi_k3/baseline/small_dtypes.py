"""The steps that differ where the cache is FP8, the experts' weights are MXFP4 or their activations MXFP8.

FP8 is E4M3 throughout, cast round-to-nearest and saturating. MXFP4 weights are two E2M1 codes a byte, the even input in the low half,
with one E8M0 byte (2^(byte - 127)) for 32 inputs. MXFP8 activations have one such byte for 32 values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from . import latent_moe, mla
from .layer import Layer

FP8 = torch.float8_e4m3fn
FP8_MOST = 448.0
BLOCK = 32
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def to_fp8(value: Tensor, factor: float = 1.0) -> Tensor:
    """Return ``value`` x ``factor`` as saturating E4M3; NaN stays NaN."""
    return (value.float() * factor).clamp(-FP8_MOST, FP8_MOST).to(FP8)


def concat_and_cache_insert(layer: Layer) -> None:
    """Join the query's parts, cast query and new rows to FP8 by their scales, and store the rows on the rank that owns them."""
    query = torch.cat((layer.v.q_latent, layer.v.q_pe), dim=-1)
    layer.v.query = to_fp8(query, 1.0 / layer.fact("q_scale"))
    row = to_fp8(torch.cat((layer.v.c, layer.v.k_pe), dim=-1), 1.0 / layer.fact("k_scale")).view(torch.uint8)
    mapping = layer.window.tensors["slot_mapping"]
    for rank in range(layer.window.ranks):
        mine = (mapping[rank] >= 0).nonzero().flatten()
        stored = layer.w.kv_cache[rank].view(torch.uint8).view(-1, row.shape[-1])
        stored[mapping[rank, mine]] = row[mine]


def attention(layer: Layer) -> None:
    """Attention over FP8 rows: scores and result are scaled back, the softmax and its products are fp32."""
    unit = layer.fact("k_scale")
    scale = (layer.fact("nope") + layer.fact("pe")) ** -0.5 * layer.fact("q_scale") * unit
    mla.attend(layer, scale, layer.w.kv_cache, unit)


def mx_quantise(value: Tensor) -> tuple[Tensor, Tensor]:
    """MXFP8 of [..., K]: E4M3 [..., K] and scale bytes [..., K / 32].

    The byte is the least that keeps the block's largest magnitude within 448: its biased exponent - 8, one more where its mantissa
    is above 1.75. NaN does not count for the largest.
    """
    blocks = value.float().reshape(*value.shape[:-1], -1, BLOCK)
    most = blocks.abs().nan_to_num(nan=0.0, posinf=torch.inf).amax(dim=-1)
    bits = most.view(torch.int32)
    exponent = (bits >> 23) - 8 + ((bits & 0x7FFFFF) > 0x600000).int()
    byte = exponent.clamp(0, 254)
    scaled = blocks * torch.exp2(127.0 - byte.float()).unsqueeze(-1)
    return to_fp8(scaled).flatten(-2), byte.to(torch.uint8)


def mx_values(codes: Tensor, scales: Tensor) -> Tensor:
    """Values of MXFP8: [..., K] fp32."""
    return codes.float() * torch.exp2(scales.float() - 127.0).repeat_interleave(BLOCK, dim=-1)


def prepare_latent(layer: Layer) -> None:
    """Quantise the experts' input."""
    layer.v.expert_in = mx_values(*mx_quantise(layer.v.latent_in))


def route_top_k(layer: Layer) -> None:
    """Routing as with bf16 activations, the weights stored as bf16."""
    latent_moe.route_top_k(layer)
    layer.v.weights = layer.v.weights.to(torch.bfloat16).float()


def _matrix(layer: Layer, name: str, expert: int, dtype: torch.dtype) -> Tensor:
    """An expert's matrix: [rows, inputs] in ``dtype``. Values of MXFP4 are exact in bf16."""
    stored: Tensor = getattr(layer.w, name)[expert]
    if stored.dtype != torch.uint8:
        return stored.to(dtype)
    codes = torch.stack((stored & 15, stored >> 4), dim=-1).flatten(-2).long()
    scale = torch.exp2(getattr(layer.w, f"{name}_scale")[expert].float() - 127.0)
    return (_E2M1[codes] * scale.repeat_interleave(BLOCK, dim=-1)).to(dtype)


def _grouped(layer: Layer, name: str, rows: Tensor) -> Tensor:
    groups = torch.split(rows, layer.v.counts)
    return torch.cat(
        [functional.linear(g, _matrix(layer, name, e, g.dtype)) for e, g in enumerate(groups) if g.shape[0]]
    )


def experts_gate_up_situ(layer: Layer) -> None:
    """First grouped product and activation, in expert order: bf16, or with MXFP8 input fp32 quantised once more."""
    rows = layer.v.expert_in[layer.v.order // layer.fact("top_k")]
    gate, up = _grouped(layer, "w13", rows).chunk(2, dim=-1)
    bent = latent_moe.situ(gate, up, layer)
    layer.v.hidden = mx_values(*mx_quantise(bent)) if rows.dtype == torch.float32 else bent.to(torch.bfloat16)


def experts_down(layer: Layer) -> None:
    """Second grouped product: [pairs, latent] bf16, in expert order."""
    layer.v.pairs = _grouped(layer, "w2", layer.v.hidden).to(torch.bfloat16)


Steps = dict[str, Callable[[Layer], None]]
FP8_CACHE: Steps = {"concat_and_cache_insert": concat_and_cache_insert, "attention": attention}
PACKED: Steps = {"experts_gate_up_situ": experts_gate_up_situ, "experts_down": experts_down}
MXFP8: Steps = {**PACKED, "prepare_latent": prepare_latent, "route_top_k": route_top_k}
"""Which steps take the place of the bf16 ones, by name."""
