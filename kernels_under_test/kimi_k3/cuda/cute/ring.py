"""Products of 8 to 64 rows on the tensor cores: y[M, N] = x[M, K] W[N, K]^T, weights as the 16-row operand.

One CTA owns TR weight rows. A producer warp streams boxes of 64 columns (128-byte swizzle) through S stages of KC columns; WK
consumer warps share each stage's k16 slices, so K is split inside the CTA, and over a cluster of CL where N alone gives too few CTAs.

A consumer gives a stage back only behind a proxy fence. Without it the refill of a stage (copy engine) overtook the matrix loads of
the same stage: on an H200, with kernels of the dependent launch beside it on the SM, 120 of 120 replays were wrong with seven stages,
and the wrong values were those of the step S later.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64, Uint8
from cutlass.experimental import cuda as xcuda
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.cute.epilogue import Epilogue

FAULTS = ("", "unfenced")
"""What a mutant leaves out: the consumers' proxy fence."""


class Ring:
    """M is a multiple of 8, N of TR, K of KC CL. ``ahead`` further stages of weights go into L2 before the wait."""

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        *,
        tr: int,
        kc: int,
        s: int,
        cl: int = 1,
        wk: int = 8,
        ahead: int = 0,
        epilogue: str = "store",
        pdl: bool = True,
        first: bool = False,
        fault: str = "",
    ) -> None:
        if fault not in FAULTS:
            raise ValueError(f"expected a fault out of {FAULTS}, found {fault!r}")
        if m % 8 or n % tr or tr % 16 or k % (kc * cl) or (kc // 16) % wk or kc % 64:
            raise ValueError(f"no such tiling: M {m}, N {n}, K {k}, rows {tr}, columns {kc}, cluster {cl}, warps {wk}")
        self.m, self.n, self.k, self.tr, self.kc, self.s, self.cl, self.wk, self.pdl = m, n, k, tr, kc, s, cl, wk, pdl
        self.steps, self.ahead, self.fault, self.first = k // cl // kc, ahead, fault, first
        self.weight_rows, self.x_rows = n, m
        self.options = {"cluster": (cl, 1, 1)} if cl > 1 else {}
        self.epilogue = Epilogue(epilogue)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * (self.wk + 1)

    @property
    def tiles(self) -> int:
        """CTAs (with ``cl`` > 1: clusters) of the product."""
        return self.n // self.tr

    def weight_row(self, tile: Any) -> Any:
        """The first weight row of a tile."""
        return tile * self.tr

    def x_row(self, _tile: Any) -> Any:
        """The first row of x that a tile takes."""
        return 0

    def maps(self, x: Any, w: Any) -> tuple[Any, Any]:
        """Tensor maps of the weights and of x: boxes of 64 columns, 128-byte swizzle."""
        return tuple(
            xcuda.create_tensor_map_tiled(
                t.iterator.toint(), BFloat16, [self.k, rows], [self.k * 2 // 16], [64, box],
                swizzle=xcuda.TensorMapSwizzle.s128b,
            )
            for t, rows, box in ((w, self.weight_rows, self.tr), (x, self.x_rows, self.m))
        )  # type: ignore[return-value]  # fmt: skip

    @cute.jit
    def __call__(
        self, x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, y2: cute.Tensor, y3: cute.Tensor, stream: Any
    ) -> None:
        dw, dx = self.maps(x, w)
        self.kernel(dw, dx, y, y2, y3).launch(
            grid=(self.cl, self.tiles, 1),
            block=(self.threads, 1, 1),
            stream=stream,
            use_pdl=bool(self.pdl),
            min_blocks_per_mp=1,
            **self.options,
        )

    @cute.kernel
    def kernel(
        self,
        dw: cutlass.GridConstant[xcuda.TensorMap],
        dx: cutlass.GridConstant[xcuda.TensorMap],
        y: cute.Tensor,
        y2: cute.Tensor,
        y3: cute.Tensor,
    ) -> None:
        crank, tile, _ = cute.arch.block_idx()
        self.work(crank, tile, dw, dx, y, y2, y3)

    @cute.jit
    def work(self, crank: Any, tile: Any, dw: Any, dx: Any, y: cute.Tensor, y2: cute.Tensor, y3: cute.Tensor) -> None:
        """One CTA: rank ``crank`` of the cluster that owns a tile of weight rows."""
        M, TR, KC, S, WK, CL, steps = self.m, self.tr, self.kc, self.s, self.wk, self.cl, self.steps
        J, R16, boxes, slices = M // 8, TR // 16, KC // 64, KC // 16 // WK
        wbytes = boxes * TR * 128
        stage = wbytes + boxes * M * 128
        threads, pitch, share = 32 * (WK + 1), TR + 4, TR * M // CL
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        smem = SmemAllocator()
        ring = smem.allocate_array(Uint8, max(S * stage, WK * M * pitch * 4), byte_alignment=1024)
        bars = smem.allocate_array(Int64, 2 * S, byte_alignment=8)
        if cutlass.const_expr(CL > 1):
            recv = smem.allocate_tensor(Float32, cute.make_layout((CL, share), stride=(share, 1)), 16)
        red = cute.make_tensor(
            cute.recast_ptr(ring, dtype=Float32), cute.make_layout((WK, M, TR), stride=(M * pitch, pitch, 1))
        )
        rb, fb = ptx.saddr(ring), ptx.saddr(bars)
        eb = fb + 8 * S
        if tid == 0:
            for s in cutlass.range_constexpr(S):
                cute.arch.mbarrier_init(bars + s, 1)
                cute.arch.mbarrier_init(bars + S + s, WK)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        acc = cute.make_rmem_tensor((R16 * J * 4,), Float32)
        acc.fill(0.0)
        k0 = crank * (self.k // CL)
        wd, xd = dw.get_ptr().toint(), dx.get_ptr().toint()
        w0, x0 = self.weight_row(tile), self.x_row(tile)
        if warp == WK:
            if lane == 0:
                for s in cutlass.range_constexpr(min(S, steps)):
                    ptx.expect(fb + 8 * s, stage)
                    self.fetch(rb + s * stage, wd, fb + 8 * s, k0 + s * KC, w0, TR)
                for s in cutlass.range_constexpr(S, min(S + self.ahead, steps)):
                    for b in cutlass.range_constexpr(boxes):
                        ptx.tile_prefetch(wd, k0 + s * KC + b * 64, w0)
            ptx.begin(self.pdl, self.first)
            ptx.acquire_for_copies()
            if lane == 0:
                for s in cutlass.range_constexpr(min(S, steps)):
                    self.fetch(rb + s * stage + wbytes, xd, fb + 8 * s, k0 + s * KC, x0, M)
                slot, ph = Int32(0), Int32(0)
                for it in cutlass.range(S, steps, unroll=1):
                    ptx.wait(eb + 8 * slot, ph)
                    ptx.expect(fb + 8 * slot, stage)
                    self.fetch(rb + slot * stage, wd, fb + 8 * slot, k0 + it * KC, w0, TR)
                    self.fetch(rb + slot * stage + wbytes, xd, fb + 8 * slot, k0 + it * KC, x0, M)
                    slot += 1
                    if slot == S:
                        slot = Int32(0)
                        ph ^= 1
        else:
            ptx.begin(self.pdl, self.first)
            r7 = lane % 8
            arow, acx = ((lane // 8) % 2) * 8 + r7, lane // 16
            brow, bcx = (lane // 16) * 8 + r7, (lane // 8) % 2
            slot, ph = Int32(0), Int32(0)
            for _ in cutlass.range(steps, unroll=1):
                ptx.wait(fb + 8 * slot, ph)
                base = rb + slot * stage
                A, B = [], []
                for q in cutlass.range_constexpr(slices):
                    ks = warp * slices + q
                    box, c0 = ks // 4, (ks % 4) * 2
                    aa = base + box * (TR * 128) + arow * 128 + (((c0 + acx) ^ r7) << 4)
                    A.append([ptx.matrices4(aa + i * 2048) for i in range(R16)])
                    xa = base + wbytes + box * (M * 128)
                    bb = []
                    if cutlass.const_expr(J == 1):
                        bb.append(ptx.matrices2(xa + r7 * 128 + (((c0 + bcx) ^ r7) << 4)))
                    else:
                        for j in cutlass.range_constexpr(J // 2):
                            v = ptx.matrices4(xa + (j * 16 + brow) * 128 + (((c0 + bcx) ^ r7) << 4))
                            bb += [(v[0], v[1]), (v[2], v[3])]
                    B.append(bb)
                for q in cutlass.range_constexpr(slices):
                    for i in cutlass.range_constexpr(R16):
                        for j in cutlass.range_constexpr(J):
                            z = (i * J + j) * 4
                            d = ptx.mma(A[q][i], B[q][j], tuple(acc[z + e] for e in range(4)))
                            for e in cutlass.range_constexpr(4):
                                acc[z + e] = d[e]
                if cutlass.const_expr(self.fault != "unfenced"):
                    ptx.release_to_copies()
                cute.arch.sync_warp()
                if lane == 0:
                    ptx.arrive(eb + 8 * slot)
                slot += 1
                if slot == S:
                    slot = Int32(0)
                    ph ^= 1
        cute.arch.sync_threads()
        g, t = lane // 4, lane % 4
        if warp < WK:
            for i in cutlass.range_constexpr(R16):
                for j in cutlass.range_constexpr(J):
                    for e in cutlass.range_constexpr(4):
                        red[warp, 8 * j + 2 * t + (e % 2), 16 * i + g + 8 * (e // 2)] = acc[(i * J + j) * 4 + e]
        cute.arch.sync_threads()
        if cutlass.const_expr(CL > 1):
            cute.arch.cluster_arrive_relaxed()
            cute.arch.cluster_wait()
            ra = ptx.saddr(recv.iterator)
            for o in cutlass.range(tid, TR * M, threads, unroll=1):
                v = Float32(0.0)
                for k in cutlass.range_constexpr(WK):
                    v += red[k, o // TR, o % TR]
                ptx.store_remote(ptx.remote(ra + (crank * share + o % share) * 4, o // share), v)
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        for q in cutlass.range(tid, share // 2, threads, unroll=1):
            a0, a1 = Float32(0.0), Float32(0.0)
            o = crank * share + 2 * q
            m, row = o // TR, o % TR
            if cutlass.const_expr(CL > 1):
                for k in cutlass.range_constexpr(CL):
                    a0 += recv[k, 2 * q]
                    a1 += recv[k, 2 * q + 1]
            else:
                for k in cutlass.range_constexpr(WK):
                    a0 += red[k, m, row]
                    a1 += red[k, m, row + 1]
            self.epilogue(m, tile * TR + row, a0, a1, y, y2, y3)

    def fetch(self, dst: Any, desc: Any, bar: Any, column: Any, row: Any, rows: int) -> None:
        """One stage of an operand: boxes of 64 columns."""
        for b in range(self.kc // 64):
            ptx.tile_copy(dst + b * rows * 128, desc, bar, column + b * 64, row)
