"""The fastest tiles of a stock MLA layer and variants of the candidate's, each timed on cold weights and caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from k3_layer import run_all, stock_tiles
from timing import quick

from kernels_under_test.kimi_k3.cuda.cute import mla_tactics
from kernels_under_test.kimi_k3.cuda.cute.mla_layer import CandidateMla
from kernels_under_test.kimi_k3.cuda.mla_sizes import GATE_AT
from kernels_under_test.kimi_k3.cuda.sizes import HIDDEN, WIDTH
from kernels_under_test.kimi_k3.cuda.stock import products
from kernels_under_test.kimi_k3.cuda.stock.layer import GROUPED
from kernels_under_test.kimi_k3.cuda.stock.mla_layer import BY_HEAD, SPLITS, StockMla

MLA_TILES: dict[bool, dict[str, list[Any]]] = {
    True: {
        "in_proj": [(2, 2048, 4), (1, 2048, 4), (4, 1024, 4), None],
        "q_b": [(4, 512, 4), (2, 512, 4), (2, 1024, 4), (8, 256, 4), None],
        "absorb": [(16, 128, 4), (32, 128, 4), (8, 128, 2), None],
        "value": [(4, 512, 4), (8, 512, 4), (16, 256, 4), None],
    },
    False: {
        "q_b": [None, (16, 64, 4, 3), (16, 128, 4, 3), (32, 64, 4, 3)],
        "absorb": [(64, 128, 4), (32, 128, 4), (128, 128, 4), None],
        "value": [(32, 128, 4), (64, 128, 4), (16, 256, 4), None],
    },
}
"""Tiles of stock's own MLA products to try, at up to two rows and above; None is the library's product."""

ATTENTION = [(32, 4, 3), (32, 4, 2), (64, 4, 2), (64, 8, 2), (32, 8, 3), (64, 8, 3), (16, 4, 4), (32, 8, 2), (64, 4, 3)]


def part(arm: Any, kernel: str) -> None:
    """One launch of a stock arm, by the name of its tile."""
    if kernel in GROUPED:
        arm.grouped(kernel)
    elif kernel in BY_HEAD:
        arm.by_head(kernel)
    else:
        arm.product(kernel)


def each(made: list[Any], run: Callable[[Any], None], rounds: int = 1) -> Callable[[], None]:
    """``run`` for every arm, some rounds."""

    def all_of_them() -> None:
        for _ in range(rounds):
            for arm in made:
                run(arm)

    return all_of_them


def tune_tiles(made: list[StockMla]) -> dict[str, Any]:
    """The fastest tile of every stock product, each timed alone on cold weights."""
    rows = made[0].m
    found: dict[str, Any] = {}
    run_all(made)()
    for kernel, tiles in (stock_tiles(rows) | MLA_TILES[rows <= 2]).items():
        times: dict[Any, float] = {}
        for tile in tiles:
            for arm in made:
                arm.set_tile(kernel, tile)
            try:
                times[tile] = quick(each(made, lambda arm, k=kernel: part(arm, k), 2), 3, 4) / (2 * len(made))  # type: ignore[misc]
            except Exception as failure:
                found[f"{kernel} {tile}"] = f"{type(failure).__name__}: {str(failure)[:80]}"
        best = min(times, key=lambda t: times[t])
        found |= {f"{kernel} {tile}": round(us, 2) for tile, us in times.items()} | {f"{kernel} chosen": best}
        for arm in made:
            arm.set_tile(kernel, best)
    return found


def splits_to_try(rows: int, context: int) -> list[int]:
    """Parts of each row: from an eighth of a program to four a multiprocessor, none below 32 tokens."""
    most = min(SPLITS, -(-context // 32))
    return sorted({max(1, min(most, round(132 * k / rows))) for k in (0.125, 0.25, 0.5, 1, 2, 4)})


def tune_attention(made: list[StockMla], context: int) -> dict[str, Any]:
    """The fastest split attention with its merge: every tile with every number of splits."""
    found: dict[str, float] = {}
    best: tuple[float, Any, int] = (float("inf"), StockMla.attention_tile, 1)
    long = made[0].m * context > 1 << 21

    def both(arm: StockMla) -> None:
        arm.attend()
        arm.merge()

    def time_of(tile: Any, splits: int) -> float:
        for arm in made:
            arm.attention_tile = tile
            arm.set_splits(splits)
        try:
            us = quick(each(made, both, 1 if long else 3), 3, 2) / ((1 if long else 3) * len(made))
        except Exception as failure:
            print("attention", tile, splits, type(failure).__name__, str(failure)[:80])
            return float("inf")
        found[f"{tile} {splits}"] = round(us, 2)
        return us

    for splits in splits_to_try(made[0].m, context):
        for tile in ATTENTION:
            best = min(best, (time_of(tile, splits), tile, splits), key=lambda b: b[0])
    for arm in made:
        arm.attention_tile = best[1]
        arm.set_splits(best[2])
    return {"tried": found, "chosen": [best[1], best[2]], "us": best[0]}


def tune(made: list[CandidateMla], kernels: Iterable[str]) -> dict[str, Any]:
    """Coordinate descent over the variants of some kernels, timed in the whole chain."""
    rows = made[0].m
    choice = {kernel: mla_tactics.chosen(kernel, rows) for kernel in kernels}
    best = quick(run_all(made)) / len(made)
    log: dict[str, Any] = {"start": best}
    for kernel in choice:
        tried = {choice[kernel]: best}
        for index in (i for i in range(len(mla_tactics.tactics(kernel, rows))) if i != choice[kernel]):
            for arm in made:
                arm.choice = choice | {kernel: index}  # type: ignore[assignment]
            tried[index] = quick(run_all(made)) / len(made)
        index = min(tried, key=lambda i: tried[i])
        if tried[index] < 0.997 * best:
            choice[kernel], best = index, tried[index]
        log[kernel] = {str(i): round(v, 2) for i, v in tried.items()}
        for arm in made:
            arm.choice = dict(choice)
    return {"choice": choice, "us": best, "tried": log}


def two_products(made: list[StockMla]) -> dict[str, float]:
    """Microseconds of the projection as one product, as the arm has it, and as two (latents and gate) by the library and, at up to
    two rows, by the arm's tile."""
    m, tile = made[0].m, made[0].tiles.get("in_proj")

    def by_library(arm: StockMla) -> None:
        w = arm.w["in_proj"]
        torch.mm(arm.x, w[:GATE_AT].t(), out=first)
        torch.mm(arm.x, w[GATE_AT:].t(), out=second)

    def by_tile(arm: StockMla) -> None:
        high, columns, warps = tile or (1, 2048, 4)
        for w, y in ((arm.w["in_proj"][:GATE_AT], first), (arm.w["in_proj"][GATE_AT:], second)):
            n = w.shape[0]
            products.skinny[(n // high,)](
                arm.x, w, y, arm.shard, n, arm.x.stride(0), y.stride(0), K=HIDDEN, M=m, BN=high, BK=columns, ADD=False,
                num_warps=warps,
            )  # fmt: skip

    first, second = made[0].new(m, GATE_AT), made[0].new(m, WIDTH)
    runs = {"one": lambda arm: arm.product("in_proj"), "two by the library": by_library}
    if m <= 2:
        runs["two by a tile"] = by_tile
    return {name: round(quick(each(made, run, 3), 3, 3) / (3 * len(made)), 2) for name, run in runs.items()}
