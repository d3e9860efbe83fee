"""What the build compiles for an MLA layer's own kernels: objects of the variants, and their tensors."""

from __future__ import annotations

from typing import Any

from kernels_under_test.kimi_k3.cuda.cute.mla_tactics import PRODUCTS
from kernels_under_test.kimi_k3.cuda.mla_sizes import (
    CACHED,
    KV_RANK,
    MLA_PROJECTION,
    NOPE,
    Q_RANK,
    QUERY,
    VALUE,
)
from kernels_under_test.kimi_k3.cuda.sizes import HEADS, WIDTH


def kernel_object(kernel: str, rows: int, tactic: dict[str, Any]) -> Any:
    """The CuTe DSL kernel of a variant, not yet compiled."""
    from kernels_under_test.kimi_k3.cuda.cute import (
        mla_absorb,
        mla_core,
        mla_latents,
        mla_merge,
        mla_value,
        ring,
        skinny,
    )

    args = dict(tactic)
    if kernel == "mla_query":
        args.pop("design")
        product = skinny.Skinny(rows, QUERY, Q_RANK, **args)
        return mla_latents.LatentsBesideSkinny(mla_latents.Latents(rows), product)
    if kernel in PRODUCTS:
        n, k, epilogue = PRODUCTS[kernel]
        kind = ring.Ring if args.pop("design") == "ring" else skinny.Skinny
        return kind(rows, n, k, epilogue=epilogue, **args)
    simple = {
        "mla_latents": mla_latents.Latents,
        "mla_absorb": mla_absorb.Absorb if rows <= 2 else mla_absorb.AbsorbTiles,
        "mla_core": mla_core.MlaCore,
        "mla_value": mla_value.MlaValue,
        "mla_merge": mla_merge.Merge,
        "mla_values": mla_merge.Values,
    }
    return simple[kernel](rows, **args)


def signature(kernel: str, m: int) -> list[tuple[str, tuple[int | None, ...]]]:
    """Dtype and shape of every tensor; None is a size known only at run time."""
    bf, f32, i32, i64 = "BFloat16", "Float32", "Int32", "Int64"
    y, query = (bf, (m, MLA_PROJECTION)), (bf, (m, QUERY))
    rows, weight = (bf, (m, HEADS, CACHED)), (bf, (HEADS, NOPE + VALUE, KV_RANK))
    cache, lens = (bf, (None, CACHED)), (i32, (m,))
    part, lse = (f32, (None, HEADS, KV_RANK)), (f32, (None, HEADS))
    latents = [y, (bf, (Q_RANK,)), (bf, (KV_RANK,)), (i64, (m,)), cache, (bf, (m, Q_RANK))]
    if kernel in PRODUCTS:
        n, k, _ = PRODUCTS[kernel]
        return [(bf, (m, k)), (bf, (n, k)), *[(bf, (m, n))] * 3]
    table: dict[str, list[tuple[str, tuple[int | None, ...]]]] = {
        "mla_query": [y, (bf, (QUERY, Q_RANK)), *latents[1:], query],
        "mla_latents": latents,
        "mla_absorb": [query, weight, rows],
        "mla_core": [rows, cache, (i32, (m, None)), lens, part, lse],
        "mla_merge": [part, lse, lens, (bf, (HEADS, m, KV_RANK))],
        "mla_values": [(bf, (HEADS, m, KV_RANK)), weight, (bf, (m, WIDTH)), y, lens],
        "mla_value": [part, lse, lens, weight, y, (bf, (None, KV_RANK)), (f32, (None, HEADS)), (bf, (m, WIDTH))],
    }
    return table[kernel]
