"""Sizes of an MLA layer on one rank of eight, how its attention is cut into blocks, and the bytes it has to move.

Figures from the published configuration: query rank 1536, latent 512, 64 further columns that all heads share (no rotation), 12 of 96
heads on a rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernels_under_test.kimi_k3.cuda.sizes import HEADS, HIDDEN, PARTS, WIDTH, Bytes, kernel_bytes

Q_RANK = 1536
KV_RANK = 512
SHARED_KEY = 64
"""Columns of a cached row behind the latent: keys that all heads share."""
CACHED = KV_RANK + SHARED_KEY
NOPE = 128
VALUE = 128
HEAD_IN = NOPE + SHARED_KEY
"""Rows of the query's up projection for one head."""
QUERY = HEADS * HEAD_IN
KV_AT = Q_RANK
GATE_AT = Q_RANK + CACHED
MLA_PROJECTION = GATE_AT + WIDTH
"""Query latent, key/value latent, shared key, output gate: 3648 rows."""
SCALE = HEAD_IN**-0.5
PAGE = 64
"""Tokens of a page of the cache."""
BLOCK = PAGE
"""Tokens that a CTA of the attention core takes at a time."""
CONTEXTS = (1024, 8192, 131072)


def blocks(length: int) -> int:
    """Blocks of a request."""
    return -(-length // BLOCK)


def active(total: int, grid: int) -> int:
    """CTAs of the core that get blocks: never fewer than one, so that it can be divided by."""
    return max(1, min(grid, total))


def owner(block: int, total: int, grid: int) -> int:
    """The CTA that takes a block, when CTA c of n takes the blocks from c total / n to (c + 1) total / n.

    Raises:
        ValueError: for a block that does not exist.
    """
    if not 0 <= block < total:
        raise ValueError(f"expected a block of {total}, found {block}")
    return ((block + 1) * active(total, grid) - 1) // total


def segments(lengths: Sequence[int], grid: int) -> list[tuple[int, int, int, int]]:
    """What the core writes: (row, CTA, first block of the row, blocks) of each part of a row, in order.

    A part lies at place row + CTA of the core's output: along the list one of them grows at each step, so no two parts meet.
    """
    total = sum(blocks(n) for n in lengths)
    found = []
    start = 0
    for row, length in enumerate(lengths):
        end = start + blocks(length)
        if end > start:
            for cta in range(owner(start, total, grid), owner(end - 1, total, grid) + 1):
                n = active(total, grid)
                first, last = max(start, cta * total // n), min(end, (cta + 1) * total // n)
                found.append((row, cta, first - start, last - first))
        start = end
    return found


def cached_bytes(tokens: int) -> int:
    """Bytes of some tokens in a bf16 cache."""
    return 2 * CACHED * tokens


def mla_bytes(experts: float, *, sharded: bool) -> tuple[Bytes, ...]:
    """Needed bytes per kernel group as ``kernel_bytes``, the projection, query and value of MLA instead of those of KDA.

    The cache is counted apart: ``cached_bytes`` of all tokens that are read.
    """
    rest = tuple(b for b in kernel_bytes(experts, sharded=sharded) if b.name not in ("in_proj", "kda"))
    return (
        Bytes("in_proj", 2 * MLA_PROJECTION * HIDDEN, 2 * (HIDDEN + MLA_PROJECTION)),
        Bytes("query", 2 * QUERY * Q_RANK + 2 * HEADS * NOPE * KV_RANK, 2 * (Q_RANK + 2 * CACHED + HEADS * CACHED)),
        Bytes("value", 2 * HEADS * VALUE * KV_RANK, 2 * 2 * WIDTH),
        *rest,
    )


def mla_floor_us(rows: int, tokens: int, experts: float, bandwidth: float, *, sharded: bool = True) -> float:
    """Microseconds that the needed bytes take at ``bandwidth`` bytes per second; ``tokens`` is the sum of the rows' lengths."""
    moved = sum(b.at(rows) for b in mla_bytes(experts, sharded=sharded)) + cached_bytes(tokens)
    return moved / bandwidth * 1e6


assert HIDDEN == 7168 and PARTS == 8
