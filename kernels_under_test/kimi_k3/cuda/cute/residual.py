"""Attention residual: prefix update, softmax mix of blocks and prefix, norm. A cluster of 7 CTAs owns a row, 1024 columns each."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64
from cutlass.memory import SmemAllocator

from kernels_under_test.kimi_k3.cuda.cute import ptx, rows
from kernels_under_test.kimi_k3.cuda.sizes import BLOCKS, HIDDEN, PARTS

EPS = 1e-5
EARLY = 32
"""Sums reduced before the wait; a warp reduces them by halving them over its lanes, and so the 16 or 32 behind it."""
OPENS = ("", "store", "replace")
"""What a layer does that opens block ``BLOCKS``: before attention the new prefix becomes that block too (and is no source of its own
yet); behind it the block is one of the sources, and attention's output replaces the prefix."""


def pairs(count: int) -> list[tuple[int, int]]:
    """Unordered pairs of sources, squares included."""
    return [(s, t) for s in range(count) for t in range(s, count)]


class Residual:
    """prefix += delta, or += bf16(sum of the ranks' partial rows) with ``parts``; x = norm(mix).

    Blocks and weights are constant while a layer runs and are read before the wait; so is the prefix, which only the previous
    residual kernel writes, at least three launches ago.

    The square of the mix is put together from the products of the sources, so that one exchange of the cluster is enough: the
    7 x 8 / 2 products of the blocks and their scores are known before the wait, and 9 sums with the prefix come after it.

    Raises:
        ValueError: if ``opens`` is none of ``OPENS``.
    """

    def __init__(self, m: int, *, parts: bool, pdl: Any = True, first: bool = False, opens: str = "") -> None:
        if opens not in OPENS:
            raise ValueError(f"expected one of {OPENS}, found {opens!r}")
        self.m, self.parts, self.pdl, self.first, self.opens = m, parts, pdl, first, opens
        self.held = BLOCKS + (opens != "")
        self.blocks = n = BLOCKS + (opens == "replace")
        old = [("score", s) for s in range(n)] + [("pair", p) for p in pairs(n)]
        new = [("score", n)] + [("pair", (s, n)) for s in range(n + 1)]
        self.early = old[:EARLY]
        self.late = old[EARLY:] + new
        self.lates = 16 if len(self.late) <= 16 else 32
        self.place = {what: i for i, what in enumerate(self.early)} | {
            what: EARLY + i for i, what in enumerate(self.late)
        }

    @cute.jit
    def __call__(
        self, delta: cute.Tensor, peers: cute.Tensor, prefix: cute.Tensor, blocks: cute.Tensor, gamma: cute.Tensor,
        query: cute.Tensor, weight: cute.Tensor, x: cute.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        self.kernel(delta, peers, prefix, blocks, gamma, query, weight, x).launch(
            stream=stream, **rows.launch(self.m, self.pdl)
        )

    def product(self, what: Any, src: list[list[Any]], mixer: list[Any]) -> Any:
        """This thread's part of one sum over the row."""
        kind, which = what
        a, b = (src[which], mixer) if kind == "score" else (src[which[0]], src[which[1]])
        value = a[0] * b[0]
        for e in range(1, 8):
            value = ptx.fma(a[e], b[e], value)
        return value

    @cute.kernel
    def kernel(
        self, delta: cute.Tensor, peers: cute.Tensor, prefix: cute.Tensor, blocks: cute.Tensor, gamma: cute.Tensor,
        query: cute.Tensor, weight: cute.Tensor, x: cute.Tensor,
    ) -> None:  # fmt: skip
        M, LATE, N = self.m, self.lates, self.blocks
        tid, _, _ = cute.arch.thread_idx()
        rank, row, _ = cute.arch.block_idx()
        lane, warp = tid % 32, tid // 32
        mine, received = rows.sums(EARLY + LATE)
        smem = SmemAllocator()
        sums = smem.allocate_tensor(Float32, cute.make_layout(EARLY + LATE), 16)
        off = Int64(rank * 2048 + tid * 16)
        at = Int64(row) * (2 * HIDDEN) + off
        old = ptx.load16(ptx.addr(prefix.iterator) + at, "plain")
        bb = ptx.addr(blocks.iterator) + Int64(row) * (2 * HIDDEN * self.held) + off
        words = [ptx.load16(bb + s * 2 * HIDDEN, "plain") for s in range(N)]
        gm, qr = ptx.load16(ptx.addr(gamma.iterator) + off), ptx.load16(ptx.addr(query.iterator) + off)
        wt = ptx.load16(ptx.addr(weight.iterator) + off)
        mixer = [a * b for a, b in zip(ptx.floats(gm), ptx.floats(qr), strict=True)]
        src = [ptx.floats(w) for w in words]
        mine[warp, lane] = ptx.scatter_sum([self.product(w, src, mixer) for w in self.early], lane)
        ptx.begin(self.pdl, self.first)
        dv = ptx.floats(ptx.load16(ptx.addr(delta.iterator) + at, "plain"))
        if cutlass.const_expr(self.parts):
            pb = ptx.addr(peers.iterator) + at
            more = [ptx.load16(pb + Int64(r * M) * (2 * HIDDEN), "plain") for r in range(PARTS - 1)]
            for r in cutlass.range_constexpr(PARTS - 1):
                other = ptx.floats(more[r])
                dv = [a + b for a, b in zip(dv, other, strict=True)]
            dv = [ptx.rounded(v) for v in dv]
        new = dv if self.opens == "replace" else [a + b for a, b in zip(ptx.floats(old), dv, strict=True)]
        packed = [ptx.pack(new[2 * i], new[2 * i + 1]) for i in range(4)]
        ptx.store16(ptx.addr(prefix.iterator) + at, packed[0], packed[1], packed[2], packed[3])
        if cutlass.const_expr(self.opens == "store"):
            ptx.store16(bb + BLOCKS * 2 * HIDDEN, packed[0], packed[1], packed[2], packed[3])
        every = [*src, ptx.floats(packed)]
        late = [self.product(w, every, mixer) for w in self.late]
        late = late + [Float32(0.0) for _ in range(LATE - len(late))]
        half = ptx.scatter_sum(late, lane)
        if cutlass.const_expr(LATE == 16):
            half = half + cute.arch.shuffle_sync_bfly(half, 16)
        if lane < LATE:
            mine[warp, EARLY + lane] = half
        rows.exchange(mine, received, EARLY + LATE, tid, rank)
        if tid < EARLY + LATE:
            sums[tid] = rows.total(received, tid)
        cute.arch.sync_threads()
        total = {what: sums[i] for what, i in self.place.items()}
        logit = []
        for s in cutlass.range_constexpr(N + 1):
            logit.append(total["score", s] * cute.math.rsqrt(total["pair", (s, s)] * (1.0 / HIDDEN) + EPS))
        top = logit[0]
        for s in cutlass.range_constexpr(1, N + 1):
            top = cutlass.max(top, logit[s])
        share = [cute.math.exp(v - top) for v in logit]
        norm = share[0]
        for s in cutlass.range_constexpr(1, N + 1):
            norm = norm + share[s]
        inverse = 1.0 / norm
        share = [v * inverse for v in share]
        square = self.square(share, total)
        scale = cute.math.rsqrt(square * (1.0 / HIDDEN) + EPS)
        wf = ptx.floats(wt)
        mix = [Float32(0.0) for _ in range(8)]
        for s in cutlass.range_constexpr(N + 1):
            for e in cutlass.range_constexpr(8):
                mix[e] = ptx.fma(share[s], every[s][e], mix[e])
        out = [mix[e] * scale * wf[e] for e in range(8)]
        done = [ptx.pack(out[2 * i], out[2 * i + 1]) for i in range(4)]
        ptx.store16(ptx.addr(x.iterator) + at, done[0], done[1], done[2], done[3])

    def square(self, share: list[Any], total: dict[Any, Any]) -> Any:
        """|sum of share_s v_s|^2 from the products of the sources; never below 0."""
        value = Float32(0.0)
        for s, t in pairs(self.blocks + 1):
            weight = share[s] * share[t]
            value = ptx.fma(weight if s == t else 2.0 * weight, total["pair", (s, t)], value)
        return cutlass.max(value, Float32(0.0))


assert HIDDEN == rows.CTAS * rows.THREADS * 8
