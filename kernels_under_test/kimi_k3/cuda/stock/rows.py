"""Whole rows: attention residual, sums over ranks, the two ends of the tail. Device code only."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def residual(
    delta, prefix, blocks, gamma, query, weight, x, D: tl.constexpr, NB: tl.constexpr, S: tl.constexpr, W: tl.constexpr
):
    """prefix += delta; softmax mix of NB blocks and the prefix; norm. One program a row; S = power of two above NB."""
    row = tl.program_id(0)
    c = tl.arange(0, W)
    m = c < D
    new = tl.load(prefix + row * D + c, mask=m, other=0.0).to(tl.float32)
    new += tl.load(delta + row * D + c, mask=m, other=0.0).to(tl.float32)
    new = new.to(tl.bfloat16)
    tl.store(prefix + row * D + c, new, mask=m)
    mixer = tl.load(gamma + c, mask=m, other=0.0).to(tl.float32) * tl.load(query + c, mask=m, other=0.0).to(tl.float32)
    s = tl.arange(0, S)
    source = tl.load(
        blocks + row * NB * D + s[:, None] * D + c[None, :], mask=(s[:, None] < NB) & m[None, :], other=0.0
    )
    source = tl.where(s[:, None] == NB, new[None, :], source)
    wide = source.to(tl.float32)
    dot = tl.sum(wide * mixer[None, :], axis=1)
    square = tl.sum(wide * wide, axis=1)
    logit = dot * tl.rsqrt(square / D + 1e-5)
    logit = tl.where(s <= NB, logit, float("-inf"))
    share = tl.exp(logit - tl.max(logit, axis=0))
    share = share / tl.sum(share, axis=0)
    mix = tl.sum(source.to(tl.float32) * share[:, None], axis=0)
    scale = tl.rsqrt(tl.sum(mix * mix, axis=0) / D + 1e-5)
    tl.store(
        x + row * D + c, (mix * scale * tl.load(weight + c, mask=m, other=0.0).to(tl.float32)).to(tl.bfloat16), mask=m
    )


@triton.jit
def rank_sum(mine, peers, out, M, D: tl.constexpr, PEERS: tl.constexpr, B: tl.constexpr):
    """Sum of this rank's row and the peers', in fp32, in rank order; rounded once."""
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.load(mine + row * D + c).to(tl.float32)
    for r in tl.static_range(PEERS):
        total += tl.load(peers + (r * M + row) * D + c).to(tl.float32)
    tl.store(out + row * D + c, total.to(tl.bfloat16))


@triton.jit
def finalise(
    rows,
    weights,
    peers,
    norm,
    latent,
    shared,
    shared_peers,
    shard,
    M,
    L: tl.constexpr,
    W: tl.constexpr,
    D: tl.constexpr,
    OUT: tl.constexpr,
    TOP: tl.constexpr,
    PEERS: tl.constexpr,
):
    """Weighted sum of a token's expert rows, the ranks' sum, the latent norm; the ranks' sum of the shared expert's columns."""
    row = tl.program_id(0)
    c = tl.arange(0, W)
    m = c < L
    acc = tl.zeros([W], tl.float32)
    for s in tl.static_range(TOP):
        share = tl.load(weights + row * TOP + s)
        acc += share * tl.load(rows + (row * TOP + s) * L + c, mask=m, other=0.0).to(tl.float32)
    acc = acc.to(tl.bfloat16).to(tl.float32)
    for r in tl.static_range(PEERS):
        acc += tl.load(peers + (r * M + row) * L + c, mask=m, other=0.0).to(tl.float32)
    acc = acc.to(tl.bfloat16).to(tl.float32)
    square = tl.sum((acc * acc).to(tl.bfloat16).to(tl.float32), axis=0)
    acc = acc * tl.rsqrt(square / L + 1e-5) * tl.load(norm + c, mask=m, other=0.0).to(tl.float32)
    tl.store(latent + row * L + c, acc.to(tl.bfloat16), mask=m)
    d = tl.arange(0, 1024)
    k = d < OUT
    total = tl.load(shared + row * D + d, mask=k, other=0.0).to(tl.float32)
    for r in tl.static_range(PEERS):
        total += tl.load(shared_peers + (r * M + row) * OUT + d, mask=k, other=0.0).to(tl.float32)
    tl.store(shard + row * OUT + d, total.to(tl.bfloat16), mask=k)


@triton.jit
def tail_copy(box, delta, spare, N: tl.constexpr, B: tl.constexpr):
    """The gathered row becomes the layer's output, and the mailbox that the next but one layer uses is armed (written) again."""
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    tl.store(delta + row * N + c, tl.load(box + row * N + c))
    tl.store(spare + row * N + c, tl.zeros([B], tl.bfloat16))
