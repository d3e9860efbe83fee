"""Both products of the experts in one persistent kernel: MXFP4 weights stream through shared memory without a break between them.

Which CTA works on what is written in ``experts_items.py``. Of an item of the first product each of 14 warps takes a fourteenth of
the columns, of one of the second a tile of its own; x stays in registers while the unit does. One more warp keeps a ring of S slots
filled, first with items of the first product, then with those of the second. Another adds up the sums of the 14 in the first product
and stores activations: were it one of the 14 in turn, each item would wait for the stores of the one before (seen: 2.4 TB/s). The
second product of a unit waits until all 48 tiles of the first are counted in done[unit], which an earlier launch of the step has set
to 0.

Decoding is that of ``experts.py``. All CTAs must be resident at once, one an SM.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import experts_items as items
from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.cute.experts import add_block, lifted
from kernels_under_test.kimi_k3.cuda.cute.experts_items import (
    IN_PIECES,
    IN_TILES,
    OUT_ITEMS,
    OUT_PIECES,
    PART,
    PIECE,
    SCALES,
    SLOT,
    WARPS,
)
from kernels_under_test.kimi_k3.cuda.sizes import INTER, LATENT, UNIT

BUFFERS = 4
"""Items of the first product whose sums over the warps may be under way."""
PITCH = 32 * 16
"""Bytes of a warp's sums of an item."""
FAULTS = ("", "unfenced", "uncounted")
"""What a mutant leaves out: the proxy fence before a refill, or the second product's wait for the first."""


class StreamedExperts:
    """``s`` slots; ``grid`` CTAs. count[0] units; slots of a unit without a token hold -1 in ``source`` (rows of x) and ``target``."""

    def __init__(self, *, s: int = 4, grid: int = 132, pdl: Any = True, first: bool = False, fault: str = "") -> None:
        if fault not in FAULTS:
            raise ValueError(f"expected a fault out of {FAULTS}, found {fault!r}")
        self.s, self.grid, self.pdl, self.first, self.fault = s, grid, pdl, first, fault

    @cute.jit
    def __call__(
        self, x: cute.Tensor, in_codes: cute.Tensor, in_scales: cute.Tensor, out_codes: cute.Tensor,
        out_scales: cute.Tensor, count: cute.Tensor, expert: cute.Tensor, source: cute.Tensor, target: cute.Tensor,
        done: cute.Tensor, act: cute.Tensor, y: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(
            x, in_codes, in_scales, out_codes, out_scales, count, expert, source, target, done, act, y
        ).launch(
            grid=(self.grid, 1, 1), block=(32 * (WARPS + 2), 1, 1), stream=stream, use_pdl=bool(self.pdl), min_blocks_per_mp=1
        )  # fmt: skip

    @cute.kernel
    def kernel(
        self, x: cute.Tensor, in_codes: cute.Tensor, in_scales: cute.Tensor, out_codes: cute.Tensor,
        out_scales: cute.Tensor, count: cute.Tensor, expert: cute.Tensor, source: cute.Tensor, target: cute.Tensor,
        done: cute.Tensor, act: cute.Tensor, y: cute.Tensor,
    ) -> None:  # fmt: skip
        S = self.s
        bid, _, _ = cute.arch.block_idx()
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        smem = SmemAllocator()
        ring = smem.allocate_array(Uint8, S * SLOT, byte_alignment=128)
        sums = smem.allocate_array(Uint8, BUFFERS * WARPS * PITCH, byte_alignment=128)
        bars = smem.allocate_array(Int64, 2 * S + 2 * BUFFERS, byte_alignment=8)
        rb, sb, here = ptx.saddr(ring), ptx.saddr(sums), ptx.saddr(bars)
        there, full = here + 8 * S, here + 16 * S
        free = full + 8 * BUFFERS
        if tid == 0:
            for i in cutlass.range_constexpr(S):
                cute.arch.mbarrier_init(bars + i, 1)
                cute.arch.mbarrier_init(bars + S + i, WARPS)
            for i in cutlass.range_constexpr(BUFFERS):
                cute.arch.mbarrier_init(bars + 2 * S + i, WARPS)
                cute.arch.mbarrier_init(bars + 2 * S + BUFFERS + i, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        ptx.begin(self.pdl, self.first)
        plan = items.plan(bid, self.grid, count[0])
        weights = tuple(ptx.addr(p.iterator) for p in (in_codes, in_scales, out_codes, out_scales))
        if warp < WARPS:
            self.compute(plan, warp, lane, rb, here, there, sb, full, free, x, source, target, done, act, y)
        elif warp == WARPS:
            self.copy(plan, weights, lane, rb, here, there, expert)
        else:
            self.finish(plan, lane, sb, full, free, target, done, act)

    @cute.jit
    def copy(
        self, plan: Any, weights: Any, lane: Int32, rb: Int32, here: Int32, there: Int32, expert: cute.Tensor
    ) -> None:
        """Keeps the ring filled; the next item's expert is looked up while this one's slot is awaited."""
        end = plan[3]
        if lane == 0:
            slot, ph = Int32(0), Int32(1)
            e = items.expert_of(Int32(0), plan, expert)
            for r in cutlass.range(end, unroll=1):
                ptx.wait(there + 8 * slot, ph)
                items.fetch(r, e, plan, weights, rb + slot * SLOT, here + 8 * slot)
                e = items.expert_of(r + 1, plan, expert)
                slot += 1
                if slot == self.s:
                    slot = Int32(0)
                    ph ^= 1

    @cute.jit
    def compute(
        self, plan: Any, warp: Int32, lane: Int32, rb: Int32, here: Int32, there: Int32, sb: Int32, full: Int32,
        free: Int32, x: cute.Tensor, source: cute.Tensor, target: cute.Tensor, done: cute.Tensor, act: cute.Tensor,
        y: cute.Tensor,
    ) -> None:  # fmt: skip
        """One of the 14 warps: its part of each item."""
        S = self.s
        _, _, cut, end, _ = plan
        g, t = lane // 4, lane % 4
        slot, ph, buf, bph = Int32(0), Int32(0), Int32(0), Int32(1)
        last = Int32(-1)
        xs = cute.make_rmem_tensor((16 * IN_PIECES,), Uint32)
        to = cute.make_rmem_tensor((2,), Int32)
        mine = sb + warp * PITCH + lane * 16
        codes, scales = (
            rb + warp * (IN_PIECES * PIECE) + lane * 16,
            rb + PART * PIECE + warp * (IN_PIECES * SCALES) + g * 8,
        )
        for r in cutlass.range(cut, unroll=1):
            unit = items.place(r, plan) // IN_TILES
            if unit != last:
                row = self.row(unit, g, source)
                xb = ptx.addr(x.iterator) + Int64(row) * (2 * LATENT) + Int64(warp * (IN_PIECES * 256) + t * 16)
                self.columns(xs, xb, 4 * IN_PIECES)
                last = unit
            ptx.wait(here + 8 * slot, ph)
            held = self.take(IN_PIECES, codes + slot * SLOT, scales + slot * SLOT)
            if lane == 0:
                ptx.arrive(there + 8 * slot)
            acc = self.product(held, xs)
            ptx.wait(free + 8 * buf, bph)
            ptx.store_shared16(mine + buf * (WARPS * PITCH), *(ptx.as_bits(v) for v in acc))
            cute.arch.sync_warp()
            if lane == 0:
                ptx.arrive(full + 8 * buf)
            buf += 1
            if buf == BUFFERS:
                buf = Int32(0)
                bph ^= 1
            slot += 1
            if slot == S:
                slot = Int32(0)
                ph ^= 1
        last = Int32(-1)
        xo = cute.make_rmem_tensor((16 * OUT_PIECES,), Uint32)
        codes, scales = (
            rb + warp * (OUT_PIECES * PIECE) + lane * 16,
            rb + PART * PIECE + warp * (OUT_PIECES * SCALES) + g * 8,
        )
        for r in cutlass.range(cut, end, unroll=1):
            place = items.place(r, plan)
            unit, tile = place // OUT_ITEMS, (place % OUT_ITEMS) * WARPS + warp
            if unit != last:
                self.targets(to, unit, t, target)
                if cutlass.const_expr(self.fault != "uncounted"):
                    ptx.wait_count(ptx.addr(done.iterator) + Int64(unit * 4), IN_TILES)
                row = self.row(unit, g, target)
                self.columns(xo, ptx.addr(act.iterator) + Int64(row) * (2 * INTER) + Int64(t * 16), 4 * OUT_PIECES)
                last = unit
            ptx.wait(here + 8 * slot, ph)
            held = self.take(OUT_PIECES, codes + slot * SLOT, scales + slot * SLOT)
            if lane == 0:
                ptx.arrive(there + 8 * slot)
            self.store_out(tile, g, self.product(held, xo), to, y)
            slot += 1
            if slot == S:
                slot = Int32(0)
                ph ^= 1

    @cute.jit
    def finish(
        self, plan: Any, lane: Int32, sb: Int32, full: Int32, free: Int32, target: cute.Tensor, done: cute.Tensor,
        act: cute.Tensor,
    ) -> None:  # fmt: skip
        """The items of the first product: sums over the warps, activation, and the count of tiles stored."""
        _, _, cut, _, _ = plan
        g, t = lane // 4, lane % 4
        last, stored, buf, ph = Int32(-1), Int32(0), Int32(0), Int32(0)
        to = cute.make_rmem_tensor((2,), Int32)
        for r in cutlass.range(cut, unroll=1):
            place = items.place(r, plan)
            unit, tile = place // IN_TILES, place % IN_TILES
            if unit != last:
                self.count(done, last, stored, lane)
                self.targets(to, unit, t, target)
                last, stored = unit, Int32(0)
            ptx.wait(full + 8 * buf, ph)
            mine = sb + buf * (WARPS * PITCH) + lane * 16
            parts = [ptx.shared16(mine, w * PITCH) for w in range(WARPS)]
            cute.arch.sync_warp()
            total = []
            for q in cutlass.range_constexpr(4):
                total.append(ptx.as_float(parts[0][q]))
                for w in cutlass.range_constexpr(1, WARPS):
                    total[q] = total[q] + ptx.as_float(parts[w][q])
            if lane == 0:
                ptx.arrive(free + 8 * buf)
            self.store_in(tile, g, total, to, act)
            stored += 1
            buf += 1
            if buf == BUFFERS:
                buf = Int32(0)
                ph ^= 1
        self.count(done, last, stored, lane)

    @cute.jit
    def count(self, done: cute.Tensor, unit: Int32, stored: Int32, lane: Int32) -> None:
        """Announce what this warp has stored of a unit."""
        cute.arch.sync_warp()
        if (lane == 0) & (stored > 0):
            ptx.count_release(ptx.addr(done.iterator) + Int64(unit * 4), stored)

    def take(self, pieces: int, codes: Any, scales: Any) -> list[Any]:
        """Words and scales of this warp's pieces of a slot, which may be filled again behind this."""
        held = [
            (ptx.shared16(codes, p * PIECE), ptx.shared16(codes, p * PIECE + 512), ptx.shared8(scales, p * SCALES))
            for p in range(pieces)
        ]
        if self.fault != "unfenced":
            ptx.release_to_copies()
        cute.arch.sync_warp()
        return held

    def product(self, held: list[Any], xs: cute.Tensor) -> list[Any]:
        """Sums of a tile of 16 rows and 8 tokens over these pieces."""
        acc = [Float32(0.0) for _ in range(4)]
        for p, (low, high, scales) in enumerate(held):
            for b in range(4):
                words = [xs[16 * p + 4 * b + i] for i in range(4)]
                acc = add_block((low[b], high[b]), scales, b, words, acc)
        return acc

    def columns(self, xs: cute.Tensor, base: Any, blocks: int) -> None:
        """This lane's columns of a row of x, times 2^100."""
        for b in range(blocks):
            for i, word in enumerate(lifted(ptx.load16(base + 64 * b, "l2"))):
                xs[4 * b + i] = word

    @cute.jit
    def row(self, unit: Int32, g: Int32, table: cute.Tensor) -> Any:
        """The row of x in column g of a unit; that of its first token in columns without one."""
        row = table[unit * UNIT + g]
        if row < 0:
            row = table[unit * UNIT]
        return row

    @cute.jit
    def targets(self, to: cute.Tensor, unit: Int32, t: Int32, target: cute.Tensor) -> None:
        """Where this lane's two columns go; below 0 nowhere."""
        to[0] = target[unit * UNIT + 2 * t]
        to[1] = target[unit * UNIT + 2 * t + 1]

    @cute.jit
    def store_in(self, tile: Int32, g: Int32, s: Any, to: cute.Tensor, act: cute.Tensor) -> None:
        for j in cutlass.range_constexpr(2):
            if to[j] >= 0:
                act[to[j], tile * 8 + g] = ptx.situ(ptx.rounded(s[j]), ptx.rounded(s[2 + j])).to(BFloat16)

    @cute.jit
    def store_out(self, tile: Int32, g: Int32, s: Any, to: cute.Tensor, y: cute.Tensor) -> None:
        for j in cutlass.range_constexpr(2):
            if to[j] >= 0:
                y[to[j], tile * 16 + g] = s[j].to(BFloat16)
                y[to[j], tile * 16 + g + 8] = s[2 + j].to(BFloat16)
