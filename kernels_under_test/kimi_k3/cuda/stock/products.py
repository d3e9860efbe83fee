"""Dense products of few rows, where a tile beats the library. Device code only."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def skinny(
    x,
    w,
    y,
    shard,
    N,
    PITCH_X,
    PITCH_Y,
    K: tl.constexpr,
    M: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ADD: tl.constexpr,
):
    """y[M, N] = x[M, K] W[N, K]^T for one or two rows on the ordinary cores. ADD: plus shard[M, N] after the rounding."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    first = tl.zeros([BN, BK], tl.float32)
    second = tl.zeros([BN, BK], tl.float32)
    for c in tl.static_range((K + BK - 1) // BK):
        ok = c * BK + k < K
        v = tl.load(
            w + n[:, None] * K + c * BK + k[None, :], mask=ok[None, :], other=0.0, eviction_policy="evict_first"
        ).to(tl.float32)
        first += v * tl.load(x + c * BK + k, mask=ok, other=0.0)[None, :].to(tl.float32)
        if M == 2:
            second += v * tl.load(x + PITCH_X + c * BK + k, mask=ok, other=0.0)[None, :].to(tl.float32)
    for m in tl.static_range(M):
        value = tl.sum(first if m == 0 else second, axis=1).to(y.dtype.element_ty)
        if ADD:
            value = (value.to(tl.float32) + tl.load(shard + m * N + n).to(tl.float32)).to(y.dtype.element_ty)
        tl.store(y + m * PITCH_Y + n, value)


@triton.jit
def narrow(
    x,
    w,
    y,
    shard,
    M,
    N,
    PITCH_X,
    PITCH_Y,
    K: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    G: tl.constexpr,
    ADD: tl.constexpr,
):
    """The same for up to 64 rows on the tensor cores, where N alone gives few programs: G groups of warps share the columns."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.arange(0, BM)
    g = tl.arange(0, G)
    k = tl.arange(0, BK)
    acc = tl.zeros([G, BN, BM], tl.float32)
    for c in range(K // (G * BK)):
        at = (c * G + g[:, None, None]) * BK
        a = tl.load(w + n[None, :, None] * K + at + k[None, None, :])
        b = tl.load(x + m[None, None, :] * PITCH_X + at + k[None, :, None], mask=m[None, None, :] < M, other=0.0)
        acc = tl.dot(a, b, acc)
    value = tl.sum(acc, axis=0).to(y.dtype.element_ty)
    here = m[None, :] < M
    if ADD:
        add = tl.load(shard + m[None, :] * N + n[:, None], mask=here, other=0.0)
        value = (value.to(tl.float32) + add.to(tl.float32)).to(y.dtype.element_ty)
    tl.store(y + m[None, :] * PITCH_Y + n[:, None], value, mask=here)
