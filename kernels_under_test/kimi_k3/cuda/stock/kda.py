"""The four kernels of an unfused KDA core. Device code only."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False

from __future__ import annotations

import triton
import triton.language as tl


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
