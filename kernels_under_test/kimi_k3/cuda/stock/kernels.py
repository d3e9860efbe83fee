"""Triton kernels of the stock path: everything that is no library product. Device code only."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


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
def conv_update(y, state, cw, slots, z, PITCH: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr, B: tl.constexpr):
    """Depthwise convolution of width 4 over the q, k, v channels, SiLU, and the state's update in place."""
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    slot = tl.load(slots + row).to(tl.int64)
    base = state + slot * 3 * C + c
    s0, s1, s2 = tl.load(base), tl.load(base + C), tl.load(base + 2 * C)
    new = tl.load(y + row * PITCH + c)
    part, channel = c // WIDTH, c % WIDTH
    w = cw + part * 4 * WIDTH + channel
    acc = s0.to(tl.float32) * tl.load(w) + s1.to(tl.float32) * tl.load(w + WIDTH)
    acc += s2.to(tl.float32) * tl.load(w + 2 * WIDTH) + new.to(tl.float32) * tl.load(w + 3 * WIDTH)
    acc = acc * tl.sigmoid(acc)
    tl.store(z + row * C + c, acc.to(tl.bfloat16))
    if slot > 0:
        tl.store(base, s1)
        tl.store(base + C, s2)
        tl.store(base + 2 * C, new)


@triton.jit
def delta_rule(
    z,
    raw,
    y,
    a_log,
    dt,
    slots,
    state,
    o,
    PITCH: tl.constexpr,
    B_AT: tl.constexpr,
    H: tl.constexpr,
    K: tl.constexpr,
    BV: tl.constexpr,
):
    """Gate, L2 norms and one recurrent step; a program owns BV value rows of a head."""
    vb, head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    k = tl.arange(0, K)
    v = vb * BV + tl.arange(0, BV)
    slot = tl.load(slots + row).to(tl.int64)
    zb = z + row * 3 * H * K + head * K
    if slot > 0:
        at = state + (slot * H + head) * K * K + v[:, None] * K + k[None, :]
        s = tl.load(at)
        q = tl.load(zb + k).to(tl.float32)
        kk = tl.load(zb + H * K + k).to(tl.float32)
        vv = tl.load(zb + 2 * H * K + v).to(tl.float32)
        q = q * tl.rsqrt(tl.sum(q * q, axis=0) + 1e-6) * (K**-0.5)
        kk = kk * tl.rsqrt(tl.sum(kk * kk, axis=0) + 1e-6)
        r = tl.load(raw + row * H * K + head * K + k).to(tl.float32) + tl.load(dt + head * K + k)
        s = s * tl.exp(-5.0 * tl.sigmoid(tl.exp(tl.load(a_log + head)) * r))[None, :]
        beta = tl.sigmoid(tl.load(y + row * PITCH + B_AT + head).to(tl.float32))
        e = (vv - tl.sum(s * kk[None, :], axis=1)) * beta
        s = s + e[:, None] * kk[None, :]
        tl.store(at, s)
        tl.store(o + (row * H + head) * K + v, tl.sum(s * q[None, :], axis=1).to(tl.bfloat16))
    else:
        tl.store(o + (row * H + head) * K + v, tl.zeros([BV], tl.bfloat16))


@triton.jit
def copy(source, target, PITCH_IN: tl.constexpr, PITCH_OUT: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """Rows of N bf16."""
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    value = tl.load(source + row * PITCH_IN + c, mask=c < N)
    tl.store(target + row * PITCH_OUT + c, value, mask=c < N)


@triton.jit
def gated_norm(o, y, weight, PITCH: tl.constexpr, G_AT: tl.constexpr, H: tl.constexpr, K: tl.constexpr):
    """RMS norm over a head, times sigmoid of the gate, in place."""
    head, row = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, K)
    at = o + (row * H + head) * K + k
    value = tl.load(at).to(tl.float32)
    gate = tl.load(y + row * PITCH + G_AT + head * K + k).to(tl.float32)
    value = value * tl.rsqrt(tl.sum(value * value, axis=0) / K + 1e-5) * tl.load(weight + k) * tl.sigmoid(gate)
    tl.store(at, value.to(tl.bfloat16))


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
