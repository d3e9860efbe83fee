"""What the row kernels (residuals, finalise) share: a cluster of 7 CTAs owns a row, and one exchange adds up their sums."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx

CTAS = 7
THREADS = 128
WARPS = THREADS // 32


def launch(rows: int, pdl: bool) -> dict[str, Any]:
    """Launch options of a row kernel: block x is the rank in the cluster, block y the row."""
    return {
        "grid": (CTAS, rows, 1),
        "block": (THREADS, 1, 1),
        "cluster": (CTAS, 1, 1),
        "use_pdl": bool(pdl),
        "min_blocks_per_mp": 1,
    }


def sums(n: int) -> tuple[Any, Any]:
    """Shared memory for n sums of a row: by warp of this CTA, and by CTA of the cluster.

    Called at the start of a kernel: it also announces this CTA, so that the wait before the first send is over by then.
    """
    smem = SmemAllocator()
    mine = smem.allocate_tensor(Float32, cute.make_layout((WARPS, n), stride=(n, 1)), 16)
    every = smem.allocate_tensor(Float32, cute.make_layout((CTAS, n), stride=(n, 1)), 16)
    cute.arch.cluster_arrive_relaxed()
    return mine, every


@cute.jit
def exchange(mine: cute.Tensor, every: cute.Tensor, n: cutlass.Constexpr, tid: Any, rank: Any) -> None:
    """Send each of this CTA's n sums to each CTA of the cluster, and wait for theirs."""
    cute.arch.sync_threads()
    cute.arch.cluster_wait()
    base = ptx.saddr(every.iterator)
    for o in cutlass.range(tid, n * CTAS, THREADS, unroll=1):
        i, to = o % n, o // n
        v = (mine[0, i] + mine[1, i]) + (mine[2, i] + mine[3, i])
        ptx.store_remote(ptx.remote(base + (rank * n + i) * 4, to), v)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


def total(every: cute.Tensor, i: Any) -> Any:
    """Sum i over the cluster, in the order of the ranks."""
    value = every[0, i]
    for c in range(1, CTAS):
        value = value + every[c, i]
    return value
