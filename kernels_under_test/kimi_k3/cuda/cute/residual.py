"""Attention residual: prefix update, softmax mix of blocks and prefix, norm. A cluster of 7 CTAs owns a row, 1024 columns each."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.sizes import BLOCKS, HIDDEN, PARTS

CTAS = 7
SOURCES = BLOCKS + 1
EPS = 1e-5


class Residual:
    """prefix += delta, or += bf16(sum of the ranks' partial rows) with ``parts``; x = norm(mix).

    Blocks and weights are constant while a layer runs and are read before the wait; so is the prefix, which only the previous
    residual kernel writes, at least three launches ago.
    """

    def __init__(self, m: int, *, parts: bool, pdl: bool = True) -> None:
        self.m, self.parts, self.pdl = m, parts, pdl

    @cute.jit
    def __call__(
        self, delta: cute.Tensor, peers: cute.Tensor, prefix: cute.Tensor, blocks: cute.Tensor, gamma: cute.Tensor,
        query: cute.Tensor, weight: cute.Tensor, x: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(delta, peers, prefix, blocks, gamma, query, weight, x).launch(
            grid=(CTAS, self.m, 1),
            block=(128, 1, 1),
            cluster=(CTAS, 1, 1),
            stream=stream,
            use_pdl=self.pdl,
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, delta: cute.Tensor, peers: cute.Tensor, prefix: cute.Tensor, blocks: cute.Tensor, gamma: cute.Tensor,
        query: cute.Tensor, weight: cute.Tensor, x: cute.Tensor,
    ) -> None:  # fmt: skip
        M = self.m
        tid, _, _ = cute.arch.thread_idx()
        rank, row, _ = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        smem = SmemAllocator()
        part = smem.allocate_tensor(Float32, cute.make_layout((4, 16), stride=(16, 1)), 16)
        recv = smem.allocate_tensor(Float32, cute.make_layout((CTAS, 16), stride=(16, 1)), 16)
        recv2 = smem.allocate_tensor(Float32, cute.make_layout(8), 16)
        sums = smem.allocate_tensor(Float32, cute.make_layout(16), 16)
        cute.arch.cluster_arrive_relaxed()
        off = Int64(rank * 2048 + tid * 16)
        at = Int64(row) * (2 * HIDDEN) + off
        old = ptx.load16(ptx.addr(prefix.iterator) + at, "plain")
        bb = ptx.addr(blocks.iterator) + Int64(row) * (2 * HIDDEN * BLOCKS) + off
        src = [ptx.load16(bb + s * 2 * HIDDEN, "plain") for s in range(BLOCKS)]
        gm, qr = ptx.load16(ptx.addr(gamma.iterator) + off), ptx.load16(ptx.addr(query.iterator) + off)
        wt = ptx.load16(ptx.addr(weight.iterator) + off)
        ptx.begin(self.pdl)
        dv = ptx.floats(ptx.load16(ptx.addr(delta.iterator) + at, "plain"))
        if cutlass.const_expr(self.parts):
            pb = ptx.addr(peers.iterator) + at
            more = [ptx.load16(pb + Int64(r * M) * (2 * HIDDEN), "plain") for r in range(PARTS - 1)]
            for r in cutlass.range_constexpr(PARTS - 1):
                other = ptx.floats(more[r])
                dv = [a + b for a, b in zip(dv, other)]
            dv = [ptx.rounded(v) for v in dv]
        new = [a + b for a, b in zip(ptx.floats(old), dv)]
        words = [ptx.pack(new[2 * i], new[2 * i + 1]) for i in range(4)]
        ptx.store16(ptx.addr(prefix.iterator) + at, words[0], words[1], words[2], words[3])
        src.append(tuple(words))
        mixer = [a * b for a, b in zip(ptx.floats(gm), ptx.floats(qr))]
        for s in cutlass.range_constexpr(SOURCES):
            vals = ptx.floats(src[s])
            dot, square = Float32(0.0), Float32(0.0)
            for e in cutlass.range_constexpr(8):
                dot = ptx.fma(vals[e], mixer[e], dot)
                square = ptx.fma(vals[e], vals[e], square)
            dot, square = ptx.warp_sum(dot), ptx.warp_sum(square)
            if lane == 0:
                part[warp, s] = dot
                part[warp, 8 + s] = square
        cute.arch.sync_threads()
        cute.arch.cluster_wait()
        if tid < 16 * CTAS:
            i, to = tid % 16, tid // 16
            v = (part[0, i] + part[1, i]) + (part[2, i] + part[3, i])
            ptx.store_remote(ptx.remote(ptx.saddr(recv.iterator) + (rank * 16 + i) * 4, to), v)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        if tid < 16:
            total = recv[0, tid]
            for c in cutlass.range_constexpr(1, CTAS):
                total = total + recv[c, tid]
            sums[tid] = total
        cute.arch.sync_threads()
        logit = []
        for s in cutlass.range_constexpr(SOURCES):
            logit.append(sums[s] * cute.math.rsqrt(sums[8 + s] * (1.0 / HIDDEN) + EPS))
        top = logit[0]
        for s in cutlass.range_constexpr(1, SOURCES):
            top = cutlass.max(top, logit[s])
        share = [cute.math.exp(v - top) for v in logit]
        norm = share[0]
        for s in cutlass.range_constexpr(1, SOURCES):
            norm = norm + share[s]
        inverse = 1.0 / norm
        mix = [Float32(0.0) for _ in range(8)]
        for s in cutlass.range_constexpr(SOURCES):
            vals = ptx.floats(src[s])
            for e in cutlass.range_constexpr(8):
                mix[e] = ptx.fma(share[s] * inverse, vals[e], mix[e])
        square = Float32(0.0)
        for e in cutlass.range_constexpr(8):
            square = ptx.fma(mix[e], mix[e], square)
        square = ptx.warp_sum(square)
        if lane == 0:
            part[warp, 0] = square
        cute.arch.sync_threads()
        if tid < CTAS:
            v = (part[0, 0] + part[1, 0]) + (part[2, 0] + part[3, 0])
            ptx.store_remote(ptx.remote(ptx.saddr(recv2.iterator) + rank * 4, tid), v)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        total = recv2[0]
        for c in cutlass.range_constexpr(1, CTAS):
            total = total + recv2[c]
        scale = cute.math.rsqrt(total * (1.0 / HIDDEN) + EPS)
        wf = ptx.floats(wt)
        out = [mix[e] * scale * wf[e] for e in range(8)]
        words = [ptx.pack(out[2 * i], out[2 * i + 1]) for i in range(4)]
        ptx.store16(ptx.addr(x.iterator) + at, words[0], words[1], words[2], words[3])
