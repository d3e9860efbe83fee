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

BESIDE = ("route_shared_down", "route_group_shared_down")
"""What runs beside the shared expert's second product, at up to two rows and above."""

FIRST = ("attention_residual", "kda", "o_proj", "ffn_residual", *BESIDE, "experts_out", "tail_finalise", "tail_up")
"""Kernels that may let the next one start before their own wait: it then fills its ring a whole kernel earlier."""

EARLY_READS = (
    ("ffn_residual", "attention_residual"),
    ("attention_residual", "ffn_residual"),
    ("experts_out", "route_shared_down"),
    ("kda", "kda"),
    ("mla_core", "mla_query"),
    ("mla_core", "mla_latents"),
)
"""What a kernel (first) reads before its wait although a kernel (second) of this or the last layer wrote it: prefix, expert ids,
states and cache rows. That is right only if between the two some kernel lets its successor start behind its own wait, and so behind
the writer's end. All other reads before a wait are of constants."""

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
        "in_proj": [skinny(4, 3, 3), skinny(2, 4, 3), skinny(4, 2, 4), skinny(2, 4, 2)],
        "o_proj": [skinny(1, 8, 2), skinny(1, 8, 4), skinny(1, 8, 6), skinny(1, 8, 2, 5)],
        "front": [skinny(2, 4, 3), skinny(2, 4, 2), skinny(7, 2, 6), skinny(4, 2, 6), skinny(4, 3, 3)],
        "shared_down": [skinny(1, 8, 2), skinny(1, 8, 2, 6), skinny(1, 8, 4)],
        "tail_up": [skinny(2, 4, 2), skinny(2, 2, 4), skinny(1, 4, 2)],
    },
    2: {
        "in_proj": [skinny(4, 3, 2), skinny(4, 3, 3), skinny(4, 2, 4)],
        "o_proj": [skinny(1, 8, 2), skinny(1, 8, 4), skinny(2, 4, 8), skinny(2, 4, 3)],
        "front": [skinny(4, 3, 3), skinny(4, 3, 2), skinny(4, 2, 4), skinny(4, 2, 6)],
        "shared_down": [skinny(1, 8, 2), skinny(1, 8, 4), skinny(1, 8, 2, 6)],
        "tail_up": [skinny(2, 2, 4), skinny(2, 4, 2)],
    },
}


def _rings(rows: int) -> dict[str, list[Tactic]]:
    if rows <= 16:
        return {
            "in_proj": [ring(48, 256, 5), ring(48, 256, 6), ring(48, 256, 7)],
            "o_proj": [ring(64, 256, 3), ring(64, 256, 2), ring(64, 256, 5), ring(64, 256, 3, ahead=3)],
            "front": [ring(16, 512, 4), ring(16, 512, 6), ring(16, 512, 4, ahead=5)],
            "shared_down": [ring(64, 256, 3), ring(64, 128, 4), ring(32, 256, 3)],
            "tail_up": [ring(16, 256, 4, 2), ring(32, 128, 4, 4), ring(16, 256, 7, 2)],
        }
    return {
        "in_proj": [ring(48, 128, 7), ring(48, 256, 3), ring(48, 128, 4)],
        "o_proj": [ring(64, 128, 4), ring(64, 256, 2), ring(32, 256, 3)],
        "front": [ring(16, 256, 4), ring(16, 256, 8 if rows == 32 else 5), ring(16, 512, 2)],
        "shared_down": [ring(64, 256, 2), ring(64, 128, 4), ring(32, 256, 3)],
        "tail_up": [ring(16, 256, 4, 2), ring(32, 128, 4, 4)],
    }


def _kda(rows: int) -> list[Tactic]:
    if rows <= 2:
        return [{"c": 4, "per_sm": 2}, {"c": 8}]
    staged: list[Tactic] = [{"c": 2, "per_sm": 4, "staged": True}, {"c": 1, "per_sm": 3, "staged": True}]
    return staged if rows <= 16 else staged[::-1]


def tactics(kernel: str, rows: int) -> list[Tactic]:
    """The variants of a kernel at a bin of rows (1, 2, 8, 16, 32 or 64).

    Raises:
        KeyError: for an unknown kernel.
    """
    found = _later(kernel, rows)
    return [*found, *({**t, "first": True} for t in found)] if kernel in FIRST else found


def _later(kernel: str, rows: int) -> list[Tactic]:
    """The variants that let the next kernel start only behind their own wait."""
    if kernel in PRODUCTS:
        return (SKINNY[rows] if rows <= 2 else _rings(rows))[kernel]
    if kernel == BESIDE[rows > 2]:
        return [{**t, "grid": SMS - rows} if rows <= 2 else t for t in _later("shared_down", rows)]
    units = {"units": TOP_K * rows}
    out = {"wk": 1, "wr": 4, "r": 2, "per_sm": 4, "early": True, **units}
    table: dict[str, list[Tactic]] = {
        "delay": [{}],
        "attention_residual": [{"parts": False}],
        "ffn_residual": [{"parts": True}],
        "kda": _kda(rows),
        "experts": [{"s": 4}, {"s": 3}],
        "experts_in": [{"wk": 2, "per_sm": 8, **units}, {"wk": 2, "per_sm": 8, "window": 7, **units}],
        "experts_out": [{**out, "window": 4}, out],
        "tail_finalise": [{}],
    }
    return table[kernel]


EXPERT_SHAPES = {"experts_in": (2 * INTER, LATENT), "experts_out": (LATENT, INTER)}


CHOSEN: dict[int, dict[str, int]] = {
    1: {
        "kda": 2, "o_proj": 4, "ffn_residual": 1, "route_shared_down": 3, "experts_in": 1, "experts_out": 2,
        "tail_finalise": 1, "tail_up": 3,
    },
    2: {
        "attention_residual": 1, "kda": 2, "o_proj": 4, "ffn_residual": 1, "route_shared_down": 3, "experts_in": 1,
        "experts_out": 2, "tail_up": 2,
    },
    8: {
        "attention_residual": 1, "in_proj": 1, "kda": 2, "o_proj": 6, "ffn_residual": 1, "route_group_shared_down": 3,
        "experts": 1, "tail_finalise": 1, "tail_up": 5,
    },
    16: {
        "attention_residual": 1, "in_proj": 2, "o_proj": 6, "ffn_residual": 1, "route_group_shared_down": 4, "tail_up": 5,
    },
    32: {
        "attention_residual": 1, "kda": 2, "o_proj": 3, "ffn_residual": 1, "route_group_shared_down": 3,
        "tail_finalise": 1,
    },
}  # fmt: skip
"""Where it is not the first: the variant that was faster for the whole layer on an H200, by at least 0.3 % when it was chosen."""


def chosen(kernel: str, rows: int) -> int:
    """The variant that is used."""
    return CHOSEN.get(rows, {}).get(kernel, 0)


BESIDE_A_MUTANT = {"unfenced": {"kda": "held"}}
"""Other variants that a mutant needs beside it to show: the ring's refill overtakes its reads only while a neighbour that fills its
registers from global memory holds them back."""

STAGED: Tactic = {"c": 2, "per_sm": 4, "staged": True}
MUTANTS: dict[str, tuple[str, int, Tactic]] = {
    "unfenced": ("in_proj", 8, {**ring(48, 256, 7), "fault": "unfenced"}),
    "held": ("kda", 8, {"c": 2, "per_sm": 3}),
    "experts_unfenced": ("experts", 8, {"s": 4, "fault": "unfenced"}),
    "uncounted": ("experts", 8, {"s": 4, "fault": "uncounted"}),
    "unarmed": ("route_group_shared_down", 8, {**ring(64, 256, 3), "fault": "unarmed"}),
    "sentinel": ("kda", 8, {**STAGED, "fault": "sentinel"}),
    "narrow": ("kda", 8, {**STAGED, "fault": "narrow"}),
    **{
        f"unwaited_{kernel}_{rows}": (kernel, rows, {**tactic, "pdl": "unwaited"})
        for rows, kernel, tactic in (
            (1, "in_proj", skinny(4, 3, 3)),
            (1, "o_proj", skinny(1, 8, 2)),
            (1, "ffn_residual", {"parts": True}),
            (1, "kda", {"c": 4, "per_sm": 2}),
            (1, "experts_in", {"wk": 2, "per_sm": 8, "units": TOP_K}),
            (1, "tail_finalise", {}),
            (8, "in_proj", ring(48, 256, 5)),
            (8, "o_proj", ring(64, 256, 3)),
            (8, "kda", STAGED),
            (8, "front", ring(16, 512, 4)),
            (8, "tail_up", ring(16, 256, 4, 2)),
        )
    },
}
"""Variants with a planted fault (kernel, rows, arguments), for the checks to catch on a device (``held`` has none): a proxy fence left
out, the second expert product not waiting for the first, its counters not set to zero, the state of null slots written, a slot's
offset kept in 32 bits, and kernels that do not wait for the one before. (``experts`` is not among those: begun too early, it can wait
for ever for counts that were set to zero behind its back.)"""


OPENING: dict[str, tuple[str, int, Tactic]] = {
    f"{opens}_{rows}": (kernel, rows, {"parts": kernel == "ffn_residual", "first": True, "opens": opens})
    for rows in (1, 8, 64)
    for kernel, opens in (("attention_residual", "store"), ("ffn_residual", "replace"))
}
"""Both residuals of a layer that opens a block."""


def name(kernel: str, rows: int, index: int | str) -> str:
    """The exported symbol of a variant or, by its name, of a mutant."""
    return f"k3_{kernel}_{rows}_{index}"
