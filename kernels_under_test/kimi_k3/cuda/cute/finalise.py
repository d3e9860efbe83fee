"""First half of the tail: the sixteen weighted expert rows, the ranks' sum, the latent norm; and the shared expert's own columns."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int64

from kernels_under_test.kimi_k3.cuda.cute import ptx, rows
from kernels_under_test.kimi_k3.cuda.sizes import HIDDEN, LATENT, OUT_SHARD, PARTS, TOP_K

EPS = 1e-5


class Finalise:
    """A cluster of 7 CTAs owns a row: 512 latent columns and 128 columns of the shared expert each."""

    def __init__(self, m: int, *, pdl: bool = True, first: bool = False) -> None:
        self.m, self.pdl, self.first = m, pdl, first

    @cute.jit
    def __call__(
        self, chosen: cute.Tensor, weights: cute.Tensor, peers: cute.Tensor, norm: cute.Tensor, latent: cute.Tensor,
        shared: cute.Tensor, shared_peers: cute.Tensor, shard: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(chosen, weights, peers, norm, latent, shared, shared_peers, shard).launch(
            stream=stream, **rows.launch(self.m, self.pdl)
        )

    @cute.kernel
    def kernel(
        self, chosen: cute.Tensor, weights: cute.Tensor, peers: cute.Tensor, norm: cute.Tensor, latent: cute.Tensor,
        shared: cute.Tensor, shared_peers: cute.Tensor, shard: cute.Tensor,
    ) -> None:  # fmt: skip
        M = self.m
        tid, _, _ = cute.arch.thread_idx()
        rank, row, _ = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        part, received = rows.sums(1)
        off = Int64(rank * 1024 + tid * 8)
        wv = ptx.load8(ptx.addr(norm.iterator) + off)
        ptx.begin(self.pdl, self.first)
        rb = ptx.addr(chosen.iterator) + Int64(row * TOP_K) * (2 * LATENT) + off
        mine = [ptx.load8_plain(rb + s * 2 * LATENT) for s in range(TOP_K)]
        pb = ptx.addr(peers.iterator) + Int64(row) * (2 * LATENT) + off
        others = [ptx.load8_plain(pb + Int64(r * M) * (2 * LATENT)) for r in range(PARTS - 1)]
        column = rank * 128 + tid
        total = shared[row, column].to(Float32)
        for r in cutlass.range_constexpr(PARTS - 1):
            total = total + shared_peers[r * M + row, column].to(Float32)
        shard[row, column] = total.to(BFloat16)
        acc = [Float32(0.0) for _ in range(4)]
        for s in cutlass.range_constexpr(TOP_K):
            share = weights[row, s]
            vals = ptx.floats(mine[s])
            for e in cutlass.range_constexpr(4):
                acc[e] = ptx.fma(share, vals[e], acc[e])
        acc = [ptx.rounded(v) for v in acc]
        for r in cutlass.range_constexpr(PARTS - 1):
            vals = ptx.floats(others[r])
            for e in cutlass.range_constexpr(4):
                acc[e] = acc[e] + vals[e]
        acc = [ptx.rounded(v) for v in acc]
        square = Float32(0.0)
        for e in cutlass.range_constexpr(4):
            square = square + ptx.rounded(acc[e] * acc[e])
        square = ptx.warp_sum(square)
        if lane == 0:
            part[warp, 0] = square
        rows.exchange(part, received, 1, tid, rank)
        whole = rows.total(received, 0)
        scale = cute.math.rsqrt(whole * (1.0 / LATENT) + EPS)
        wf = ptx.floats(wv)
        out = [acc[e] * scale * wf[e] for e in range(4)]
        ptx.store8(
            ptx.addr(latent.iterator) + Int64(row) * (2 * LATENT) + off,
            ptx.pack(out[0], out[1]),
            ptx.pack(out[2], out[3]),
        )


assert HIDDEN == PARTS * OUT_SHARD and LATENT == rows.CTAS * 512 and OUT_SHARD == rows.CTAS * 128
