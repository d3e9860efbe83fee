"""Eight rows and more: merge of the attention's parts, and the value product of all heads on the tensor cores."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import mla_plan as plan
from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.cute.ring import Ring
from kernels_under_test.kimi_k3.cuda.mla_sizes import KV_RANK, NOPE, VALUE
from kernels_under_test.kimi_k3.cuda.sizes import HEADS, WIDTH

THREADS = KV_RANK // 4


class Merge:
    """latent[head, row] = bf16 sum of the row's parts by their logarithms; zero for a row without tokens. One CTA a row and head;
    ``grid`` is the attention core's. The fault "early" of a mutant: it does not wait for the core."""

    def __init__(self, m: int, *, grid: int = 132, pdl: bool = True, fault: str = "") -> None:
        if fault not in ("", "early"):
            raise ValueError(f"expected no fault or early, found {fault!r}")
        self.m, self.grid, self.pdl, self.fault = m, grid, pdl, fault

    @cute.jit
    def __call__(
        self, part: cute.Tensor, lse: cute.Tensor, lens: cute.Tensor, latent: cute.Tensor, stream: Any
    ) -> None:  # fmt: skip
        self.kernel(part, lse, lens, latent).launch(
            grid=(HEADS, self.m, 1), block=(THREADS, 1, 1), stream=stream, use_pdl=bool(self.pdl), min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(self, part: cute.Tensor, lse: cute.Tensor, lens: cute.Tensor, latent: cute.Tensor) -> None:
        M = self.m
        tid, _, _ = cute.arch.thread_idx()
        head, row, _ = cute.arch.block_idx()
        smem = SmemAllocator()
        counts = smem.allocate_tensor(Int32, cute.make_layout(M), 16)
        starts = smem.allocate_tensor(Int32, cute.make_layout(M + 1), 16)
        share = smem.allocate_tensor(Float32, cute.make_layout(self.grid), 16)
        plan.fill(lens, counts, starts, tid, M)
        total = starts[M]
        n, at = plan.span(row, starts, total, plan.active(total, self.grid))
        if cutlass.const_expr(self.fault != "early"):
            ptx.begin(self.pdl)
        whole, _ = plan.shares(lse, head, n, at, share, self.grid, tid)
        cute.arch.sync_threads()
        acc = [Float32(0.0) for _ in range(4)]
        source = ptx.addr(part.iterator) + Int64(at * HEADS + head) * (4 * KV_RANK) + Int64(tid * 16)
        for i in cutlass.range(n, unroll=4):
            w = share[i]
            v = ptx.load16(source + Int64(i) * (4 * HEADS * KV_RANK), "plain")
            for e in cutlass.range_constexpr(4):
                acc[e] = ptx.fma(w, ptx.as_float(v[e]), acc[e])
        inverse = Float32(0.0)
        if n > 0:
            inverse = 1.0 / whole
        acc = [a * inverse for a in acc]
        to = ptx.addr(latent.iterator) + Int64((head * M + row) * (2 * KV_RANK) + tid * 8)
        ptx.store8(to, ptx.pack(acc[0], acc[1]), ptx.pack(acc[2], acc[3]))


class Values(Ring):
    """core[m, 128 h + v] = gated sum over the latent of latent[h, m] W[h, 128 + v]: a Ring whose tiles lie in the value rows of each
    head's matrix, and whose x is that head's."""

    def __init__(self, m: int, *, tr: int, kc: int, s: int, wk: int = 8, pdl: bool = True) -> None:
        super().__init__(m, WIDTH, KV_RANK, tr=tr, kc=kc, s=s, wk=wk, epilogue="gate", pdl=pdl)
        if VALUE % tr:
            raise ValueError(f"expected tiles that divide {VALUE} rows, found {tr}")
        self.weight_rows, self.x_rows = HEADS * (NOPE + VALUE), HEADS * m

    def weight_row(self, tile: Any) -> Any:
        """The first weight row of a tile."""
        first = tile * self.tr
        return first // VALUE * (NOPE + VALUE) + NOPE + first % VALUE

    def x_row(self, tile: Any) -> Any:
        """The first row of the tile's head."""
        return tile * self.tr // VALUE * self.m
