"""Routing, and above two rows grouping, on CTAs of their own in one launch with the shared expert's second product.

The same CTAs set the experts' counters (done, one a unit) to zero. Routing and product need only what earlier launches wrote, and
either alone leaves most of the device idle.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.experimental import cuda as xcuda
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.cute.ring import Ring
from kernels_under_test.kimi_k3.cuda.cute.route import Group, Route
from kernels_under_test.kimi_k3.cuda.cute.skinny import Skinny
from kernels_under_test.kimi_k3.cuda.sizes import TOP_K

FAULTS = ("", "unarmed")
"""What a mutant leaves out: the experts' counters keep what the step before left in them."""


class RouteBesideSkinny:
    """The first M CTAs route a row each, the others share the product of a Skinny (whose ``grid`` leaves room for them)."""

    def __init__(self, route: Route, product: Skinny) -> None:
        self.route, self.product, self.m = route, product, route.m

    @cute.jit
    def __call__(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, done: cute.Tensor,
        x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(logits, bias, ids, weights, done, x, w, y).launch(
            grid=(self.m + self.product.grid, 1, 1),
            block=(self.product.threads, 1, 1),
            stream=stream,
            use_pdl=bool(self.product.pdl),
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, done: cute.Tensor,
        x: cute.Tensor, w: cute.Tensor, y: cute.Tensor,
    ) -> None:  # fmt: skip
        bid, _, _ = cute.arch.block_idx()
        if bid < self.m:
            self.route.work(bid, logits, bias, ids, weights)
            tid, _, _ = cute.arch.thread_idx()
            if tid < TOP_K:
                done[bid * TOP_K + tid] = Int32(0)
        else:
            self.product.work(bid - self.m, x, w, y, y, y)


class RoutedGroupsBesideRing:
    """The first M CTAs route a row each, and the last of them to finish groups; the others are the tiles of a Ring without a cluster.

    ``arrivals`` counts the routed rows and is back at zero behind the last one.

    Raises:
        ValueError: if the ring splits its columns over a cluster.
    """

    def __init__(self, route: Route, group: Group, product: Ring, fault: str = "") -> None:
        if fault not in FAULTS:
            raise ValueError(f"expected a fault out of {FAULTS}, found {fault!r}")
        self.fault = fault
        if product.cl != 1:
            raise ValueError(f"expected a ring without a cluster, found a cluster of {product.cl}")
        self.route, self.group, self.product, self.m = route, group, product, route.m

    @cute.jit
    def __call__(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, count: cute.Tensor,
        expert: cute.Tensor, token: cute.Tensor, pair: cute.Tensor, done: cute.Tensor, arrivals: cute.Tensor,
        x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        dw, dx = self.product.maps(x, w)
        self.kernel(logits, bias, ids, weights, count, expert, token, pair, done, arrivals, dw, dx, y).launch(
            grid=(self.m + self.product.tiles, 1, 1),
            block=(self.product.threads, 1, 1),
            stream=stream,
            use_pdl=bool(self.product.pdl),
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, count: cute.Tensor,
        expert: cute.Tensor, token: cute.Tensor, pair: cute.Tensor, done: cute.Tensor, arrivals: cute.Tensor,
        dw: cutlass.GridConstant[xcuda.TensorMap], dx: cutlass.GridConstant[xcuda.TensorMap], y: cute.Tensor,
    ) -> None:  # fmt: skip
        bid, _, _ = cute.arch.block_idx()
        if bid < self.m:
            self.route.work(bid, logits, bias, ids, weights)
            tid, _, _ = cute.arch.thread_idx()
            smem = SmemAllocator()
            before = smem.allocate_tensor(Int32, cute.make_layout(1), 4)
            if cutlass.const_expr(self.fault != "unarmed"):  # noqa: SIM102 (a condition of the build, and one of the run)
                if tid < TOP_K:
                    done[bid * TOP_K + tid] = Int32(0)
            cute.arch.sync_threads()
            if tid == 0:
                before[0] = ptx.arrive_in_turn(ptx.addr(arrivals.iterator), self.m - 1)
            cute.arch.sync_threads()
            if before[0] == self.m - 1:
                self.group.work(ids, count, expert, token, pair)
        else:
            self.product.work(0, bid - self.m, dw, dx, y, y, y)
