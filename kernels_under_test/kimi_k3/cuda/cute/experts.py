"""Grouped product over units of an expert and up to 8 tokens: MXFP4 weights, decoded in registers, on bf16 tensor cores.

The three magnitude bits of a code, placed at bits 8..6 of a bf16, are its value times 2^-126, so that a masked shift decodes two
codes at once. The factor is undone for free: activations are multiplied by 2^100, and the fp32 sum of each block of 32 by
2^26 x scale (the scale bytes are stored with 26 added). A weight tile is 16 rows x 128 columns, 1 KB: [half][lane][16 bytes].
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.sizes import UNIT

MASK = 0x81C081C0


def decode(w: Any) -> tuple[Any, Any, Any, Any]:
    """Eight packed codes to four bf16 pairs worth value x 2^-126, in 11 instructions."""
    third = ptx.select_or(w << 6, 0x01C001C0, (w << 1) & 0x80008000)
    fourth = ptx.select_or(w >> 3, 0x01C001C0, (w << 2) & 0x80008000)
    return w & MASK, (w << 3) & MASK, third, fourth


class Experts:
    """kind "in": 768 x 3584; rows 0-7 of a tile are gate rows and 8-15 the matching up rows, so the activation is lane-local.
    kind "out": 3584 x 384.

    ``wk`` warps split K; ``wr`` such groups share a CTA, and each owns ``r`` tiles. ``grid`` CTAs walk over the units.
    With ``single`` there is one token and unit u is slot u of its choice.
    ``early``: the weights are read before the wait. Which experts it is was decided two launches ago then, not by the one before.
    """

    def __init__(
        self, kind: str, n: int, k: int, units: int, *, wk: int, wr: int = 1, r: int = 1, grid: int = 0, per_sm: int = 1,
        single: bool = False, pdl: bool = False, early: bool = False,
    ) -> None:  # fmt: skip
        chunks = k // 128
        if kind not in ("in", "out") or k % 128 or chunks % wk or n % (16 * wr * r):
            raise ValueError(f"no such tiling: {kind}, N {n}, K {k}, warps {wk} x {wr}")
        if early and (kind == "in" or not pdl):
            raise ValueError(
                "expected weights before the wait only in the second product under dependent launch: "
                "the launch before the first one chooses the experts"
            )
        self.kind, self.n, self.k, self.units, self.wk, self.wr = kind, n, k, units, wk, wr
        self.single, self.pdl, self.own, self.r, self.early = single, pdl, chunks // wk, r, early
        self.grid = min(grid or units, units)
        self.options: dict[str, Any] = {"min_blocks_per_mp": per_sm}
        if per_sm > 1:
            self.options["preferred_smem_carveout"] = 50

    @cute.jit
    def __call__(
        self, x: cute.Tensor, codes: cute.Tensor, scales: cute.Tensor, count: cute.Tensor, expert: cute.Tensor,
        source: cute.Tensor, target: cute.Tensor, y: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(x, codes, scales, count, expert, source, target, y).launch(
            grid=(self.n // (16 * self.wr * self.r), self.grid, 1),
            block=(32 * self.wk * self.wr, 1, 1),
            stream=stream,
            use_pdl=self.pdl,
            **self.options,
        )

    @cute.kernel
    def kernel(
        self, x: cute.Tensor, codes: cute.Tensor, scales: cute.Tensor, count: cute.Tensor, expert: cute.Tensor,
        source: cute.Tensor, target: cute.Tensor, y: cute.Tensor,
    ) -> None:  # fmt: skip
        _, first, _ = cute.arch.block_idx()
        if cutlass.const_expr(not self.early):
            ptx.begin(self.pdl)
        if cutlass.const_expr(self.single):
            self.work(first, x, codes, scales, expert, source, target, y)
        else:
            for unit in cutlass.range(first, count[0], self.grid, unroll=1):
                self.work(unit, x, codes, scales, expert, source, target, y)
            if cutlass.const_expr(self.early):
                ptx.begin(self.pdl)

    @cute.jit
    def work(
        self, unit: Int32, x: cute.Tensor, codes: cute.Tensor, scales: cute.Tensor, expert: cute.Tensor,
        source: cute.Tensor, target: cute.Tensor, y: cute.Tensor,
    ) -> None:  # fmt: skip
        """One unit; with ``early`` its weights are on their way before the wait."""
        N, K, WK, WR, own, R = self.n, self.k, self.wk, self.wr, self.own, self.r
        chunks = K // 128
        tid, _, _ = cute.arch.thread_idx()
        bx, _, _ = cute.arch.block_idx()
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        wr, wk = warp // WK, warp % WK
        g, t = lane // 4, lane % 4
        smem = SmemAllocator()
        if cutlass.const_expr(WK > 1):
            red = smem.allocate_tensor(Float32, cute.make_layout((WR * WK, 4, 33), stride=(132, 33, 1)), 16)
        e = expert[unit]
        tile = (bx * WR + wr) * R
        weight, scale = [], []
        for r in cutlass.range_constexpr(R):
            first = (tile + r) * chunks + wk * own
            wb = ptx.addr(codes.iterator) + Int64(e) * (N * K // 2) + Int64(first) * 1024 + Int64(lane * 16)
            sb = ptx.addr(scales.iterator) + Int64(e) * (N * K // 32) + Int64(first) * 64 + Int64(g * 8)
            for c in cutlass.range_constexpr(own):
                weight.append((ptx.load16(wb + c * 1024), ptx.load16(wb + (c * 1024 + 512))))
                scale.append(ptx.load8(sb + c * 64))
        if cutlass.const_expr(self.single):
            row = Int32(0) if self.kind == "in" else unit
        else:
            row = cutlass.max(source[unit * UNIT + g], 0)
        if cutlass.const_expr(self.early):
            ptx.begin(self.pdl)
        xb = ptx.addr(x.iterator) + Int64(row) * (2 * K) + Int64(wk * own * 256 + t * 16)
        acc = [[Float32(0.0) for _ in range(4)] for _ in range(R)]
        for c in cutlass.range_constexpr(own):
            for b in cutlass.range_constexpr(4):
                xs = [ptx.multiply_pairs(v, 0x71807180) for v in ptx.load16(xb + (c * 256 + b * 64), "plain")]
                for r in cutlass.range_constexpr(R):
                    wl, wh = weight[r * own + c]
                    s0, s1 = scale[r * own + c]
                    a, h = decode(wl[b]), decode(wh[b])
                    d = ptx.mma((a[0], h[0], a[1], h[1]), (xs[0], xs[1]), (Float32(0.0),) * 4)
                    d = ptx.mma((a[2], h[2], a[3], h[3]), (xs[2], xs[3]), d)
                    f0 = ptx.as_float((s0 << (23 - 8 * b) if b < 3 else s0 >> 1) & 0x7F800000)
                    f1 = ptx.as_float((s1 << (23 - 8 * b) if b < 3 else s1 >> 1) & 0x7F800000)
                    acc[r] = [ptx.fma(d[i], f0 if i < 2 else f1, acc[r][i]) for i in range(4)]
        for r in cutlass.range_constexpr(R):
            s = [acc[r][q] for q in range(4)]
            if cutlass.const_expr(WK > 1):
                cute.arch.sync_threads()
                for q in cutlass.range_constexpr(4):
                    red[warp, q, lane] = s[q]
                cute.arch.sync_threads()
                for k in cutlass.range_constexpr(1, WK):
                    for q in cutlass.range_constexpr(4):
                        s[q] = s[q] + red[wr * WK + k, q, lane]
            self.store(unit, tile + r, wk, g, t, s, target, y)

    @cute.jit
    def store(
        self, unit: Int32, tile: Int32, wk: Int32, g: Int32, t: Int32, s: Any, target: cute.Tensor, y: cute.Tensor
    ) -> None:
        if wk == 0:
            for j in cutlass.range_constexpr(1 if self.single else 2):
                if cutlass.const_expr(self.single):
                    to, ok = unit, t == 0
                else:
                    to = target[unit * UNIT + 2 * t + j]
                    ok = to >= 0
                if ok:
                    if cutlass.const_expr(self.kind == "in"):
                        value = ptx.situ(ptx.rounded(s[j]), ptx.rounded(s[2 + j]))
                        y[to, tile * 8 + g] = value.to(BFloat16)
                    else:
                        y[to, tile * 16 + g] = s[j].to(BFloat16)
                        y[to, tile * 16 + g + 8] = s[2 + j].to(BFloat16)
