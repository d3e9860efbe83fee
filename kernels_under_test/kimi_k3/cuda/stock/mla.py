"""An MLA layer's own kernels: norms, products by head, insertion, attention over the paged cache, merge, gate. Device code only."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def latent_norms(
    y, q_weight, kv_weight, q, kv, PITCH: tl.constexpr, Q: tl.constexpr, WQ: tl.constexpr, KV: tl.constexpr
):
    """RMS norms of the query latent (columns 0 .. Q) and of the key/value latent (the KV behind it); one program each."""
    row = tl.program_id(0)
    c = tl.arange(0, WQ)
    if tl.program_id(1) == 0:
        m = c < Q
        value = tl.load(y + row * PITCH + c, mask=m, other=0.0).to(tl.float32)
        value = value * tl.rsqrt(tl.sum(value * value, axis=0) / Q + 1e-5)
        value = value * tl.load(q_weight + c, mask=m, other=0.0).to(tl.float32)
        tl.store(q + row * Q + c, value.to(tl.bfloat16), mask=m)
    else:
        k = tl.arange(0, KV)
        latent = tl.load(y + row * PITCH + Q + k).to(tl.float32)
        latent = latent * tl.rsqrt(tl.sum(latent * latent, axis=0) / KV + 1e-5)
        tl.store(kv + row * KV + k, (latent * tl.load(kv_weight + k).to(tl.float32)).to(tl.bfloat16))


@triton.jit
def heads_few(
    x, w, y, XM, XH, WH, WN, WK, YM, YH, K: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y[m, h, n] = sum over k of x[m, h, k] w[h, n, k] for one or two rows on the ordinary cores; strides as given."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    h = tl.program_id(1)
    k = tl.arange(0, BK)
    first = tl.zeros([BN, BK], tl.float32)
    second = tl.zeros([BN, BK], tl.float32)
    for c in tl.static_range(K // BK):
        v = tl.load(w + h * WH + n[:, None] * WN + (c * BK + k)[None, :] * WK).to(tl.float32)
        first += v * tl.load(x + h * XH + c * BK + k)[None, :].to(tl.float32)
        if M == 2:
            second += v * tl.load(x + XM + h * XH + c * BK + k)[None, :].to(tl.float32)
    tl.store(y + h * YH + n, tl.sum(first, axis=1).to(tl.bfloat16))
    if M == 2:
        tl.store(y + YM + h * YH + n, tl.sum(second, axis=1).to(tl.bfloat16))


@triton.jit
def heads(
    x, w, y, M, XM, XH, WH, WN, WK, YM, YH, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The same for up to 64 rows on the tensor cores."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    h = tl.program_id(1)
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    acc = tl.zeros([BN, BM], tl.float32)
    for c in range(K // BK):
        a = tl.load(w + h * WH + n[:, None] * WN + (c * BK + k)[None, :] * WK)
        b = tl.load(x + m[None, :] * XM + h * XH + (c * BK + k)[:, None], mask=m[None, :] < M, other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(y + m[None, :] * YM + h * YH + n[:, None], acc.to(tl.bfloat16), mask=m[None, :] < M)


@triton.jit
def insert(
    latent, up, kv, y, where, query, cache, LM, LH, PITCH: tl.constexpr, KEY_AT: tl.constexpr, H: tl.constexpr,
    IN: tl.constexpr, NOPE: tl.constexpr, KV: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Programs 0 .. H - 1 of a row put a head's query row together; program H writes the row of the cache."""
    row, h = tl.program_id(0), tl.program_id(1)
    c, r = tl.arange(0, KV), tl.arange(0, R)
    if h < H:
        to = query + (row * H + h) * (KV + R)
        tl.store(to + c, tl.load(latent + row * LM + h * LH + c))
        tl.store(to + KV + r, tl.load(up + (row * H + h) * IN + NOPE + r))
    else:
        slot = tl.load(where + row)
        if slot >= 0:
            at = cache + slot * (KV + R)
            tl.store(at + c, tl.load(kv + row * KV + c))
            tl.store(at + KV + r, tl.load(y + row * PITCH + KEY_AT + r))


@triton.jit
def attention(
    query, cache, table, lens, part, lse, TABLE, SPLITS, SCALE, H: tl.constexpr, BH: tl.constexpr, KV: tl.constexpr,
    R: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """All heads of a row over one of SPLITS equal parts of its blocks of BN tokens; log2 sums, minus infinity for an empty part."""
    row, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(lens + row)
    count = tl.cdiv(length, BN)
    share = tl.cdiv(count, SPLITS)
    h, d, r, n = tl.arange(0, BH), tl.arange(0, KV), tl.arange(0, R), tl.arange(0, BN)
    base = query + (row * H + h[:, None]) * (KV + R)
    q = tl.load(base + d[None, :], mask=h[:, None] < H, other=0.0)
    qr = tl.load(base + KV + r[None, :], mask=h[:, None] < H, other=0.0)
    top = tl.full([BH], float("-inf"), tl.float32)
    mass = tl.zeros([BH], tl.float32)
    acc = tl.zeros([BH, KV], tl.float32)
    for b in range(split * share, tl.minimum((split + 1) * share, count)):
        page = tl.load(table + row * TABLE + b * BN // PAGE).to(tl.int64)
        at = cache + (page * PAGE + b * BN % PAGE + n[:, None]) * (KV + R)
        live = b * BN + n < length
        k = tl.load(at + d[None, :], mask=live[:, None], other=0.0)
        kr = tl.load(at + KV + r[None, :], mask=live[:, None], other=0.0)
        score = tl.dot(qr, tl.trans(kr), tl.dot(q, tl.trans(k))) * SCALE
        score = tl.where(live[None, :], score, float("-inf"))
        best = tl.maximum(top, tl.max(score, axis=1))
        fade = tl.exp2(top - best)
        p = tl.exp2(score - best[:, None])
        mass = mass * fade + tl.sum(p, axis=1)
        acc = tl.dot(p.to(tl.bfloat16), k, acc * fade[:, None])
        top = best
    place = (row * SPLITS + split) * H + h
    empty = mass == 0.0
    acc = acc / tl.where(empty, 1.0, mass)[:, None]
    tl.store(part + place[:, None] * KV + d[None, :], acc, mask=h[:, None] < H)
    tl.store(lse + place, tl.where(empty, float("-inf"), top + tl.log2(mass)), mask=h < H)


@triton.jit
def merge(part, lse, out, SPLITS, H: tl.constexpr, KV: tl.constexpr, W: tl.constexpr, B: tl.constexpr):
    """The parts of a row and head by their log2 sums; a program owns B columns; W = power of two not below SPLITS."""
    row, h = tl.program_id(0), tl.program_id(1)
    s, c = tl.arange(0, W), tl.program_id(2) * B + tl.arange(0, B)
    place = (row * SPLITS + s) * H + h
    log = tl.load(lse + place, mask=s < SPLITS, other=float("-inf"))
    top = tl.max(log, axis=0)
    share = tl.where(log > float("-inf"), tl.exp2(log - top), 0.0)
    value = tl.load(part + place[:, None] * KV + c[None, :], mask=share[:, None] > 0.0, other=0.0)
    total = tl.sum(share, axis=0)
    value = tl.sum(value * share[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + (row * H + h) * KV + c, value.to(tl.bfloat16))


@triton.jit
def gate(value, y, out, lens, PITCH: tl.constexpr, AT: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """Values times sigmoid of the gate; zero for a row without tokens."""
    row = tl.program_id(0)
    c = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(value + row * N + c, mask=c < N).to(tl.float32)
    g = tl.load(y + row * PITCH + AT + c, mask=c < N).to(tl.float32)
    v = tl.where(tl.load(lens + row) > 0, v * tl.sigmoid(g), 0.0)
    tl.store(out + row * N + c, v.to(tl.bfloat16), mask=c < N)
