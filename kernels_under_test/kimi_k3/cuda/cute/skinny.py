"""Products of one or two rows: y[M, N] = x[M, K] W[N, K]^T in fp32 on the ordinary cores.

One CTA an SM owns a contiguous range of weight rows. A row is cut into P pieces; each warp owns one piece of every Q-th row, keeps
its part of x in registers and streams weights through a private ring of S bulk copies, which it fills before it waits for the
kernels in front of it.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.cute.epilogue import Epilogue


class Skinny:
    """N is even; K is a multiple of 256 P. ``ahead`` further pieces of each warp go into L2 before the wait.

    ``pitch``: columns from one row of x to the next. ``norm``: x is normed first (RMS, weight in y2), by each warp for itself, so that
    a warp must own whole rows (P = 1).
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        *,
        p: int,
        q: int,
        s: int,
        ahead: int = 0,
        epilogue: str = "store",
        grid: int = 132,
        pdl: bool = True,
        pitch: int = 0,
        norm: bool = False,
        first: bool = False,
    ) -> None:
        if k % (256 * p) or n % 2:
            raise ValueError(f"expected K a multiple of {256 * p} and an even N, found K = {k}, N = {n}")
        if norm and p != 1:
            raise ValueError(f"expected whole rows a warp (P = 1) where x is normed, found P = {p}")
        self.pitch, self.norm, self.first = pitch or k, norm, first
        self.m, self.n, self.k, self.p, self.q, self.s, self.grid, self.pdl = m, n, k, p, q, s, grid, pdl
        self.vectors, self.ahead = k // p // 256, ahead
        self.epilogue = Epilogue(epilogue)

    @cute.jit
    def __call__(
        self, x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, y2: cute.Tensor, y3: cute.Tensor, stream: Any
    ) -> None:
        self.kernel(x, w, y, y2, y3).launch(
            grid=(self.grid, 1, 1),
            block=(self.threads, 1, 1),
            stream=stream,
            use_pdl=bool(self.pdl),
            min_blocks_per_mp=1,
        )

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * self.p * self.q

    @cute.kernel
    def kernel(self, x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, y2: cute.Tensor, y3: cute.Tensor) -> None:
        bid, _, _ = cute.arch.block_idx()
        self.work(bid, x, w, y, y2, y3)

    @cute.jit
    def work(self, bid: Any, x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, y2: cute.Tensor, y3: cute.Tensor) -> None:
        """CTA ``bid`` of ``grid``."""
        M, K, G, P, Q, S, V = self.m, self.k, self.grid, self.p, self.q, self.s, self.vectors
        warps, piece_bytes = P * Q, K // P * 2
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        piece, q = warp % P, warp // P
        smem = SmemAllocator()
        ring = smem.allocate_array(Uint8, warps * S * piece_bytes, byte_alignment=128)
        bars = smem.allocate_array(Int64, warps * S, byte_alignment=8)
        most = 2 * (-(-self.n // 2 // G)) + 2
        part = smem.allocate_tensor(Float32, cute.make_layout((P, most * M), stride=(most * M, 1)), 16)
        r0 = bid * (self.n // 2) // G * 2
        r1 = (bid + 1) * (self.n // 2) // G * 2
        count = (r1 - r0 - q + Q - 1) // Q
        my, mb = ptx.saddr(ring) + warp * (S * piece_bytes), ptx.saddr(bars) + warp * (S * 8)
        src = ptx.addr(w.iterator) + Int64(r0 + q) * (2 * K) + Int64(piece * piece_bytes)
        if tid < warps * S:
            cute.arch.mbarrier_init(bars + tid, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        if lane == 0:
            for s in cutlass.range_constexpr(S):
                if s < count:
                    ptx.expect(mb + 8 * s, piece_bytes)
                    ptx.bulk_copy(my + s * piece_bytes, src + Int64(s * Q) * (2 * K), piece_bytes, mb + 8 * s)
            for s in cutlass.range_constexpr(S, S + self.ahead):
                if s < count:
                    ptx.prefetch(src + Int64(s * Q) * (2 * K), piece_bytes)
        if cutlass.const_expr(self.norm):
            nb = ptx.addr(y2.iterator) + Int64(lane * 16)
            weight = [ptx.floats(ptx.load16(nb + 512 * v)) for v in range(V)]
        ptx.begin(self.pdl, self.first)
        xb = ptx.addr(x.iterator) + Int64(piece * piece_bytes + lane * 16)
        xr = [[ptx.load16(xb + m * 2 * self.pitch + 512 * v, "plain") for v in range(V)] for m in range(M)]
        if cutlass.const_expr(self.norm):
            xr = [self.normed(row, weight) for row in xr]
        st, ph = Int32(0), Int32(0)
        for i in cutlass.range(count, unroll=1):
            ptx.wait(mb + 8 * st, ph)
            acc = [Float32(0.0) for _ in range(M)]
            a = my + st * piece_bytes + lane * 16
            ws = [ptx.shared16(a, 512 * v) for v in range(V)]
            for v in cutlass.range_constexpr(V):
                for j in cutlass.range_constexpr(4):
                    lo, hi = ptx.low(ws[v][j]), ptx.high(ws[v][j])
                    for m in cutlass.range_constexpr(M):
                        acc[m] = ptx.fma(hi, ptx.high(xr[m][v][j]), ptx.fma(lo, ptx.low(xr[m][v][j]), acc[m]))
            ptx.release_to_copies()
            cute.arch.sync_warp()
            if lane == 0:  # noqa: SIM102 (run-time conditions of the DSL nest)
                if i + S < count:
                    ptx.expect(mb + 8 * st, piece_bytes)
                    ptx.bulk_copy(my + st * piece_bytes, src + Int64((i + S) * Q) * (2 * K), piece_bytes, mb + 8 * st)
            for m in cutlass.range_constexpr(M):
                total = ptx.warp_sum(acc[m])
                if lane == 0:
                    part[piece, (i * Q + q) * M + m] = total
            st += 1
            if st == S:
                st = Int32(0)
                ph ^= 1
        cute.arch.sync_threads()
        for t in cutlass.range(tid, (r1 - r0) // 2 * M, 32 * warps, unroll=1):
            m, pair = t % M, t // M
            a0, a1 = Float32(0.0), Float32(0.0)
            for i in cutlass.range_constexpr(P):
                a0 += part[i, 2 * pair * M + m]
                a1 += part[i, (2 * pair + 1) * M + m]
            self.epilogue(m, r0 + 2 * pair, a0, a1, y, y2, y3)

    def normed(self, row: list[Any], weight: list[Any]) -> list[Any]:
        """A warp's row over its root mean square, times the weight, rounded once."""
        wide = [ptx.floats(words) for words in row]
        square = Float32(0.0)
        for values in wide:
            for value in values:
                square = ptx.fma(value, value, square)
        scale = cute.math.rsqrt(ptx.warp_sum(square) * (1.0 / self.k) + 1e-5)
        done = []
        for values, weights in zip(wide, weight, strict=True):
            out = [value * scale * w for value, w in zip(values, weights, strict=True)]
            done.append(tuple(ptx.pack(out[2 * i], out[2 * i + 1]) for i in range(4)))
        return done
