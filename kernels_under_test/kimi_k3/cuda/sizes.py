"""Sizes of one rank of eight, and the bytes a KDA layer with experts has to move."""

from __future__ import annotations

from dataclasses import dataclass

HIDDEN = 7168
HEADS = 12
DIM = 128
WIDTH = HEADS * DIM
RANK = 128
"""Rank of the forget gate."""
PROJECTION = 6288
"""q, k, v, g (4 x 1536), f_a (128), b (12), padded to a multiple of 16."""
B_COLUMN = 4 * WIDTH + RANK
LATENT = 3584
EXPERTS = 896
TOP_K = 16
INTER = 384
"""Expert intermediate of this rank; the gate and up matrices have 768 rows together."""
SHARED = 768
PARTS = 8
"""Ranks of tensor parallelism."""
ROUTER_SHARD = EXPERTS // PARTS
DOWN_SHARD = LATENT // PARTS
OUT_SHARD = HIDDEN // PARTS
FRONT = ROUTER_SHARD + DOWN_SHARD + 2 * SHARED
"""Rows of the candidate's packed front: router shard, latent-down shard, shared gate and up in alternate rows."""
BLOCKS = 7
"""Complete attention-residual blocks before layers 73 to 84: with the prefix, 8 sources."""
UNIT = 8
"""Tokens that one unit of expert work holds."""
ROWS = (1, 2, 8, 16, 32, 64)

EXPERT_BYTES = 3 * INTER * LATENT // 2 + 3 * INTER * LATENT // 32
"""Codes and scales of w13 and w2 of one expert: 2.193 MB."""


def bin_rows(rows: int) -> int:
    """The compiled variant that serves a number of rows.

    Raises:
        ValueError: unless 1 <= rows <= 64.
    """
    for size in ROWS:
        if 1 <= rows <= size:
            return size
    raise ValueError(f"expected 1 to {ROWS[-1]} rows, found {rows}")


def expected_experts(rows: int) -> float:
    """Distinct experts of one step when routing is uniform and independent."""
    return EXPERTS * (1.0 - (1.0 - TOP_K / EXPERTS) ** rows)


@dataclass(frozen=True)
class Bytes:
    """Bytes of one kernel: static weights, and what each row adds (activations and states, read and written)."""

    name: str
    weights: float
    per_row: float

    def at(self, rows: int) -> float:
        """Bytes of one launch for a number of rows."""
        return self.weights + rows * self.per_row


def kernel_bytes(experts: float, *, sharded: bool) -> tuple[Bytes, ...]:
    """Needed bytes per kernel group, each byte once.

    Args:
        experts: distinct experts that the step really chose (measured, or ``expected_experts``).
        sharded: True for the candidate (router and latent-down cut over the ranks), False for stock, which reads both in full.
    """
    front = ROUTER_SHARD + DOWN_SHARD if sharded else EXPERTS + LATENT
    pairs = TOP_K
    return (
        Bytes("residuals", 2 * 3 * 2 * HIDDEN, 2 * (BLOCKS + 4) * 2 * HIDDEN),
        Bytes("in_proj", 2 * PROJECTION * HIDDEN, 2 * (HIDDEN + PROJECTION)),
        Bytes(
            "kda",
            2 * WIDTH * RANK + 4 * 12 * WIDTH,
            2 * 4 * HEADS * DIM * DIM + 2 * 2 * 9 * WIDTH + 2 * (PROJECTION + WIDTH),
        ),
        Bytes("o_proj", 2 * HIDDEN * WIDTH, 2 * (WIDTH + HIDDEN)),
        Bytes("o_proj parts", 0, 2 * PARTS * HIDDEN),
        Bytes("front", 2 * front * HIDDEN, 2 * HIDDEN + 4 * EXPERTS + 2 * LATENT),
        Bytes("shared gate and up", 2 * 2 * SHARED * HIDDEN, 2 * SHARED),
        Bytes("shared down", 2 * HIDDEN * SHARED, 2 * (SHARED + HIDDEN)),
        Bytes("experts", experts * EXPERT_BYTES, 2 * (LATENT + pairs * (2 * INTER + 2 * LATENT))),
        Bytes("tail", 2 * OUT_SHARD * LATENT, 2 * (PARTS * LATENT + LATENT + PARTS * OUT_SHARD + HIDDEN)),
    )


def floor_us(rows: int, experts: float, bandwidth: float, *, sharded: bool = True) -> float:
    """Microseconds that the needed bytes take at ``bandwidth`` bytes per second."""
    return sum(b.at(rows) for b in kernel_bytes(experts, sharded=sharded)) / bandwidth * 1e6
