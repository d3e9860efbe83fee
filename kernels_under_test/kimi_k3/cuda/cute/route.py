"""Routing: top 16 of 896 by sigmoid plus bias, and the table of expert units."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint32
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.sizes import EXPERTS, TOP_K, UNIT

WARPS = 7
PER_LANE = EXPERTS // (32 * WARPS)
"""Experts of a lane (route) or of a thread (group)."""


class Route:
    """One CTA a row. Each warp takes the 16 best of its 128 experts, then one warp the 16 best of those 112.

    Ties go to the lower expert, NaN comes last. Weights are bf16 values stored as fp32.
    """

    def __init__(self, m: int, *, pdl: bool = True, first: bool = False) -> None:
        self.m, self.pdl, self.first = m, pdl, first

    @cute.jit
    def work(self, row: Any, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor) -> None:
        """One row; warps behind the seventh only take part in the barrier."""
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, tid // 32
        smem = SmemAllocator()
        best = smem.allocate_tensor(Uint32, cute.make_layout(TOP_K * WARPS), 16)
        who = smem.allocate_tensor(Uint32, cute.make_layout(TOP_K * WARPS), 16)
        first = cutlass.min(warp, WARPS - 1) * 128 + lane
        extra = [bias[first + 32 * i] for i in range(PER_LANE)]
        ptx.begin(self.pdl, self.first)
        key, name = [], []
        for i in cutlass.range_constexpr(PER_LANE):
            key.append(self.order(ptx.sigmoid(logits[row, first + 32 * i]) + extra[i]))
            name.append(Uint32(first + 32 * i))
        if warp < WARPS:
            self.take(key, name, best, who, warp * TOP_K, lane)
        cute.arch.sync_threads()
        if warp == 0:
            key2, name2 = [], []
            for i in cutlass.range_constexpr(4):
                at = cutlass.min(lane + 32 * i, TOP_K * WARPS - 1)
                ok = lane + 32 * i < TOP_K * WARPS
                value, other = best[at], who[at]
                key2.append(value if ok else Uint32(0))
                name2.append(other if ok else Uint32(0xFFFF))
            cute.arch.sync_warp()
            self.take(key2, name2, best, who, 0, lane)
            cute.arch.sync_warp()
            mine = Int32(who[lane % TOP_K])
            score = ptx.sigmoid(logits[row, cutlass.min(mine, EXPERTS - 1)])
            total = ptx.warp_sum(score, 16)
            if lane < TOP_K:
                ids[row, lane] = mine
                weights[row, lane] = ptx.rounded(score / (total + 1e-20))

    @cute.jit
    def order(self, v: Any) -> Any:
        """An unsigned word that sorts like the float; NaN below everything."""
        bits = ptx.as_bits(v)
        sign = Uint32(Int32(bits) >> 31)
        word = Uint32(bits ^ (sign | Uint32(0x80000000)))
        return word if (v == v) else Uint32(1)

    @cute.jit
    def take(self, key: Any, name: Any, best: Any, who: Any, at: Any, lane: Any) -> None:
        n = len(key)
        for i in cutlass.range_constexpr(TOP_K):
            top, low = key[0], name[0]
            for j in cutlass.range_constexpr(1, n):
                better = (key[j] > top) | ((key[j] == top) & (name[j] < low))
                top, low = key[j] if better else top, name[j] if better else low
            most = ptx.warp_max(top)
            least = ptx.warp_min(low if top == most else Uint32(0xFFFFF))
            if lane == 0:
                best[at + i] = most
                who[at + i] = least
            for j in cutlass.range_constexpr(n):
                key[j] = Uint32(0) if name[j] == least else key[j]


class Group:
    """One CTA of at least 224 threads: units of an expert and up to 8 of its tokens, ordered by expert; count[0] is their number.

    Slots behind an expert's tokens hold -1. Which slot a token gets may change from launch to launch; its result does not.
    """

    def __init__(self, m: int, *, threads: int = 256, pdl: bool = True, first: bool = False) -> None:
        if threads < 32 * WARPS:
            raise ValueError(f"expected at least {32 * WARPS} threads, found {threads}")
        self.m, self.pdl, self.threads, self.first = m, pdl, threads, first

    @cute.jit
    def work(
        self, ids: cute.Tensor, count: cute.Tensor, expert: cute.Tensor, token: cute.Tensor, pair: cute.Tensor
    ) -> None:
        """Count the tokens of each expert, place the experts' units one behind the other, fill them. A thread owns four experts."""
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, tid // 32
        pairs, threads = self.m * TOP_K, self.threads
        smem = SmemAllocator()
        held = smem.allocate_tensor(Uint32, cute.make_layout(EXPERTS), 16)
        base = smem.allocate_tensor(Int32, cute.make_layout(EXPERTS), 16)
        rank = smem.allocate_tensor(Uint32, cute.make_layout(pairs), 16)
        sums = smem.allocate_tensor(Int32, cute.make_layout(WARPS), 16)
        for e in cutlass.range(tid, EXPERTS, threads, unroll=1):
            held[e] = Uint32(0)
        ptx.begin(self.pdl, self.first)
        cute.arch.sync_threads()
        for p in cutlass.range(tid, pairs, threads, unroll=1):
            rank[p] = ptx.shared_add(ptx.saddr(held.iterator) + ids[p // TOP_K, p % TOP_K] * 4, 1)
        cute.arch.sync_threads()
        first = cutlass.min(tid, 32 * WARPS - 1) * PER_LANE
        tokens = [Int32(held[first + i]) for i in range(PER_LANE)]
        units = [(n + UNIT - 1) // UNIT for n in tokens]
        mine = (units[0] + units[1]) + (units[2] + units[3])
        scan = mine
        for s in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(scan, 1 << s, mask_and_clamp=0)
            scan = scan + (below if lane >= (1 << s) else Int32(0))
        if (lane == 31) & (warp < WARPS):
            sums[warp] = scan
        cute.arch.sync_threads()
        if warp < WARPS:
            before, whole = Int32(0), Int32(0)
            for i in cutlass.range_constexpr(WARPS):
                v = sums[i]
                before = before + (v if i < warp else Int32(0))
                whole = whole + v
            if tid == 0:
                count[0] = whole
            start = before + scan - mine
            for i in cutlass.range_constexpr(PER_LANE):
                base[first + i] = start
                for u in cutlass.range(units[i], unroll=1):
                    expert[start + u] = first + i
                for s in cutlass.range(tokens[i], units[i] * UNIT, unroll=1):
                    token[start * UNIT + s] = Int32(-1)
                    pair[start * UNIT + s] = Int32(-1)
                start = start + units[i]
        cute.arch.sync_threads()
        for p in cutlass.range(tid, pairs, threads, unroll=1):
            at = base[ids[p // TOP_K, p % TOP_K]] * UNIT + Int32(rank[p])
            token[at] = p // TOP_K
            pair[at] = p
