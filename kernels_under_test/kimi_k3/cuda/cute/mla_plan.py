"""Which CTA of the attention core owns which blocks: found by each CTA from the lengths, so no table has to be made.

All blocks of all rows stand in one line, and CTA c of n takes those from c total / n to (c + 1) total / n (``mla_sizes.segments``
writes it out). A part of a row lies at place row + CTA.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Constexpr, Float32, Int32

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.mla_sizes import BLOCK


@cute.jit
def fill(lens: cute.Tensor, counts: cute.Tensor, starts: cute.Tensor, tid: Any, m: Constexpr) -> None:
    """starts[r] = blocks of the rows before r, starts[m] = all; in shared memory, by at least m + 1 threads, with barriers."""
    if tid < m:
        counts[tid] = (lens[tid] + (BLOCK - 1)) // BLOCK
    cute.arch.sync_threads()
    if tid <= m:
        before = Int32(0)
        for i in cutlass.range_constexpr(m):
            if tid > i:
                before += counts[i]
        starts[tid] = before
    cute.arch.sync_threads()


def active(total: Any, grid: int) -> Any:
    """CTAs that get blocks; at least one, so that it can be divided by."""
    return cutlass.max(Int32(1), cutlass.min(Int32(grid), total))


def owner(block: Any, total: Any, ctas: Any) -> Any:
    """The CTA that takes a block; ``total`` is not zero."""
    return ((block + 1) * ctas - 1) // total


@cute.jit
def span(row: Any, starts: cute.Tensor, total: Any, ctas: Any) -> Any:
    """Parts of a row, and the place of the first."""
    start, end = starts[row], starts[row + 1]
    n, at = Int32(0), Int32(0)
    if end > start:
        first = owner(start, total, ctas)
        n = owner(end - 1, total, ctas) - first + 1
        at = first + row
    return n, at


@cute.jit
def shares(lse: cute.Tensor, head: Any, n: Any, at: Any, share: cute.Tensor, grid: Constexpr, tid: Any) -> Any:
    """Weights of a row's parts relative to the largest, share[i] = 2^(lse - top), for every warp (the first one writes);
    returns their sum and the log2 of the whole. All logarithms are loaded at once."""
    lane = tid % 32
    logs = []
    for u in cutlass.range_constexpr(-(-grid // 32)):
        i = lane + 32 * u
        v = lse[at + cutlass.max(cutlass.min(i, n - 1), 0), head]
        logs.append(v if i < n else Float32(float("-inf")))
    top = logs[0]
    for u in cutlass.range_constexpr(1, len(logs)):
        top = cutlass.max(top, logs[u])
    for step in cutlass.range_constexpr(5):
        top = cutlass.max(top, cute.arch.shuffle_sync_bfly(top, 1 << step))
    whole = Float32(0.0)
    for u in cutlass.range_constexpr(len(logs)):
        w = ptx.exp2(logs[u] - top)
        whole += w
        if (tid < 32) & (lane + 32 * u < n):
            share[lane + 32 * u] = w
    whole = ptx.warp_sum(whole)
    return whole, top + ptx.log2(whole)
