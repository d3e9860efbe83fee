"""Routing, the table of units, the weight-only grouped product and the activation. Device code only."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def route(logits, bias, ids, weights, E: tl.constexpr, W: tl.constexpr, TOP: tl.constexpr):
    """Top experts by sigmoid plus bias; ties to the lower id, NaN last; weights renormalised without the bias."""
    row = tl.program_id(0)
    e = tl.arange(0, W)
    score = tl.sigmoid(tl.load(logits + row * E + e, mask=e < E, other=float("-inf")))
    choice = score + tl.load(bias + e, mask=e < E, other=0.0)
    bits = choice.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = tl.where((choice == choice) & (e < E), order, -2147483648)
    key = (order.to(tl.int64) << 32) | (4095 - e).to(tl.int64)
    slot = tl.arange(0, TOP)
    picked = tl.zeros([TOP], tl.int32)
    for i in tl.static_range(TOP):
        best = tl.max(key, axis=0)
        picked = tl.where(slot == i, (4095 - (best & 0xFFFFFFFF)).to(tl.int32), picked)
        key = tl.where(key == best, -9223372036854775807, key)
    chosen = tl.sigmoid(tl.load(logits + row * E + picked))
    share = chosen / (tl.sum(chosen, axis=0) + 1e-20)
    tl.store(ids + row * TOP + slot, picked)
    tl.store(weights + row * TOP + slot, share.to(tl.bfloat16).to(tl.float32))


@triton.jit
def permute(
    ids,
    count,
    expert,
    token,
    pair,
    PAIRS: tl.constexpr,
    W: tl.constexpr,
    UNIT: tl.constexpr,
    TOP: tl.constexpr,
    B: tl.constexpr,
):
    """Units of an expert and up to UNIT of its tokens, for all pairs; a program serves B experts."""
    e = tl.program_id(0) * B + tl.arange(0, B)
    p = tl.arange(0, PAIRS)
    mine = tl.load(ids + p)
    held = tl.histogram(mine, W)
    units = (held + UNIT - 1) // UNIT
    start = tl.cumsum(units, axis=0) - units
    tl.store(count, tl.sum(units, axis=0))
    first, tokens = tl.gather(start, e, axis=0), tl.gather(held, e, axis=0)
    hit = mine[:, None] == e[None, :]
    rank = tl.cumsum(hit.to(tl.int32), axis=0) - 1
    unit = first[None, :] + rank // UNIT
    at = unit * UNIT + rank % UNIT
    zero = tl.zeros([PAIRS, B], tl.int32)
    tl.store(expert + unit, zero + e[None, :], mask=hit)
    tl.store(token + at, zero + p[:, None] // TOP, mask=hit)
    tl.store(pair + at, zero + p[:, None], mask=hit)
    slot = (tokens[:, None] - 1) // UNIT * UNIT + tl.arange(0, UNIT)[None, :]
    spare = (tokens[:, None] > 0) & (slot >= tokens[:, None])
    tl.store(token + first[:, None] * UNIT + slot, tl.full([B, UNIT], -1, tl.int32), mask=spare)


@triton.jit
def decode(words):
    """Packed words to one bf16 value of each of eight blocks, worth value x 2^-126. Elementwise, so any layout will do."""
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 p, q, a, b;
        prmt.b32 p, $8, $9, 0x5410;
        prmt.b32 q, $8, $9, 0x7632;
        and.b32 $0, p, 0x81C081C0;
        shl.b32 a, p, 3;
        and.b32 $1, a, 0x81C081C0;
        shl.b32 a, p, 6;
        shl.b32 b, p, 1;
        and.b32 b, b, 0x80008000;
        lop3.b32 $2, a, 0x01C001C0, b, 0xEA;
        shr.b32 a, p, 3;
        shl.b32 b, p, 2;
        and.b32 b, b, 0x80008000;
        lop3.b32 $3, a, 0x01C001C0, b, 0xEA;
        and.b32 $4, q, 0x81C081C0;
        shl.b32 a, q, 3;
        and.b32 $5, a, 0x81C081C0;
        shl.b32 a, q, 6;
        shl.b32 b, q, 1;
        and.b32 b, b, 0x80008000;
        lop3.b32 $6, a, 0x01C001C0, b, 0xEA;
        shr.b32 a, q, 3;
        shl.b32 b, q, 2;
        and.b32 b, b, 0x80008000;
        lop3.b32 $7, a, 0x01C001C0, b, 0xEA;
        }
        """,
        "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r,r",
        [words],
        dtype=(
            tl.bfloat16,
            tl.bfloat16,
            tl.bfloat16,
            tl.bfloat16,
            tl.bfloat16,
            tl.bfloat16,
            tl.bfloat16,
            tl.bfloat16,
        ),
        is_pure=True,
        pack=2,
    )


@triton.jit
def lift(x):
    """x times 2^100: with the decoded weights and the scales (26 added to their bytes) this makes 2^0."""
    return tl.inline_asm_elementwise(
        "{ .reg .b32 c; mov.b32 c, 0x71807180; mul.rn.bf16x2 $0, $1, c; }",
        "=r,r",
        [x],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=2,
    )


@triton.jit
def experts(
    x,
    codes,
    scales,
    count,
    expert,
    token,
    pair,
    y,
    N: tl.constexpr,
    K: tl.constexpr,
    BN: tl.constexpr,
    KW: tl.constexpr,
    UNIT: tl.constexpr,
    OWN: tl.constexpr,
):
    """Weight-only grouped product: y[pair, N] = x[row] W[expert]^T with W in MXFP4. OWN: input rows are pairs, not tokens.

    Word i of a chunk holds columns j KW + i, j = 0..7; the scale of 32 columns is applied to the sum of their products.
    """
    unit = tl.program_id(1)
    if unit < tl.load(count):
        e = tl.load(expert + unit).to(tl.int64)
        n = tl.program_id(0) * BN + tl.arange(0, BN)
        u = tl.arange(0, UNIT)
        t = tl.load(token + unit * UNIT + u)
        target = tl.load(pair + unit * UNIT + u, mask=t >= 0, other=0)
        row = tl.where(t >= 0, target if OWN else t, 0)
        kw = tl.arange(0, KW)
        wp = codes + e * (N * K // 8) + n[:, None] * (K // 8) + kw[None, :]
        sp = scales + e * (N * K // 128) + n * (K // 128)
        xp = x + row[None, :] * K + kw[:, None]
        acc = tl.zeros([BN, UNIT], tl.float32)
        for c in range(K // (8 * KW)):
            w = decode(tl.load(wp + c * KW))
            for h in tl.static_range(KW // 16):
                s = tl.load(sp + c * (KW // 16) + h)
                for b in tl.static_range(4):
                    f = (((s >> (8 * b)) & 255) + 26) << 23
                    if KW == 32:
                        part = tl.dot(w[h * 4 + b], lift(tl.load(xp + (c * 8 + h * 4 + b) * KW)))
                    else:
                        part = tl.dot(w[2 * b], lift(tl.load(xp + (c * 8 + 2 * b) * KW)))
                        part = tl.dot(w[2 * b + 1], lift(tl.load(xp + (c * 8 + 2 * b + 1) * KW)), part)
                    acc += part * f.to(tl.float32, bitcast=True)[:, None]
        tl.store(y + target[None, :] * N + n[:, None], acc.to(tl.bfloat16), mask=t[None, :] >= 0)


@triton.jit
def situ(value, out, N: tl.constexpr, B: tl.constexpr):
    """4 tanh(g / 4) sigmoid(g) 25 tanh(u / 25) of rows whose first half is the gate."""
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    m = c < N
    g = tl.load(value + row * 2 * N + c, mask=m).to(tl.float32)
    u = tl.load(value + row * 2 * N + N + c, mask=m).to(tl.float32)
    h = 4.0 * libdevice.tanh(g * 0.25) * tl.sigmoid(g) * (25.0 * libdevice.tanh(u * 0.04))
    tl.store(out + row * N + c, h.to(tl.bfloat16), mask=m)
