"""The two norms of an MLA layer's latents, and the step's new rows of the cache."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.cute.skinny import Skinny
from kernels_under_test.kimi_k3.cuda.mla_sizes import CACHED, KV_AT, KV_RANK, MLA_PROJECTION, Q_RANK, SHARED_KEY

THREADS = 256
Q_THREADS = Q_RANK // 8
EPS = 1e-5
_WARPS = THREADS // 32


class Latents:
    """One CTA a row: threads 0 to 191 norm the query latent, the others the key/value latent, which goes to the cache with the
    shared key. A row whose place in the cache is negative is not inserted."""

    def __init__(self, m: int, *, pdl: bool = True) -> None:
        self.m, self.pdl = m, pdl

    @cute.jit
    def __call__(
        self, y: cute.Tensor, q_norm: cute.Tensor, kv_norm: cute.Tensor, where: cute.Tensor, cache: cute.Tensor,
        latent: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(y, q_norm, kv_norm, where, cache, latent).launch(
            grid=(self.m, 1, 1), block=(THREADS, 1, 1), stream=stream, use_pdl=bool(self.pdl), min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self, y: cute.Tensor, q_norm: cute.Tensor, kv_norm: cute.Tensor, where: cute.Tensor, cache: cute.Tensor,
        latent: cute.Tensor,
    ) -> None:  # fmt: skip
        row, _, _ = cute.arch.block_idx()
        self.work(row, y, q_norm, kv_norm, where, cache, latent)

    @cute.jit
    def work(
        self, row: Any, y: cute.Tensor, q_norm: cute.Tensor, kv_norm: cute.Tensor, where: cute.Tensor, cache: cute.Tensor,
        latent: cute.Tensor,
    ) -> None:  # fmt: skip
        """One row; ``latent`` is where the query latent goes."""
        tid, _, _ = cute.arch.thread_idx()
        lane, warp = tid % 32, tid // 32
        smem = SmemAllocator()
        sums = smem.allocate_tensor(Float32, cute.make_layout(_WARPS), 16)
        mine = tid < Q_THREADS
        weight = ptx.addr(q_norm.iterator) + Int64(tid * 16)
        target = ptx.addr(latent.iterator) + Int64(row * (2 * Q_RANK) + tid * 16)
        if not mine:
            weight = ptx.addr(kv_norm.iterator) + Int64((tid - Q_THREADS) * 16)
        w = ptx.floats(ptx.load16(weight))
        slot = Int64(where[row])
        cached = ptx.addr(cache.iterator) + slot * (2 * CACHED)
        if not mine:
            target = cached + (tid - Q_THREADS) * 16
        ptx.begin(self.pdl)
        source = ptx.addr(y.iterator) + Int64(row * (2 * MLA_PROJECTION) + tid * 16)
        v = ptx.floats(ptx.load16(source, "plain"))
        square = v[0] * v[0]
        for e in cutlass.range_constexpr(1, 8):
            square = ptx.fma(v[e], v[e], square)
        square = ptx.warp_sum(square)
        if lane == 0:
            sums[warp] = square
        cute.arch.sync_threads()
        whole = sums[0]
        for i in cutlass.range_constexpr(1, Q_THREADS // 32):
            whole = whole + sums[i]
        mean = whole * (1.0 / Q_RANK)
        if not mine:
            mean = (sums[_WARPS - 2] + sums[_WARPS - 1]) * (1.0 / KV_RANK)
        scale = cute.math.rsqrt(mean + EPS)
        out = [v[e] * scale * w[e] for e in range(8)]
        words = [ptx.pack(out[2 * i], out[2 * i + 1]) for i in range(4)]
        if mine | (slot >= 0):
            ptx.store16(target, words[0], words[1], words[2], words[3])
        if (tid < SHARED_KEY // 8) & (slot >= 0):
            key = ptx.load16(source + 2 * (KV_AT + KV_RANK), "plain")
            ptx.store16(cached + (2 * KV_RANK + tid * 16), key[0], key[1], key[2], key[3])


class LatentsBesideSkinny:
    """One or two rows: the first M CTAs insert a row each, the others share the query's up projection of a Skinny that norms its own
    input. (The first CTAs also norm the query latent, into a row that nobody reads.)"""

    def __init__(self, latents: Latents, product: Skinny) -> None:
        if product.threads != THREADS:
            raise ValueError(f"expected a product of {THREADS} threads, found {product.threads}")
        self.latents, self.product, self.m = latents, product, latents.m

    @cute.jit
    def __call__(
        self, y: cute.Tensor, w: cute.Tensor, q_norm: cute.Tensor, kv_norm: cute.Tensor, where: cute.Tensor, cache: cute.Tensor,
        latent: cute.Tensor, query: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(y, w, q_norm, kv_norm, where, cache, latent, query).launch(
            grid=(self.m + self.product.grid, 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            use_pdl=bool(self.product.pdl),
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self, y: cute.Tensor, w: cute.Tensor, q_norm: cute.Tensor, kv_norm: cute.Tensor, where: cute.Tensor, cache: cute.Tensor,
        latent: cute.Tensor, query: cute.Tensor,
    ) -> None:  # fmt: skip
        bid, _, _ = cute.arch.block_idx()
        if bid < self.m:
            self.latents.work(bid, y, q_norm, kv_norm, where, cache, latent)
        else:
            self.product.work(bid - self.m, y, w, query, q_norm, q_norm)


assert KV_AT == Q_RANK and (THREADS - Q_THREADS) * 8 == KV_RANK
