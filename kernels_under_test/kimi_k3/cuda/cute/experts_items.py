"""Items of the streamed experts: which tiles of weights a CTA works on, in which order, and how they are copied.

An item of the first product is a tile of 16 rows of one unit (an expert and up to 8 tokens): 28 pieces of weights (1 KB). An item
of the second is 14 tiles of 3 pieces. The items of a product lie in one line, unit by unit, cut into even shares, so that a CTA works
on few units. Every second CTA takes its items in reverse: a unit that two CTAs share is then either the first of both or the last of
both, and the second product begins with one that was finished early.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.sizes import INTER, LATENT

WARPS = 14
"""Warps that compute."""
PIECE, SCALES = 1024, 64
"""Bytes of a piece (16 rows x 128 columns): codes and scales."""
IN_TILES, OUT_ITEMS = 2 * INTER // 16, LATENT // 16 // WARPS
"""Items of a unit: 48 in the first product, 16 in the second."""
IN_PIECES, OUT_PIECES = LATENT // 128 // WARPS, INTER // 128
"""Pieces of a warp's part of an item: 2 and 3."""
IN_BYTES, OUT_BYTES = 2 * INTER * LATENT // 2, LATENT * INTER // 2
"""Bytes of an expert's codes; its scales take a sixteenth."""
WHOLE, PART = WARPS * IN_PIECES, WARPS * OUT_PIECES
"""Pieces of an item: 28 and 42."""
SLOT = PART * (PIECE + SCALES)
"""Bytes of a slot of the ring: the codes of the larger kind of item, then scales."""


def plan(bid: Any, grid: int, units: Any) -> tuple[Any, ...]:
    """The share of CTA ``bid``: where it starts in the line of either product, how many items of the first and of both it has, and
    whether it goes in reverse (1)."""
    i0, i1 = bid * (units * IN_TILES) // grid, (bid + 1) * (units * IN_TILES) // grid
    j0, j1 = bid * (units * OUT_ITEMS) // grid, (bid + 1) * (units * OUT_ITEMS) // grid
    return i0, j0, i1 - i0, i1 - i0 + j1 - j0, bid % 2


@cute.jit
def place(r: Int32, plan: Any) -> Any:
    """Where in its product's line item r of a CTA lies."""
    i0, j0, cut, end, back = plan
    at = r if r < cut else r - cut
    count = cut if r < cut else end - cut
    return (i0 if r < cut else j0) + (count - 1 - at if back == 1 else at)


@cute.jit
def expert_of(r: Int32, plan: Any, expert: cute.Tensor) -> Any:
    """The expert of item r; behind the last item that of the last."""
    cut, end = plan[2], plan[3]
    at = cutlass.max(cutlass.min(r, end - 1), 0)
    where = place(at, plan)
    unit = where // IN_TILES if at < cut else where // OUT_ITEMS
    return expert[cutlass.max(unit, 0)]


@cute.jit
def fetch(r: Int32, e: Int32, plan: Any, weights: Any, dst: Int32, bar: Int32) -> None:
    """Ask for item r of expert e: codes, and behind them scales."""
    where = place(r, plan)
    if r < plan[2]:
        at = Int64(where % IN_TILES)
        ptx.expect(bar, WHOLE * (PIECE + SCALES))
        ptx.bulk_copy(dst, weights[0] + Int64(e) * IN_BYTES + at * (WHOLE * PIECE), WHOLE * PIECE, bar)
        scales = weights[1] + Int64(e) * (IN_BYTES // 16) + at * (WHOLE * SCALES)
        ptx.bulk_copy(dst + PART * PIECE, scales, WHOLE * SCALES, bar)
    else:
        at = Int64(where % OUT_ITEMS)
        ptx.expect(bar, SLOT)
        ptx.bulk_copy(dst, weights[2] + Int64(e) * OUT_BYTES + at * (PART * PIECE), PART * PIECE, bar)
        scales = weights[3] + Int64(e) * (OUT_BYTES // 16) + at * (PART * SCALES)
        ptx.bulk_copy(dst + PART * PIECE, scales, PART * SCALES, bar)


assert WHOLE * 128 == LATENT and OUT_ITEMS * WARPS * 16 == LATENT and IN_PIECES <= OUT_PIECES
