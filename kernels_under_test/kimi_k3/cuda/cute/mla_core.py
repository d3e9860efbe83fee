"""Attention over the paged latent cache: each CTA attends with all heads of a row over its blocks of 64 tokens (a page).

Eight warps. Tensor copies (boxes of 64 columns x 32 tokens, 128-byte swizzle) fill a ring of S half blocks; warp w issues box w, so no
warp is kept from computing. Of a block's scores warp w makes those of tokens 8 w .. 8 w + 7 with the query in registers; of the output
it owns the latent columns of box w. Two barriers a block: one behind the maxima of the scores, one behind the probabilities. Behind
the first everyone is done with the block before, whose place is filled again there.

The cache, its table and the lengths are read before the wait: the new rows of this step were written at least two launches ago.
Tokens past a row's end are masked in the scores, and their latents are set to zero, for a page may hold NaN behind the last token.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64, Uint8, Uint32
from cutlass.experimental import cuda as xcuda
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import mla_plan as plan
from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.mla_sizes import BLOCK, CACHED, KV_RANK, PAGE, SCALE
from kernels_under_test.kimi_k3.cuda.sizes import HEADS

WARPS = 8
THREADS = 32 * WARPS
HALF = BLOCK // 2
BOX = HALF * 128
BOXES = CACHED // 64
STAGE = BOXES * BOX
Q_PITCH = 2 * CACHED + 16
"""Bytes of a query row in shared memory: eight rows then lie in eight different groups of banks, for the matrix loads."""
P_PITCH = 2 * BLOCK + 16
"""Bytes of a row of probabilities, likewise."""
FAULTS = ("", "tail", "last_token")
"""What a mutant leaves out: the zeros behind a row's end, or a row's last token."""
FACTOR = SCALE * 1.4426950408889634


class MlaCore:
    """``grid`` CTAs share all blocks of all rows; parts go to part[row + CTA], their log2 sums to lse[row + CTA]. ``s`` half blocks
    lie in shared memory: 4 or 5."""

    def __init__(
        self, m: int, *, s: int = 5, grid: int = 132, pdl: bool = True, fault: str = ""
    ) -> None:  # fmt: skip
        if fault not in FAULTS:
            raise ValueError(f"expected a fault out of {FAULTS}, found {fault!r}")
        self.fault = fault
        if s not in (4, 5):
            raise ValueError(f"expected 4 or 5 half blocks in the ring, found {s}")
        self.m, self.s, self.grid, self.pdl = m, s, grid, pdl

    @cute.jit
    def __call__(
        self, query: cute.Tensor, cache: cute.Tensor, table: cute.Tensor, lens: cute.Tensor, part: cute.Tensor,
        lse: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        dc = xcuda.create_tensor_map_tiled(
            cache.iterator.toint(), BFloat16, [CACHED, cache.shape[0]], [CACHED * 2 // 16], [64, HALF],
            swizzle=xcuda.TensorMapSwizzle.s128b,
        )  # fmt: skip
        self.kernel(dc, query, table, lens, part, lse).launch(
            grid=(self.grid, 1, 1), block=(THREADS, 1, 1), stream=stream, use_pdl=bool(self.pdl), min_blocks_per_mp=1,
        )  # fmt: skip

    @cute.kernel
    def kernel(  # noqa: C901 (one kernel is one function)
        self, dc: cutlass.GridConstant[xcuda.TensorMap], query: cute.Tensor, table: cute.Tensor, lens: cute.Tensor,
        part: cute.Tensor, lse: cute.Tensor,
    ) -> None:  # fmt: skip
        M, S = self.m, self.s
        tid, _, _ = cute.arch.thread_idx()
        bid, _, _ = cute.arch.block_idx()
        lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
        smem = SmemAllocator()
        ring = smem.allocate_array(Uint8, S * STAGE, byte_alignment=1024)
        qs = smem.allocate_array(Uint8, 16 * Q_PITCH, byte_alignment=16)
        ps = smem.allocate_array(Uint8, 16 * P_PITCH, byte_alignment=16)
        tops = smem.allocate_tensor(Float32, cute.make_layout((16, WARPS), stride=(WARPS, 1)), 16)
        masses = smem.allocate_tensor(Float32, cute.make_layout((16, WARPS), stride=(WARPS, 1)), 16)
        counts = smem.allocate_tensor(Int32, cute.make_layout(M), 16)
        starts = smem.allocate_tensor(Int32, cute.make_layout(M + 1), 16)
        bars = smem.allocate_array(Int64, S, byte_alignment=8)
        rb, fb, qb, pb = ptx.saddr(ring), ptx.saddr(bars), ptx.saddr(qs), ptx.saddr(ps)
        if tid == 0:
            for s in cutlass.range_constexpr(S):
                cute.arch.mbarrier_init(bars + s, 1)
            cute.arch.mbarrier_init_fence()
        for o in cutlass.range(tid, (16 - HEADS) * Q_PITCH // 16, THREADS, unroll=1):
            ptx.zero_shared16(qb + HEADS * Q_PITCH + o * 16)
        plan.fill(lens, counts, starts, tid, M)
        total = starts[M]
        ctas = plan.active(total, self.grid)
        b0, b1 = Int32(0), Int32(0)
        if bid < ctas:
            b0 = bid * total // ctas
            b1 = (bid + 1) * total // ctas
        r0, r1 = Int32(0), Int32(0)
        for t in cutlass.range(1, M, unroll=8):
            at = starts[t]
            if at <= b0:
                r0 = Int32(t)
            if at < b1:
                r1 = Int32(t)
        cd = dc.get_ptr().toint()
        fr = r0
        pages = []
        for i in cutlass.range_constexpr(3):
            fr, page = self.lookup(b0 + i, b1, fr, starts, table)
            pages.append(page)
        for k in cutlass.range_constexpr(S):
            self.fetch(k % 2, b0 + k // 2 < b1, pages[k // 2], rb + k * STAGE, fb + 8 * k, cd, lane, warp)
        near, far = pages[1], pages[2]
        ptx.begin(self.pdl)
        g, t, r7 = lane // 4, lane % 4, lane % 8
        keys = (warp % 4 * 8 + r7) * 128
        key_half = warp // 4
        turned = (lane // 8 % 2) * 8 + r7
        qa = qb + turned * Q_PITCH + lane // 16 * 16
        pa = pb + turned * P_PITCH + lane // 16 * 16
        to = pb + g * P_PITCH + (warp * 8 + 2 * t) * 2
        values = warp * BOX + lane * 128
        q = cute.make_rmem_tensor((16 * BOXES,), Uint32)
        acc = cute.make_rmem_tensor((32,), Float32)
        sa, ph = Int32(0), Int32(0)
        old_a, old_b = Int32(0), Int32(0)
        n = Int32(0)
        for r in cutlass.range(r0, r1 + 1, unroll=1):
            start = starts[r]
            lo, hi = cutlass.max(start, b0), cutlass.min(starts[r + 1], b1)
            if lo < hi:
                self.query_rows(query, r, qb, tid)
                cute.arch.sync_threads()
                for k in cutlass.range_constexpr(4 * BOXES):
                    a = ptx.matrices4(qa + k * 32)
                    for i in cutlass.range_constexpr(4):
                        q[4 * k + i] = a[i]
            top = [Float32(float("-inf")), Float32(float("-inf"))]
            mass = [Float32(0.0), Float32(0.0)]
            acc.fill(0.0)
            limit = lens[r] - (lo - start) * BLOCK
            for _ in cutlass.range(lo, hi, unroll=1):
                pha, phb, sb = ph, ph, sa + 1
                if sb == S:
                    sb = Int32(0)
                    phb ^= 1
                ptx.wait(fb + 8 * sa, pha)
                ptx.wait(fb + 8 * sb, phb)
                base_a, base_b = rb + sa * STAGE, rb + sb * STAGE
                if (limit < BLOCK) & (self.fault != "tail"):
                    if tid // 8 >= limit:
                        for b in cutlass.range_constexpr(KV_RANK // 64):
                            ptx.zero_shared16(base_a + tid * 16, b * BOX)
                    if tid // 8 + HALF >= limit:
                        for b in cutlass.range_constexpr(KV_RANK // 64):
                            ptx.zero_shared16(base_b + tid * 16, b * BOX)
                    cute.arch.sync_threads()
                kb = (base_a if key_half == 0 else base_b) + keys
                c = [(Float32(0.0),) * 4 for _ in range(4)]
                for b in cutlass.range_constexpr(BOXES):
                    for i in cutlass.range_constexpr(2):
                        k = ptx.matrices4(kb + b * BOX + (((i * 4 + lane // 8) ^ r7) << 4))
                        z = 16 * b + 8 * i
                        c[2 * i] = ptx.mma(tuple(q[z + e] for e in range(4)), (k[0], k[1]), c[2 * i])
                        c[2 * i + 1] = ptx.mma(tuple(q[z + 4 + e] for e in range(4)), (k[2], k[3]), c[2 * i + 1])
                v = [(c[0][e] + c[1][e]) + (c[2][e] + c[3][e]) for e in range(4)]
                none = Float32(float("-inf"))
                short = 1 if self.fault == "last_token" else 0
                v = [v[e] if warp * 8 + 2 * t + e % 2 < limit - short else none for e in range(4)]
                for i in cutlass.range_constexpr(2):
                    best = cutlass.max(v[2 * i], v[2 * i + 1])
                    best = cutlass.max(best, cute.arch.shuffle_sync_bfly(best, 1))
                    best = cutlass.max(best, cute.arch.shuffle_sync_bfly(best, 2))
                    if t == 0:
                        tops[g + 8 * i, warp] = best
                cute.arch.sync_threads()
                if n > 0:
                    at = b0 + n + 1
                    self.fetch(S % 2, at < b1, near, rb + old_a * STAGE, fb + 8 * old_a, cd, lane, warp)
                    if cutlass.const_expr(S % 2 == 0):
                        self.fetch(1, at < b1, near, rb + old_b * STAGE, fb + 8 * old_b, cd, lane, warp)
                    else:
                        self.fetch(0, at + 1 < b1, far, rb + old_b * STAGE, fb + 8 * old_b, cd, lane, warp)
                near = far
                fr, far = self.lookup(b0 + n + 3, b1, fr, starts, table)
                fade = []
                for i in cutlass.range_constexpr(2):
                    best = top[i]
                    for w in cutlass.range_constexpr(WARPS):
                        best = cutlass.max(best, tops[g + 8 * i, w])
                    f = ptx.exp2((top[i] - best) * FACTOR)
                    back = best * (-FACTOR)
                    x, y = ptx.exp2(ptx.fma(v[2 * i], FACTOR, back)), ptx.exp2(ptx.fma(v[2 * i + 1], FACTOR, back))
                    mass[i] = ptx.fma(mass[i], f, x + y)
                    top[i] = best
                    fade.append(f)
                    ptx.store_shared4(to + i * (8 * P_PITCH), ptx.pack(x, y))
                cute.arch.sync_threads()
                for i in cutlass.range_constexpr(32):
                    acc[i] = acc[i] * fade[i // 2 % 2]
                p = [ptx.matrices4(pa + k * 32) for k in range(4)]
                for half in cutlass.range_constexpr(2):
                    vb = (base_a if half == 0 else base_b) + values
                    for j in cutlass.range_constexpr(8):
                        w = ptx.matrices4_turned(vb + ((j ^ r7) << 4))
                        d = tuple(acc[4 * j + i] for i in range(4))
                        d = ptx.mma(p[2 * half], (w[0], w[1]), d)
                        d = ptx.mma(p[2 * half + 1], (w[2], w[3]), d)
                        for i in cutlass.range_constexpr(4):
                            acc[4 * j + i] = d[i]
                ptx.release_to_copies()
                limit -= BLOCK
                n += 1
                old_a, old_b = sa, sb
                sa = sb + 1
                ph = phb
                if sa == S:
                    sa = Int32(0)
                    ph ^= 1
            if lo < hi:
                self.finish(bid + r, lane, warp, top, mass, acc, masses, part, lse)

    @cute.jit
    def lookup(self, b: Any, b1: Any, row: Any, starts: cute.Tensor, table: cute.Tensor) -> Any:
        """The row (from ``row`` on) and the page of a block; page 0 where the CTA has no such block."""
        page = Int32(0)
        if b < b1:
            while starts[row + 1] <= b:
                row += 1
            page = table[row, b - starts[row]]
        return row, page

    @cute.jit
    def fetch(
        self, half: cutlass.Constexpr, wanted: Any, page: Any, to: Any, bar: Any, cd: Any, lane: Any, warp: Any
    ) -> None:  # fmt: skip
        """This warp's boxes of a half block. Copies may end before the first warp announces them: the barrier waits for both."""
        if wanted & (lane == 0):
            row = page * PAGE + half * HALF
            if warp == 0:
                ptx.expect(bar, STAGE)
                ptx.tile_copy(to + WARPS * BOX, cd, bar, WARPS * 64, row)
            ptx.tile_copy(to + warp * BOX, cd, bar, warp * 64, row)

    @cute.jit
    def query_rows(self, query: cute.Tensor, row: Any, to: Any, tid: Any) -> None:
        """The query rows of all heads to shared memory."""
        source = ptx.addr(query.iterator) + Int64(row) * (2 * HEADS * CACHED)
        for o in cutlass.range(tid, HEADS * CACHED // 8, THREADS, unroll=4):
            w = ptx.load16(source + Int64(o * 16), "plain")
            at = to + o // (CACHED // 8) * Q_PITCH + o % (CACHED // 8) * 16
            ptx.store_shared16(at, w[0], w[1], w[2], w[3])

    @cute.jit
    def finish(
        self, place: Any, lane: Any, warp: Any, top: Any, mass: Any, acc: cute.Tensor, masses: cute.Tensor, part: cute.Tensor,
        lse: cute.Tensor,
    ) -> None:  # fmt: skip
        """A row's part: sums over the warps, the normalised latents and the logarithms."""
        g, t = lane // 4, lane % 4
        for i in cutlass.range_constexpr(2):
            whole = ptx.warp_sum(mass[i], 4)
            if t == 0:
                masses[g + 8 * i, warp] = whole
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(2):
            head = g + 8 * i
            whole = masses[head, 0]
            for w in cutlass.range_constexpr(1, WARPS):
                whole += masses[head, w]
            inverse = cute.arch.rcp_approx(whole)
            pa = ptx.addr(part.iterator) + Int64((place * HEADS + head) * (4 * KV_RANK) + warp * 256 + t * 8)
            if head < HEADS:
                for j in cutlass.range_constexpr(8):
                    a, b = acc[4 * j + 2 * i] * inverse, acc[4 * j + 2 * i + 1] * inverse
                    ptx.store8(pa + j * 32, ptx.as_bits(a), ptx.as_bits(b))
                if (warp == 0) & (t == 0):
                    lse[place, head] = top[i] * FACTOR + ptx.log2(whole)


assert BLOCK == PAGE and KV_RANK == WARPS * 64
