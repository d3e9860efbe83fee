"""Expert products of one or two rows, each token's slot on its own: MXFP4 weights, decoded in registers, on bf16 tensor cores.

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
from kernels_under_test.kimi_k3.cuda.sizes import TOP_K

MASK = 0x81C081C0


def decode(w: Any) -> tuple[Any, Any, Any, Any]:
    """Eight packed codes to four bf16 pairs worth value x 2^-126, in 11 instructions."""
    third = ptx.select_or(w << 6, 0x01C001C0, (w << 1) & 0x80008000)
    fourth = ptx.select_or(w >> 3, 0x01C001C0, (w << 2) & 0x80008000)
    return w & MASK, (w << 3) & MASK, third, fourth


def add_block(weights: tuple[Any, Any], scales: Any, b: int, xs: list[Any], acc: list[Any]) -> list[Any]:
    """acc plus the product of block b (32 columns) of a piece: a word of each half of the tile, and the words of their scales."""
    a, h = decode(weights[0]), decode(weights[1])
    d = ptx.mma((a[0], h[0], a[1], h[1]), (xs[0], xs[1]), (Float32(0.0),) * 4)
    d = ptx.mma((a[2], h[2], a[3], h[3]), (xs[2], xs[3]), d)
    f = [ptx.as_float((s << (23 - 8 * b) if b < 3 else s >> 1) & 0x7F800000) for s in scales]
    return [ptx.fma(d[i], f[i // 2], acc[i]) for i in range(4)]


def lifted(words: tuple[Any, ...]) -> list[Any]:
    """Words of x times 2^100."""
    return [ptx.multiply_pairs(word, 0x71807180) for word in words]


class Experts:
    """kind "in": 768 x 3584; rows 0-7 of a tile are gate rows and 8-15 the matching up rows, so the activation is lane-local.
    kind "out": 3584 x 384.

    Pair p is slot p % 16 of row p // 16. (Two rows seldom choose the same expert: of 32 pairs 31.7 are distinct when routing is
    uniform.) ``wk`` warps split K; ``wr`` such groups share a CTA, and each owns ``r`` tiles. ``early``: the weights are read before
    the wait. Which experts it is was decided two launches ago then, not by the one before. ``window``: pieces of weights (1 KB) that a
    warp has under way; with each one used the next is asked for, so that a warp loads while it computes. Without, it loads all of its
    pieces first.
    """

    def __init__(
        self, kind: str, n: int, k: int, units: int, *, wk: int, wr: int = 1, r: int = 1, per_sm: int = 1, pdl: Any = True,
        early: bool = False, window: int = 0, first: bool = False,
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
        self.pdl, self.own, self.r, self.early, self.first = pdl, chunks // wk, r, early, first
        self.window = min(window, self.own * r)
        self.options: dict[str, Any] = {"min_blocks_per_mp": per_sm}
        if per_sm > 1:
            self.options["preferred_smem_carveout"] = 50

    @cute.jit
    def __call__(
        self, x: cute.Tensor, codes: cute.Tensor, scales: cute.Tensor, expert: cute.Tensor, y: cute.Tensor, stream: Any
    ) -> None:
        self.kernel(x, codes, scales, expert, y).launch(
            grid=(self.n // (16 * self.wr * self.r), self.units, 1),
            block=(32 * self.wk * self.wr, 1, 1),
            stream=stream,
            use_pdl=bool(self.pdl),
            **self.options,
        )

    @cute.kernel
    def kernel(
        self, x: cute.Tensor, codes: cute.Tensor, scales: cute.Tensor, expert: cute.Tensor, y: cute.Tensor
    ) -> None:
        N, K, WK, WR, own, R = self.n, self.k, self.wk, self.wr, self.own, self.r
        chunks = K // 128
        tid, _, _ = cute.arch.thread_idx()
        bx, unit, _ = cute.arch.block_idx()
        if cutlass.const_expr(not self.early):
            ptx.begin(self.pdl, self.first)
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        wr, wk = warp // WK, warp % WK
        g, t = lane // 4, lane % 4
        smem = SmemAllocator()
        if cutlass.const_expr(WK > 1):
            red = smem.allocate_tensor(Float32, cute.make_layout((WR * WK, 4, 33), stride=(132, 33, 1)), 16)
        e = expert[unit]
        tile = (bx * WR + wr) * R
        wb = (
            ptx.addr(codes.iterator)
            + Int64(e) * (N * K // 2)
            + Int64(tile * chunks + wk * own) * 1024
            + Int64(lane * 16)
        )
        sb = ptx.addr(scales.iterator) + Int64(e) * (N * K // 32) + Int64(tile * chunks + wk * own) * 64 + Int64(g * 8)
        pieces = [(r, c) for r in range(R) for c in range(own)]
        held = [self.piece(wb, sb, r * chunks + c) for r, c in pieces[: self.window or len(pieces)]]
        row = unit // TOP_K if self.kind == "in" else unit
        if cutlass.const_expr(self.early):
            ptx.begin(self.pdl, self.first)
        xb = ptx.addr(x.iterator) + Int64(row) * (2 * K) + Int64(wk * own * 256 + t * 16)
        acc = self.stream(wb, sb, xb, pieces, held) if self.window else self.whole(xb, held)
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
            self.store(unit, tile + r, wk, g, t, s, y)

    def piece(self, wb: Any, sb: Any, at: int) -> tuple[Any, ...]:
        """Words of a piece (both halves of the tile) and its scales."""
        return ptx.load16(wb + at * 1024), ptx.load16(wb + (at * 1024 + 512)), ptx.load8(sb + at * 64)

    def block(self, piece: tuple[Any, ...], b: int, xs: list[Any], acc: list[Any]) -> list[Any]:
        """acc plus the product of block b of a piece."""
        low, high, scales = piece
        return add_block((low[b], high[b]), scales, b, xs, acc)

    def columns(self, xb: Any, c: int, b: int) -> list[Any]:
        """x of block b of a piece, times 2^100."""
        return lifted(ptx.load16(xb + (c * 256 + b * 64), "plain"))

    def whole(self, xb: Any, held: list[Any]) -> list[list[Any]]:
        """Sums of each tile, all pieces being on their way; the tiles share what is read of x."""
        acc = [[Float32(0.0) for _ in range(4)] for _ in range(self.r)]
        for c in range(self.own):
            for b in range(4):
                xs = self.columns(xb, c, b)
                for r in range(self.r):
                    acc[r] = self.block(held[r * self.own + c], b, xs, acc[r])
        return acc

    def stream(self, wb: Any, sb: Any, xb: Any, pieces: list[tuple[int, int]], held: list[Any]) -> list[list[Any]]:
        """Sums of each tile, piece by piece; each one used makes room for one more."""
        acc = [[Float32(0.0) for _ in range(4)] for _ in range(self.r)]
        for i, (r, c) in enumerate(pieces):
            for b in range(4):
                acc[r] = self.block(held[i], b, self.columns(xb, c, b), acc[r])
            if i + self.window < len(pieces):
                r2, c2 = pieces[i + self.window]
                held.append(self.piece(wb, sb, r2 * (self.k // 128) + c2))
        return acc

    @cute.jit
    def store(self, unit: Int32, tile: Int32, wk: Int32, g: Int32, t: Int32, s: Any, y: cute.Tensor) -> None:
        if (wk == 0) & (t == 0):
            if cutlass.const_expr(self.kind == "in"):
                y[unit, tile * 8 + g] = ptx.situ(ptx.rounded(s[0]), ptx.rounded(s[2])).to(BFloat16)
            else:
                y[unit, tile * 16 + g] = s[0].to(BFloat16)
                y[unit, tile * 16 + g + 8] = s[2].to(BFloat16)
