"""Bytes that the kernels of one layer have to move on one rank, and the time that they take at least. Nothing is allocated.

Each needed byte counts once: static weights, and what each row or request adds (activations and states, read and written). The
formulas are those of ``cuda/sizes.py``, for any problem size, number of ranks, query tokens and cache dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernels_under_test.kimi_k3.parts import MX_BLOCK
from kernels_under_test.kimi_k3.sizes import Sizes

CACHE_BYTES = {"bf16": 2, "fp8_e4m3": 1}
"""Bytes of one element of a cached token, by dtype."""


@dataclass(frozen=True)
class Moved:
    """Bytes of one kernel: static weights, and what each row and each request adds."""

    name: str
    weights: float
    per_row: float
    per_request: float = 0.0

    def at(self, rows: int, query_tokens: int = 1) -> float:
        """Bytes of one launch over ``rows`` rows, ``query_tokens`` of them for each request."""
        return self.weights + rows * self.per_row + rows // query_tokens * self.per_request


def expected_experts(s: Sizes, rows: int) -> float:
    """Distinct experts of one step when routing is uniform and independent: E (1 - (1 - k / E)^rows)."""
    return s.experts * (1.0 - (1.0 - s.top_k / s.experts) ** rows)


def expert_bytes(s: Sizes, ranks: int, *, packed: bool = True) -> int:
    """Bytes of one expert's two matrices on one rank: MXFP4 codes and scales, or bf16."""
    elements = 3 * s.on_rank(ranks).expert_intermediate * s.latent
    return elements // 2 + elements // MX_BLOCK if packed else 2 * elements


def cached_bytes(s: Sizes, tokens: int, cache: str, shards: int = 1) -> float:
    """Bytes of cached tokens that one rank reads, of ``tokens`` over all requests; ``shards`` ranks share them."""
    return tokens * s.cache_row * CACHE_BYTES[cache] / shards


def _kda(s: Sizes, q: int) -> list[Moved]:
    d, rows = s.kda_width, s.kda_projection_rows
    state, conv = 4 * d * s.kda_dim * (1 + q), 2 * 3 * d * (2 * s.conv_width - 3 + q)
    return [
        Moved("in_proj", 2 * rows * s.hidden, 2 * (s.hidden + rows)),
        Moved("kda", 2 * d * s.forget_rank + 4 * 3 * d * s.conv_width, 2 * (rows + d), state + conv),
    ]


def _mla(s: Sizes) -> list[Moved]:
    rows, heads, wide = s.mla_projection_rows, s.heads, s.heads * s.v_dim
    query = heads * ((s.nope + s.pe) * s.q_lora + s.nope * s.kv_lora)
    return [
        Moved("in_proj", 2 * rows * s.hidden, 2 * (s.hidden + rows)),
        Moved("query", 2 * query, 2 * (s.q_lora + 2 * s.cache_row + heads * s.cache_row)),
        Moved("value", 2 * wide * s.kv_lora, 2 * 2 * wide),
    ]


def _moe(whole: Sizes, ranks: int, experts: float, *, sharded: bool, packed: bool) -> list[Moved]:
    s = whole.on_rank(ranks)
    front = (s.experts + s.latent) // (ranks if sharded else 1)
    out, shared = s.hidden // ranks, s.shared_intermediate
    pairs = s.top_k * (2 * s.expert_intermediate + 2 * s.latent)
    return [
        Moved("front", 2 * front * s.hidden, 2 * s.hidden + 4 * s.experts + 2 * s.latent),
        Moved("shared gate and up", 2 * 2 * shared * s.hidden, 2 * shared),
        Moved("shared down", 2 * s.hidden * shared, 2 * (shared + s.hidden)),
        Moved("experts", experts * expert_bytes(whole, ranks, packed=packed), 2 * (s.latent + pairs)),
        Moved("tail", 2 * out * s.latent, 2 * (ranks * s.latent + s.latent + ranks * out + s.hidden)),
    ]


def _dense(s: Sizes) -> list[Moved]:
    wide = s.dense_intermediate
    return [
        Moved("dense gate and up", 2 * 2 * wide * s.hidden, 2 * (s.hidden + 2 * wide)),
        Moved("dense down", 2 * s.hidden * wide, 2 * (wide + s.hidden)),
    ]


def layer_bytes(
    whole: Sizes,
    kind: str,
    *,
    ranks: int,
    blocks: int,
    experts: float,
    query_tokens: int = 1,
    sharded: bool = True,
    packed: bool = True,
    dense: bool = False,
) -> tuple[Moved, ...]:
    """Return the bytes of a layer's kernels on one rank; cached tokens are apart, see :func:`cached_bytes`.

    Args:
        whole: sizes over all ranks.
        kind: ``kda`` or ``mla``.
        ranks: of tensor parallelism.
        blocks: complete attention-residual blocks before the layer.
        experts: distinct experts that the step chose; :func:`expected_experts` where none is measured.
        query_tokens: of each request; a verify step writes one recurrent state for each.
        sharded: whether router and latent-down are cut over the ranks; stock reads both in full.
        packed: whether experts are MXFP4.
        dense: whether the feed-forward is that of layer 0.
    """
    s = whole.on_rank(ranks)
    wide = s.heads * (s.kda_dim if kind == "kda" else s.v_dim)
    return (
        Moved("residuals", 2 * 3 * 2 * s.hidden, 2 * (blocks + 4) * 2 * s.hidden),
        *(_kda(s, query_tokens) if kind == "kda" else _mla(s)),
        Moved("o_proj", 2 * s.hidden * wide, 2 * (wide + s.hidden)),
        Moved("o_proj parts", 0, 2 * ranks * s.hidden),
        *(_dense(s) if dense else _moe(whole, ranks, experts, sharded=sharded, packed=packed)),
    )


def floor_us(
    moved: Iterable[Moved], rows: int, bandwidth: float, *, query_tokens: int = 1, cached: float = 0.0
) -> float:
    """Microseconds that the bytes, ``cached`` ones included, take at ``bandwidth`` bytes per second."""
    return (sum(part.at(rows, query_tokens) for part in moved) + cached) / bandwidth * 1e6
