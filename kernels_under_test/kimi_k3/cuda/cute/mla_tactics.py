"""Variants of an MLA layer's own kernels; its other kernels are those of ``tactics``. No device and no DSL is needed."""

from __future__ import annotations

from typing import Any

from kernels_under_test.kimi_k3.cuda.cute.tactics import SMS, Tactic, ring, skinny
from kernels_under_test.kimi_k3.cuda.mla_sizes import MLA_PROJECTION, Q_RANK, QUERY
from kernels_under_test.kimi_k3.cuda.sizes import HIDDEN

PRODUCTS = {"mla_in_proj": (MLA_PROJECTION, HIDDEN, "store"), "mla_up": (QUERY, Q_RANK, "store")}
"""Rows of the weight, columns of the weight, epilogue."""

KERNELS = (
    "mla_in_proj",
    "mla_query",
    "mla_latents",
    "mla_up",
    "mla_absorb",
    "mla_core",
    "mla_value",
    "mla_merge",
    "mla_values",
)


def _in_proj(rows: int) -> list[Tactic]:
    if rows == 1:
        return [skinny(2, 4, 3), skinny(2, 4, 2), skinny(4, 3, 3), skinny(4, 2, 4)]
    if rows == 2:
        return [skinny(4, 3, 2), skinny(2, 4, 2), skinny(4, 3, 3)]
    if rows <= 16:
        return [ring(32, 256, 6), ring(32, 256, 4), ring(16, 512, 4), ring(32, 512, 3)]
    return [ring(32, 256, 4), ring(32, 128, 7), ring(16, 256, 4)]


def _query(rows: int) -> list[Tactic]:
    grid = {"grid": SMS - rows, "norm": True, "pitch": MLA_PROJECTION}
    return [{**skinny(1, 8, s), **grid} for s in (3, 2, 1)]


def _up(rows: int) -> list[Tactic]:
    first = ring(16, 256, 4) if rows <= 32 else ring(32, 256, 3)
    return [first, ring(32, 256, 4) if rows <= 32 else ring(16, 256, 3), ring(32, 128, 4)]


def _core() -> list[Tactic]:
    return [{"s": 5}, {"s": 4}]


def _values() -> list[Tactic]:
    return [{"tr": 16, "kc": 256, "s": 2}, {"tr": 32, "kc": 256, "s": 2}, {"tr": 16, "kc": 128, "s": 4}]


def tactics(kernel: str, rows: int) -> list[Tactic]:
    """The variants of a kernel at a bin of rows (1, 2, 8, 16, 32 or 64).

    Raises:
        KeyError: for an unknown kernel.
    """
    table: dict[str, Any] = {
        "mla_in_proj": lambda: _in_proj(rows),
        "mla_query": lambda: _query(rows),
        "mla_latents": lambda: [{}],
        "mla_up": lambda: _up(rows),
        "mla_absorb": lambda: [{"r": rows}] if rows <= 2 else [{}],
        "mla_core": _core,
        "mla_value": lambda: [{"threads": 512}, {"threads": 256}],
        "mla_merge": lambda: [{}],
        "mla_values": _values,
    }
    found: list[Tactic] = table[kernel]()
    return found


SPECIAL: dict[str, tuple[str, int, Tactic]] = {
    "tail": ("mla_core", 8, {"fault": "tail"}),
    "last_token": ("mla_core", 8, {"fault": "last_token"}),
    "early": ("mla_merge", 8, {"fault": "early"}),
    "ranks": ("mla_value", 2, {"ranks": 8, "rank": 2}),
}
"""Variants (kernel, rows, arguments) that no layer uses: planted faults, for the checks to catch on a device, and the merge of eight
ranks' parts under decode context parallelism."""


CHOSEN: dict[int, dict[str, int]] = {2: {"mla_in_proj": 2, "mla_query": 1}}
"""Where it is not the first: the variant that was faster for the whole layer on an H200."""


def chosen(kernel: str, rows: int) -> int:
    """The variant that is used."""
    return CHOSEN.get(rows, {}).get(kernel, 0)
