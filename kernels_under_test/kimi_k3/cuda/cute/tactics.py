"""Which variants of each kernel exist for a number of rows: constructor arguments by name, and which one is used.

No device and no DSL is needed to read this table.
"""

from __future__ import annotations

from typing import Any

from kernels_under_test.kimi_k3.cuda.sizes import (
    FRONT,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    PROJECTION,
    SHARED,
    TOP_K,
    WIDTH,
)

Tactic = dict[str, Any]

PRODUCTS = {
    "in_proj": (PROJECTION, HIDDEN, "store"),
    "o_proj": (HIDDEN, WIDTH, "store"),
    "front": (FRONT, HIDDEN, "front"),
    "shared_down": (HIDDEN, SHARED, "store"),
    "tail_up": (OUT_SHARD, LATENT, "tail"),
}
"""Rows of the weight, columns of the weight, epilogue."""

BESIDE = ("route_shared_down", "group_shared_down")
"""What runs beside the shared expert's second product, at up to two rows and above."""

SHARED_MEMORY = 227 * 1024
SMS = 132
"""Multiprocessors that the grids of the skinny products are cut for (H200)."""


def skinny(p: int, q: int, s: int, ahead: int = 0) -> Tactic:
    """Arguments of a ``Skinny``."""
    return {"design": "skinny", "p": p, "q": q, "s": s, "ahead": ahead}


def ring(tr: int, kc: int, s: int, cl: int = 1, wk: int = 8, ahead: int = 0) -> Tactic:
    """Arguments of a ``Ring``."""
    return {"design": "ring", "tr": tr, "kc": kc, "s": s, "cl": cl, "wk": wk, "ahead": ahead}


SKINNY = {
    1: {
        "in_proj": [skinny(2, 4, 3), skinny(2, 4, 2), skinny(4, 3, 3), skinny(4, 2, 4), skinny(2, 3, 3)],
        "o_proj": [skinny(1, 8, 2), skinny(1, 8, 3), skinny(2, 4, 4), skinny(1, 4, 4), skinny(2, 4, 3)],
        "front": [skinny(2, 4, 3, 2), skinny(2, 4, 2), skinny(2, 4, 3), skinny(4, 3, 3), skinny(4, 2, 4)],
        "shared_down": [skinny(1, 8, 2, 6), skinny(1, 8, 2), skinny(1, 8, 3), skinny(1, 8, 3, 4), skinny(1, 8, 4)],
        "tail_up": [skinny(2, 2, 4), skinny(2, 4, 2), skinny(2, 3, 3), skinny(1, 4, 2)],
    },
    2: {
        "in_proj": [skinny(4, 3, 2), skinny(2, 4, 2), skinny(4, 3, 3), skinny(4, 4, 2)],
        "o_proj": [skinny(1, 8, 2), skinny(1, 8, 3), skinny(2, 4, 3), skinny(2, 6, 2)],
        "front": [skinny(4, 3, 2), skinny(2, 4, 2), skinny(4, 3, 3), skinny(4, 2, 4)],
        "shared_down": [skinny(1, 8, 4), skinny(1, 8, 2, 6), skinny(1, 8, 2), skinny(1, 8, 3, 4)],
        "tail_up": [skinny(2, 4, 2), skinny(2, 2, 4), skinny(2, 3, 3)],
    },
}


def _rings(rows: int) -> dict[str, list[Tactic]]:
    if rows <= 16:
        return {
            "in_proj": [ring(48, 256, 6), ring(48, 256, 3), ring(48, 256, 5), ring(48, 256, 7)],
            "o_proj": [ring(64, 256, 3), ring(32, 256, 3), ring(64, 256, 3, ahead=3), ring(32, 256, 2, ahead=4)],
            "front": [ring(16, 512, 4), ring(16, 512, 6), ring(16, 512, 4, ahead=5), ring(16, 512, 6, ahead=8)],
            "shared_down": [ring(32, 256, 3), ring(64, 256, 3), ring(64, 128, 4)],
            "tail_up": [ring(16, 256, 4, 2), ring(32, 128, 4, 4)],
        }
    return {
        "in_proj": [ring(48, 128, 7), ring(48, 256, 3), ring(48, 128, 4)],
        "o_proj": [ring(32, 256, 3), ring(64, 128, 4), ring(64, 256, 2)],
        "front": [ring(16, 256, 4), ring(16, 256, 8 if rows == 32 else 5), ring(16, 512, 2)],
        "shared_down": [ring(32, 256, 3), ring(64, 128, 4), ring(64, 256, 2)],
        "tail_up": [ring(16, 256, 4, 2), ring(32, 128, 4, 4)],
    }


def _kda(rows: int) -> list[Tactic]:
    late: Tactic = {"early_gate": False}
    if rows <= 2:
        return [{"c": 8}, {"c": 4, "per_sm": 2}]
    if rows <= 8:
        return [{"c": 4, "per_sm": 3}, {"c": 2, "per_sm": 3, "batch": 4, **late}, {"c": 4, "per_sm": 4, **late}]
    if rows <= 16:
        two = {"c": 2, "per_sm": 3, **late}
        return [two, {**two, "batch": 2}, {"c": 4, "per_sm": 4, **late}]
    one = {"c": 1, "per_sm": 2, **late}
    return [
        {**one, "pdl": False},
        one,
        {"c": 2, "per_sm": 3, "batch": 4, "pdl": False, **late},
        {**one, "batch": 4, "pdl": False},
    ]


def _experts_in(rows: int, walk: Tactic) -> list[Tactic]:
    late = [{"wk": 2, "per_sm": 8, "pdl": True, **walk}]
    more = [{"wk": 2, "wr": 2, "per_sm": 4, **walk}, {"wk": 7, "per_sm": 4, **walk}] if rows <= 2 else []
    shapes = [(2, 1, 8, 7), (1, 2, 8, 8), (2, 1, 8, 10), (1, 4, 4, 8), (2, 1, 10, 5), (1, 2, 8, 6)]
    stream = [
        {"wk": wk, "wr": wr, "per_sm": per_sm, "window": window, "pdl": rows <= 2, **walk}
        for wk, wr, per_sm, window in shapes
    ]
    return [{"wk": 2, "per_sm": 8, **walk}, {"wk": 4, "per_sm": 6, **walk}, *late, *more, *stream]


def _experts_out(rows: int, walk: Tactic) -> list[Tactic]:
    few = {"pdl": True, "early": True} if rows <= 2 else {}
    two = {"wk": 1, "wr": 4, "r": 2, "per_sm": 4, **walk}
    shapes = [(4, 4, 4, 6), (4, 2, 4, 4), (2, 4, 8, 6), (2, 8, 8, 6)]
    stream: list[Tactic] = [{"wk": 1, "wr": wr, "r": r, "per_sm": n, "window": w} for wr, r, n, w in shapes]
    more = (
        [{"wk": 3, "wr": 1, "per_sm": 8, **walk}, {"wk": 3, "wr": 2, "per_sm": 4, **few, **walk}] if rows <= 2 else []
    )
    return [
        {**two, **few},
        {"wk": 1, "wr": 4, **few, **walk},
        {"wk": 1, "wr": 2, "r": 4, "per_sm": 5, **walk},
        two if few else {"wk": 1, "wr": 8, "r": 2, "per_sm": 2, **walk},
        {**two, "pdl": True},
        *more,
        *({**t, **few, **walk} for t in stream),
        *({**t, **walk} for t in stream if few),
    ]


def tactics(kernel: str, rows: int) -> list[Tactic]:
    """The variants of a kernel at a bin of rows (1, 2, 8, 16, 32 or 64).

    Raises:
        KeyError: for an unknown kernel.
    """
    if kernel in PRODUCTS:
        return (SKINNY[rows] if rows <= 2 else _rings(rows))[kernel]
    if kernel == BESIDE[rows > 2]:
        return [{**t, "grid": SMS - rows} if rows <= 2 else t for t in tactics("shared_down", rows)]
    walk = {"units": TOP_K * rows, "single": rows <= 2, "grid": WALK[rows]}
    table: dict[str, list[Tactic]] = {
        "attention_residual": [{"parts": False}],
        "ffn_residual": [{"parts": True}],
        "kda": _kda(rows),
        "route": [{}],
        "experts_in": _experts_in(rows, walk),
        "experts_out": _experts_out(rows, walk),
        "tail_finalise": [{}],
    }
    return table[kernel]


WALK = {1: 16, 2: 32, 8: 120, 16: 208, 32: 336, 64: 512}
"""CTAs in the unit direction: about the distinct experts of a step; further units are taken in turn."""

EXPERT_SHAPES = {"experts_in": (2 * INTER, LATENT), "experts_out": (LATENT, INTER)}


CHOSEN: dict[int, dict[str, int]] = {
    1: {"in_proj": 2, "route_shared_down": 1, "experts_in": 2},
    2: {"experts_in": 2, "experts_out": 8, "route_shared_down": 2, "front": 2, "tail_up": 1},
    8: {"in_proj": 2, "kda": 1, "experts_out": 7},
    16: {"kda": 1, "o_proj": 2, "group_shared_down": 2, "experts_out": 7},
    32: {"kda": 1, "front": 1, "group_shared_down": 1, "experts_in": 6, "experts_out": 7},
    64: {"experts_in": 6, "experts_out": 7},
}
"""Where it is not the first: the variant that was at least 0.5 % faster for the whole layer on an H200."""


def chosen(kernel: str, rows: int) -> int:
    """The variant that is used."""
    return CHOSEN.get(rows, {}).get(kernel, 0)


MUTANTS: dict[str, tuple[str, int, Tactic]] = {
    "unfenced": ("in_proj", 8, {**ring(48, 256, 7), "fault": "unfenced"}),
}
"""Variants with a planted fault (kernel, rows, arguments), for the checks to catch on a device."""


def name(kernel: str, rows: int, index: int | str) -> str:
    """The exported symbol of a variant or, by its name, of a mutant."""
    return f"k3_{kernel}_{rows}_{index}"
