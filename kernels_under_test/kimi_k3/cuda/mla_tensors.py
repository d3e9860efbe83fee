"""Weights, caches and tables of an MLA layer on a device, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda.mla_sizes import (
    CACHED,
    KV_RANK,
    MLA_PROJECTION,
    NOPE,
    PAGE,
    Q_RANK,
    QUERY,
    VALUE,
)
from kernels_under_test.kimi_k3.cuda.sizes import HEADS, HIDDEN
from kernels_under_test.kimi_k3.cuda.tensors import BF16, Weights, draw_streams


def mla_weights(base: Weights, seed: int) -> Weights:
    """The same layer with an MLA attention half: linear weights N(0, 1) / sqrt(K), norms near 1.

    ``kv_b`` [12, 256, 512]: of each head 128 key rows, then 128 value rows; the latent is contiguous.
    """
    device = base.dense["o_proj"].device
    gen = torch.Generator(device=device).manual_seed(10_000 + seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, generator=gen)

    own = {
        "in_proj": (normal(MLA_PROJECTION, HIDDEN) * HIDDEN**-0.5).to(BF16),
        "q_norm": (1 + 0.1 * normal(Q_RANK)).to(BF16),
        "kv_norm": (1 + 0.1 * normal(KV_RANK)).to(BF16),
        "q_b": (normal(QUERY, Q_RANK) * Q_RANK**-0.5).to(BF16),
        "kv_b": (normal(HEADS, NOPE + VALUE, KV_RANK) * KV_RANK**-0.5).to(BF16),
    }
    return replace(base, dense=base.dense | own)


def draw_pool(pages: int, seed: int, device: str) -> Tensor:
    """A cache of some pages, [pages x 64, 576] bf16; page 0 is the null page and holds NaN."""
    gen = torch.Generator(device=device).manual_seed(seed)
    pool = torch.empty(pages * PAGE, CACHED, device=device, dtype=BF16)
    pool.normal_(generator=gen)
    pool[:PAGE] = float("nan")
    return pool


def pages_of(lengths: Sequence[int]) -> int:
    """Pages that some requests and the null page take."""
    return 1 + sum(-(-n // PAGE) for n in lengths)


def draw_tables(lengths: Sequence[int], pages: int, columns: int, seed: int, device: str) -> dict[str, Tensor]:
    """Lengths int32 [rows], page tables int32 [rows, columns] in shuffled order, padded with the null page, and where the step's new
    token goes (the last of the length), int64 [rows], -1 for a request without tokens.

    Raises:
        ValueError: if the pages or the columns do not suffice.
    """
    gen = torch.Generator().manual_seed(seed)
    need = [-(-n // PAGE) for n in lengths]
    if 1 + sum(need) > pages or max(need, default=0) > columns:
        raise ValueError(
            f"expected at least {1 + sum(need)} pages and {max(need)} columns, found {pages} and {columns}"
        )
    order = (torch.randperm(pages - 1, generator=gen) + 1).to(torch.int32)
    table = torch.zeros(len(lengths), columns, dtype=torch.int32)
    where = torch.full((len(lengths),), -1, dtype=torch.int64)
    at = 0
    for row, (length, n) in enumerate(zip(lengths, need, strict=True)):
        table[row, :n] = order[at : at + n]
        at += n
        if length:
            where[row] = int(table[row, n - 1]) * PAGE + (length - 1) % PAGE
    lens = torch.tensor(list(lengths), dtype=torch.int32)
    return {"lens": lens.to(device), "table": table.to(device), "where": where.to(device)}


def poison(t: dict[str, Tensor]) -> None:
    """NaN into everything that no request may read: the place of each new token, and each last page behind it."""
    for row, slot in enumerate(t["where"].tolist()):
        if slot >= 0:
            t["cache"][slot : (slot // PAGE + 1) * PAGE] = float("nan")
        elif int(t["lens"][row]):
            raise ValueError(f"expected a place for the new token of row {row}, found {slot}")


def draw_mla_inputs(
    lengths: Sequence[int], seed: int, device: str, pool: Tensor | None = None, columns: int | None = None
) -> dict[str, Tensor]:
    """Streams, cache, tables of one step. With ``pool`` the cache is that one (its values are not drawn again)."""
    gen = torch.Generator(device=device).manual_seed(seed)
    t = draw_streams(len(lengths), gen)
    t["cache"] = draw_pool(pages_of(lengths), seed, device) if pool is None else pool
    width = columns or max(-(-n // PAGE) for n in lengths) + 2
    t |= draw_tables(lengths, t["cache"].shape[0] // PAGE, width, seed, device)
    return t
