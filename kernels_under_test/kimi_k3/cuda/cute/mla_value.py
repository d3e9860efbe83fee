"""Merge of the attention's parts, the value half of the latent's up projection, and the output gate.

A cluster of 8 CTAs serves a head of a row: CTA c merges latent columns 64 c .. + 63, sends them to the others, and computes 16 of
the head's 128 values. With ``ranks`` above 1 the parts of other ranks (decode context parallelism) are merged too, in rank order.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32, Int64
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import mla_plan as plan
from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.mla_sizes import GATE_AT, KV_RANK, NOPE, VALUE
from kernels_under_test.kimi_k3.cuda.sizes import HEADS, WIDTH

CTAS = 8
COLUMNS = KV_RANK // CTAS
VALUES = VALUE // CTAS
LOG2E = 1.4426950408889634


class MlaValue:
    """One or two rows. ``grid`` is the attention core's; T threads. A row without tokens becomes zero, whatever its gate holds.

    Other ranks' parts: bf16 latents [(ranks - 1) M 12, 512] and fp32 natural logarithms [(ranks - 1) M, 12]; this rank stands at place
    ``rank``. A part whose logarithm is NaN or infinite counts nothing, and its data are not looked at.
    """

    def __init__(
        self, m: int, *, threads: int = 512, grid: int = 132, ranks: int = 1, rank: int = 0, pdl: bool = True
    ) -> None:
        if threads not in (128, 256, 512):
            raise ValueError(f"expected 128, 256 or 512 threads, found {threads}")
        if not 0 <= rank < ranks:
            raise ValueError(f"expected a rank below {ranks}, found {rank}")
        self.m, self.threads, self.grid, self.ranks, self.rank, self.pdl = m, threads, grid, ranks, rank, pdl

    @cute.jit
    def __call__(
        self, part: cute.Tensor, lse: cute.Tensor, lens: cute.Tensor, weight: cute.Tensor, y: cute.Tensor,
        other: cute.Tensor, other_lse: cute.Tensor, out: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(part, lse, lens, weight, y, other, other_lse, out).launch(
            grid=(CTAS, HEADS, self.m),
            block=(self.threads, 1, 1),
            cluster=(CTAS, 1, 1),
            stream=stream,
            use_pdl=bool(self.pdl),
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, part: cute.Tensor, lse: cute.Tensor, lens: cute.Tensor, weight: cute.Tensor, y: cute.Tensor,
        other: cute.Tensor, other_lse: cute.Tensor, out: cute.Tensor,
    ) -> None:  # fmt: skip
        M, T = self.m, self.threads
        walkers, lanes = T // 16, T // VALUES
        chunks = KV_RANK // 8 // lanes
        tid, _, _ = cute.arch.thread_idx()
        rank, head, row = cute.arch.block_idx()
        smem = SmemAllocator()
        counts = smem.allocate_tensor(Int32, cute.make_layout(M), 16)
        starts = smem.allocate_tensor(Int32, cute.make_layout(M + 1), 16)
        share = smem.allocate_tensor(Float32, cute.make_layout(self.grid), 16)
        sums = smem.allocate_tensor(Float32, cute.make_layout((walkers, COLUMNS), stride=(COLUMNS, 1)), 16)
        latent = smem.allocate_tensor(Float32, cute.make_layout(KV_RANK), 16)
        cute.arch.cluster_arrive_relaxed()
        value, piece = rank * VALUES + tid // lanes, tid % lanes
        wb = ptx.addr(weight.iterator) + Int64((head * (NOPE + VALUE) + NOPE + value) * (2 * KV_RANK) + piece * 16)
        words = [ptx.load16(wb + i * lanes * 16) for i in range(chunks)]
        plan.fill(lens, counts, starts, tid, M)
        total = starts[M]
        n, at = plan.span(row, starts, total, plan.active(total, self.grid))
        ptx.begin(self.pdl)
        gate = y[row, GATE_AT + head * VALUE + value].to(Float32)
        whole, log = plan.shares(lse, head, n, at, share, self.grid, tid)
        cute.arch.sync_threads()
        columns, first = tid % 16, tid // 16
        pb = ptx.addr(part.iterator) + Int64((at * HEADS + head) * (4 * KV_RANK) + rank * (4 * COLUMNS) + columns * 16)
        acc = [Float32(0.0) for _ in range(4)]
        for i in cutlass.range(first, n, walkers, unroll=4):
            w = share[i]
            v = ptx.load16(pb + Int64(i) * (4 * HEADS * KV_RANK), "plain")
            for e in cutlass.range_constexpr(4):
                acc[e] = ptx.fma(w, ptx.as_float(v[e]), acc[e])
        for e in cutlass.range_constexpr(4):
            sums[first, columns * 4 + e] = acc[e]
        cute.arch.sync_threads()
        cute.arch.cluster_wait()
        lb = ptx.saddr(latent.iterator)
        if tid < COLUMNS:
            v = sums[0, tid]
            for k in cutlass.range_constexpr(1, walkers):
                v += sums[k, tid]
            v = ptx.rounded(v * (1.0 / whole)) if n > 0 else Float32(0.0)
            if cutlass.const_expr(self.ranks > 1):
                v = self.merged(v, n > 0, log, row, head, rank * COLUMNS + tid, other, other_lse)
            for c in cutlass.range_constexpr(CTAS):
                ptx.store_remote(ptx.remote(lb + (rank * COLUMNS + tid) * 4, Int32(c)), v)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        dot = Float32(0.0)
        for i in cutlass.range_constexpr(chunks):
            weights, a = ptx.floats(words[i]), lb + (i * lanes + piece) * 32
            x = [ptx.as_float(v) for o in (0, 16) for v in ptx.shared16(a, o)]
            for e in cutlass.range_constexpr(8):
                dot = ptx.fma(weights[e], x[e], dot)
        dot = ptx.warp_sum(dot, lanes)
        if piece == 0:
            live = n > 0
            if cutlass.const_expr(self.ranks > 1):
                live = dot != 0.0  # all ranks empty, or a product that the gate cannot change
            done = ptx.rounded(dot) * ptx.sigmoid(gate) if live else Float32(0.0)
            out[row, head * VALUE + value] = done.to(BFloat16)

    @cute.jit
    def merged(
        self, own: Any, have: Any, own_lse: Any, row: Any, head: Any, column: Any, other: cute.Tensor, other_lse: cute.Tensor
    ) -> Any:  # fmt: skip
        """The latent column over all ranks, fp32 in rank order, rounded once."""
        none = Float32(float("-inf"))
        logs = []
        for k in cutlass.range_constexpr(self.ranks):
            if cutlass.const_expr(k == self.rank):
                logs.append(own_lse if have else none)
            else:
                v = other_lse[(k - (k > self.rank)) * self.m + row, head] * LOG2E
                logs.append(v if cute.math.abs(v) < float("inf") else none)
        top = logs[0]
        for k in cutlass.range_constexpr(1, self.ranks):
            top = cutlass.max(top, logs[k])
        value, whole = Float32(0.0), Float32(0.0)
        if top > none:
            for k in cutlass.range_constexpr(self.ranks):
                if logs[k] > none:
                    w = ptx.exp2(logs[k] - top)
                    whole += w
                    if cutlass.const_expr(k == self.rank):
                        value = ptx.fma(w, own, value)
                    else:
                        place = ((k - (k > self.rank)) * self.m + row) * HEADS + head
                        value = ptx.fma(w, other[place, column].to(Float32), value)
            value = ptx.rounded(value * (1.0 / whole))
        return value


assert WIDTH == HEADS * VALUE and COLUMNS == 16 * 4
