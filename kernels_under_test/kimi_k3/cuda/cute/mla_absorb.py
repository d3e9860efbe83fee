"""The query's first part times the key half of the latent's up projection: one query row of 576 columns for each head.

A CTA owns 64 latent columns of a head. Up to two rows: weights (128 x 64) in registers before the wait, fp32 sums. From 8 rows on:
weights in shared memory before the wait, then the tensor cores.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64, Uint8
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.mla_sizes import CACHED, HEAD_IN, KV_RANK, NOPE, QUERY, SHARED_KEY, VALUE
from kernels_under_test.kimi_k3.cuda.sizes import HEADS

COLUMNS = 64
THREADS = 128
W_PITCH = 2 * COLUMNS + 16
"""Bytes of a weight row in shared memory: eight rows then lie in eight groups of banks, for the matrix loads."""
X_PITCH = 2 * NOPE + 16
DEPTH = NOPE // (THREADS // 8)
"""Rows of the weight that a thread takes: thread t has columns 8 (t % 8) .. + 7 of rows 8 (t / 8) .. + 7."""


class Absorb:
    """M is a multiple of ``r``, the rows of a CTA."""

    def __init__(self, m: int, *, r: int, pdl: bool = True) -> None:
        if m % r or r not in (1, 2, 4, 8):
            raise ValueError(f"expected 1, 2, 4 or 8 rows a CTA that divide {m}, found {r}")
        self.m, self.r, self.pdl = m, r, pdl

    @cute.jit
    def __call__(self, up: cute.Tensor, weight: cute.Tensor, query: cute.Tensor, stream: Any) -> None:
        self.kernel(up, weight, query).launch(
            grid=(KV_RANK // COLUMNS, HEADS, self.m // self.r),
            block=(THREADS, 1, 1),
            stream=stream,
            use_pdl=bool(self.pdl),
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(self, up: cute.Tensor, weight: cute.Tensor, query: cute.Tensor) -> None:
        R = self.r
        tid, _, _ = cute.arch.thread_idx()
        chunk, head, group = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        columns, depth = tid % 8, tid // 8
        smem = SmemAllocator()
        red = smem.allocate_tensor(Float32, cute.make_layout((THREADS // 32, 8 * R, 9), stride=(8 * R * 9, 9, 1)), 16)
        wb = ptx.addr(weight.iterator) + Int64(
            (head * (NOPE + VALUE) + depth * DEPTH) * (2 * KV_RANK) + chunk * (2 * COLUMNS) + columns * 16
        )
        words = [ptx.load16(wb + i * 2 * KV_RANK) for i in range(DEPTH)]
        ptx.begin(self.pdl)
        ub = ptx.addr(up.iterator) + Int64(group * R * (2 * QUERY) + head * (2 * HEAD_IN))
        given = [ptx.load16(ub + (depth * 2 * DEPTH + r * 2 * QUERY), "plain") for r in range(R)]
        acc = [Float32(0.0) for _ in range(8 * R)]
        for i in cutlass.range_constexpr(DEPTH):
            w = ptx.floats(words[i])
            for r in cutlass.range_constexpr(R):
                x = ptx.high(given[r][i // 2]) if i % 2 else ptx.low(given[r][i // 2])
                for e in cutlass.range_constexpr(8):
                    acc[8 * r + e] = ptx.fma(x, w[e], acc[8 * r + e])
        acc = self.halved(self.halved(acc, lane, 16), lane, 8)
        first = lane // 16 * (4 * R) + lane // 8 % 2 * (2 * R)
        for i in cutlass.range_constexpr(2 * R):
            red[warp, first + i, columns] = acc[i]
        cute.arch.sync_threads()
        qb = ptx.addr(query.iterator) + Int64((group * R * HEADS + head) * (2 * CACHED))
        for o in cutlass.range(tid, R * COLUMNS // 2, THREADS, unroll=1):
            r, column = o // (COLUMNS // 2), o % (COLUMNS // 2) * 2
            v = r * 8 + column % 8
            a, b = red[0, v, column // 8], red[0, v + 1, column // 8]
            for k in cutlass.range_constexpr(1, THREADS // 32):
                a += red[k, v, column // 8]
                b += red[k, v + 1, column // 8]
            ptx.store4(qb + (r * (HEADS * 2 * CACHED) + chunk * (2 * COLUMNS) + column * 2), ptx.pack(a, b))
        if chunk == 0:
            for o in cutlass.range(tid, R * (SHARED_KEY // 8), THREADS, unroll=1):
                r, at = o // (SHARED_KEY // 8), o % (SHARED_KEY // 8) * 16
                key = ptx.load16(ub + (r * (2 * QUERY) + 2 * NOPE + at), "plain")
                ptx.store16(qb + (r * (HEADS * 2 * CACHED) + 2 * KV_RANK + at), key[0], key[1], key[2], key[3])

    def halved(self, values: list[Any], lane: Any, step: int) -> list[Any]:
        """Sums with the lane ``step`` away: the upper lane keeps the second half of the values, the lower lane the first."""
        n = len(values) // 2
        return [ptx.swap(values[i], values[i + n], (lane & step) != 0, step) for i in range(n)]


class AbsorbTiles:
    """M is a multiple of 8. The transposed weight is the 16-row operand: warp w makes latent columns 16 w .. + 15 for all rows."""

    def __init__(self, m: int, *, pdl: bool = True) -> None:
        if m % 8:
            raise ValueError(f"expected a multiple of 8 rows, found {m}")
        self.m, self.pdl = m, pdl

    @cute.jit
    def __call__(self, up: cute.Tensor, weight: cute.Tensor, query: cute.Tensor, stream: Any) -> None:
        self.kernel(up, weight, query).launch(
            grid=(KV_RANK // COLUMNS, HEADS, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            use_pdl=bool(self.pdl),
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(self, up: cute.Tensor, weight: cute.Tensor, query: cute.Tensor) -> None:
        M = self.m
        J = M // 8
        tid, _, _ = cute.arch.thread_idx()
        chunk, head, _ = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        smem = SmemAllocator()
        ws = ptx.saddr(smem.allocate_array(Uint8, NOPE * W_PITCH, byte_alignment=16))
        xs = ptx.saddr(smem.allocate_array(Uint8, M * X_PITCH, byte_alignment=16))
        wb = ptx.addr(weight.iterator) + Int64(head * (NOPE + VALUE) * (2 * KV_RANK) + chunk * (2 * COLUMNS))
        words = [ptx.load16(wb + Int64((tid // 8 + 16 * i) * (2 * KV_RANK) + tid % 8 * 16)) for i in range(NOPE // 16)]
        for i in cutlass.range_constexpr(NOPE // 16):
            w = words[i]
            ptx.store_shared16(ws + (tid // 8 + 16 * i) * W_PITCH + tid % 8 * 16, w[0], w[1], w[2], w[3])
        ptx.begin(self.pdl)
        ub = ptx.addr(up.iterator) + Int64(head * (2 * HEAD_IN))
        given = [ptx.load16(ub + Int64((tid // 16 + 8 * i) * (2 * QUERY) + tid % 16 * 16), "plain") for i in range(J)]
        for i in cutlass.range_constexpr(J):
            x = given[i]
            ptx.store_shared16(xs + (tid // 16 + 8 * i) * X_PITCH + tid % 16 * 16, x[0], x[1], x[2], x[3])
        qb = ptx.addr(query.iterator) + Int64(head * (2 * CACHED))
        for o in cutlass.range(tid + chunk * THREADS, M * (SHARED_KEY // 8), THREADS * (KV_RANK // COLUMNS), unroll=1):
            r, at = o // (SHARED_KEY // 8), o % (SHARED_KEY // 8) * 16
            key = ptx.load16(ub + Int64(r * (2 * QUERY) + 2 * NOPE + at), "plain")
            ptx.store16(qb + Int64(r * (HEADS * 2 * CACHED) + 2 * KV_RANK + at), key[0], key[1], key[2], key[3])
        cute.arch.sync_threads()
        r7 = lane % 8
        acc = cute.make_rmem_tensor((4 * J,), Float32)
        acc.fill(0.0)
        wa = ws + (lane // 16 * 8 + r7) * W_PITCH + (warp * 16 + lane // 8 % 2 * 8) * 2
        xa = xs + r7 * X_PITCH + lane // 8 * 16
        for k in cutlass.range_constexpr(NOPE // 32):
            first = ptx.matrices4_turned(wa + 32 * k * W_PITCH)
            second = ptx.matrices4_turned(wa + (32 * k + 16) * W_PITCH)
            for j in cutlass.range_constexpr(J):
                b = ptx.matrices4(xa + 8 * j * X_PITCH + k * 64)
                d = ptx.mma(first, (b[0], b[1]), tuple(acc[4 * j + e] for e in range(4)))
                d = ptx.mma(second, (b[2], b[3]), d)
                for e in cutlass.range_constexpr(4):
                    acc[4 * j + e] = d[e]
        g, t = lane // 4, lane % 4
        odd = g % 2
        to = qb + Int64(chunk * (2 * COLUMNS) + (warp * 16 + g - odd) * 2)
        for j in cutlass.range_constexpr(J):
            for half in cutlass.range_constexpr(2):
                low, high = acc[4 * j + 2 * half], acc[4 * j + 2 * half + 1]
                mine = high if odd == 1 else low
                got = cute.arch.shuffle_sync_bfly(low if odd == 1 else high, 4)
                word = ptx.pack(got, mine) if odd == 1 else ptx.pack(mine, got)
                row = 8 * j + 2 * t + odd
                ptx.store4(to + Int64(row * (HEADS * 2 * CACHED) + half * 16), word)


assert DEPTH == 8 and COLUMNS == 8 * 8
