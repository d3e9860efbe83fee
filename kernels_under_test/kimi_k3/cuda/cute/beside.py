"""Two small kernels in one launch, the routing (one or two rows) or the grouping (more rows) on CTAs of its own beside shared_down.

Both need only what earlier launches wrote, and either alone leaves most of the device idle.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.experimental import cuda as xcuda

from kernels_under_test.kimi_k3.cuda.cute.ring import Ring
from kernels_under_test.kimi_k3.cuda.cute.route import Group, Route
from kernels_under_test.kimi_k3.cuda.cute.skinny import Skinny


class RouteBesideSkinny:
    """The first M CTAs route a row each, the others share the product of a Skinny (whose ``grid`` leaves room for them)."""

    def __init__(self, route: Route, product: Skinny) -> None:
        self.route, self.product, self.m = route, product, route.m

    @cute.jit
    def __call__(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, x: cute.Tensor,
        w: cute.Tensor, y: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(logits, bias, ids, weights, x, w, y).launch(
            grid=(self.m + self.product.grid, 1, 1),
            block=(self.product.threads, 1, 1),
            stream=stream,
            use_pdl=self.product.pdl,
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, x: cute.Tensor,
        w: cute.Tensor, y: cute.Tensor,
    ) -> None:  # fmt: skip
        bid, _, _ = cute.arch.block_idx()
        if bid < self.m:
            self.route.work(bid, logits, bias, ids, weights)
        else:
            self.product.work(bid - self.m, x, w, y, y, y)


class GroupBesideRing:
    """The first CTA groups, the others are the tiles of a Ring without a cluster.

    Raises:
        ValueError: if the ring splits its columns over a cluster.
    """

    def __init__(self, group: Group, product: Ring) -> None:
        if product.cl != 1:
            raise ValueError(f"expected a ring without a cluster, found a cluster of {product.cl}")
        self.group, self.product = group, product

    @cute.jit
    def __call__(
        self, ids: cute.Tensor, count: cute.Tensor, expert: cute.Tensor, token: cute.Tensor, pair: cute.Tensor,
        x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        dw, dx = self.product.maps(x, w)
        self.kernel(ids, count, expert, token, pair, dw, dx, y).launch(
            grid=(1 + self.product.tiles, 1, 1),
            block=(self.product.threads, 1, 1),
            stream=stream,
            use_pdl=self.product.pdl,
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, ids: cute.Tensor, count: cute.Tensor, expert: cute.Tensor, token: cute.Tensor, pair: cute.Tensor,
        dw: cutlass.GridConstant[xcuda.TensorMap], dx: cutlass.GridConstant[xcuda.TensorMap], y: cute.Tensor,
    ) -> None:  # fmt: skip
        bid, _, _ = cute.arch.block_idx()
        if bid == 0:
            self.group.work(ids, count, expert, token, pair)
        else:
            self.product.work(0, bid - 1, dw, dx, y, y, y)
