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


class Route:
    """One CTA a row. Each warp takes the 16 best of its 128 experts, then one warp the 16 best of those 112.

    Ties go to the lower expert, NaN comes last. Weights are bf16 values stored as fp32.
    """

    def __init__(self, m: int, *, pdl: bool = True) -> None:
        self.m, self.pdl = m, pdl

    @cute.jit
    def __call__(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, stream: Any
    ) -> None:
        self.kernel(logits, bias, ids, weights).launch(
            grid=(self.m, 1, 1), block=(32 * WARPS, 1, 1), stream=stream, use_pdl=self.pdl, min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor) -> None:
        tid, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        smem = SmemAllocator()
        best = smem.allocate_tensor(Uint32, cute.make_layout(TOP_K * WARPS), 16)
        who = smem.allocate_tensor(Uint32, cute.make_layout(TOP_K * WARPS), 16)
        chosen = smem.allocate_tensor(Int32, cute.make_layout(TOP_K), 16)
        first = warp * 128 + lane
        extra = [bias[first + 32 * i] for i in range(PER_LANE)]
        ptx.begin(self.pdl)
        key, name = [], []
        for i in cutlass.range_constexpr(PER_LANE):
            key.append(self.order(ptx.sigmoid(logits[row, first + 32 * i]) + extra[i]))
            name.append(Uint32(first + 32 * i))
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
    """One CTA: units of an expert and up to 8 of its tokens, ordered by expert; count[0] is their number.

    Slots behind an expert's tokens hold -1. Which slot a token gets may change from launch to launch; its result does not.
    """

    def __init__(self, m: int, *, pdl: bool = True) -> None:
        self.m, self.pdl = m, pdl

    @cute.jit
    def __call__(
        self,
        ids: cute.Tensor,
        count: cute.Tensor,
        expert: cute.Tensor,
        token: cute.Tensor,
        pair: cute.Tensor,
        stream: Any,
    ) -> None:
        self.kernel(ids, count, expert, token, pair).launch(
            grid=(1, 1, 1), block=(1024, 1, 1), stream=stream, use_pdl=self.pdl, min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self, ids: cute.Tensor, count: cute.Tensor, expert: cute.Tensor, token: cute.Tensor, pair: cute.Tensor
    ) -> None:
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, tid // 32
        smem = SmemAllocator()
        held = smem.allocate_tensor(Uint32, cute.make_layout(1024), 16)
        base = smem.allocate_tensor(Int32, cute.make_layout(1024), 16)
        sums = smem.allocate_tensor(Int32, cute.make_layout(32), 16)
        held[tid] = Uint32(0)
        ptx.begin(self.pdl)
        cute.arch.sync_threads()
        mine, rank = Int32(0), Int32(0)
        if tid < self.m * TOP_K:
            mine = ids[tid // TOP_K, tid % TOP_K]
            rank = Int32(ptx.shared_add(ptx.saddr(held.iterator) + mine * 4, 1))
        cute.arch.sync_threads()
        tokens = Int32(held[tid])
        units = (tokens + UNIT - 1) // UNIT
        scan = units
        for s in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(scan, 1 << s, mask_and_clamp=0)
            scan = scan + (below if lane >= (1 << s) else Int32(0))
        if lane == 31:
            sums[warp] = scan
        cute.arch.sync_threads()
        before, whole = Int32(0), Int32(0)
        for i in cutlass.range_constexpr(32):
            v = sums[i]
            before = before + (v if i < warp else Int32(0))
            whole = whole + v
        start = before + scan - units
        base[tid] = start
        if tid == 0:
            count[0] = whole
        for u in cutlass.range(units, unroll=1):
            expert[start + u] = tid
        if tokens > 0:
            for s in cutlass.range(tokens, units * UNIT, unroll=1):
                token[start * UNIT + s] = Int32(-1)
                pair[start * UNIT + s] = Int32(-1)
        cute.arch.sync_threads()
        if tid < self.m * TOP_K:
            at = base[mine] * UNIT + rank
            token[at] = tid // TOP_K
            pair[at] = tid
