"""Weights, states and inputs of one layer on a device, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda import mxfp4
from kernels_under_test.kimi_k3.cuda.sizes import (
    B_COLUMN,
    BLOCKS,
    DIM,
    DOWN_SHARD,
    EXPERTS,
    HEADS,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    PARTS,
    PROJECTION,
    RANK,
    ROUTER_SHARD,
    SHARED,
    WIDTH,
)  # fmt: skip

SLOTS = 65
STOCK_BLOCK = {"in": 32, "out": 16}
"""Columns of a block of the stock packing: 8 of them are a chunk, and 3 chunks are the 384 columns of the second product."""
BF16 = torch.bfloat16


@dataclass
class Weights:
    """One layer's weights on this rank; the expert matrices lie in both packings, the front matrices too."""

    dense: dict[str, Tensor]
    stock: dict[str, Tensor]
    candidate: dict[str, Tensor]
    codes: dict[str, Tensor]
    """Codes and scale bytes as drawn, for the reference; empty if not kept."""


def draw_weights(seed: int, device: str, keep_codes: bool) -> Weights:
    """Linear weights N(0, 1) / sqrt(K); norms near 1; random codes with scales near 2^-7."""
    gen = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, generator=gen)

    def linear(n: int, k: int) -> Tensor:
        weight: Tensor = normal(n, k) * k**-0.5
        return weight.to(BF16)

    w = {
        "in_proj": linear(PROJECTION, HIDDEN),
        "f_b": linear(WIDTH, RANK),
        "o_proj": linear(HIDDEN, WIDTH),
        "router": linear(EXPERTS, HIDDEN),
        "latent_down": linear(LATENT, HIDDEN),
        "gate_up": linear(2 * SHARED, HIDDEN),
        "shared_down": linear(HIDDEN, SHARED),
        "latent_up": linear(OUT_SHARD, LATENT),
        "conv": 0.5 * normal(3, 4, WIDTH),
        "a_log": torch.log(torch.rand(HEADS, device=device, generator=gen) * 1.5 + 0.05),
        "dt_bias": normal(WIDTH) - 2.0,
        "o_norm": 1 + 0.1 * normal(DIM),
        "latent_norm": (1 + 0.1 * normal(LATENT)).to(BF16),
        "bias": 0.05 * normal(EXPERTS),
    }
    w["in_proj"][B_COLUMN + HEADS :] = 0
    for call in ("pre", "post"):
        w[f"{call}_gamma"] = (1 + 0.1 * normal(HIDDEN)).to(BF16)
        # A spread of 2.3 in the scores; with 0.2 of a fixed size it would be 17, and the softmax would take one source alone.
        w[f"{call}_query"] = (2.3 * HIDDEN**-0.5 * normal(HIDDEN)).to(BF16)
        w[f"{call}_norm"] = (1 + 0.1 * normal(HIDDEN)).to(BF16)
    stock: dict[str, Tensor] = {}
    candidate: dict[str, Tensor] = {}
    codes: dict[str, Tensor] = {}
    for kind, n, k, center in (("in", 2 * INTER, LATENT, 120), ("out", LATENT, INTER, 121)):
        scales = torch.randint(center - 1, center + 2, (EXPERTS, n, k // 32), device=device, generator=gen).to(
            torch.uint8
        )
        stock[f"{kind}_codes"] = torch.empty(EXPERTS, n, k // 8, dtype=torch.int32, device=device)
        stock[f"{kind}_scales"] = scales.view(torch.int32)
        candidate[f"{kind}_codes"] = torch.empty(EXPERTS, n * k // 8, dtype=torch.int32, device=device)
        candidate[f"{kind}_scales"] = torch.empty(EXPERTS, n * k // 32, dtype=torch.uint8, device=device)
        kept = []
        for at in range(0, EXPERTS, 64):
            part = slice(at, at + 64)
            drawn = torch.randint(0, 16, (64, n, k), device=device, generator=gen, dtype=torch.uint8)
            stock[f"{kind}_codes"][part] = mxfp4.words(drawn, STOCK_BLOCK[kind])
            words, lifted = mxfp4.tiles(drawn, scales[part], paired=kind == "in")
            candidate[f"{kind}_codes"][part] = words
            candidate[f"{kind}_scales"][part] = lifted
            if keep_codes:
                kept.append(drawn)
        if keep_codes:
            codes[f"{kind}_codes"] = torch.cat(kept)
            codes[f"{kind}_scales"] = scales
    pairs = w["gate_up"].view(2, SHARED, HIDDEN).transpose(0, 1).reshape(2 * SHARED, HIDDEN)
    candidate["front"] = torch.cat((w["router"][:ROUTER_SHARD], w["latent_down"][:DOWN_SHARD], pairs)).contiguous()
    return Weights(w, stock, candidate, codes)


INPUTS = {
    "delta": (HIDDEN,),
    "prefix": (HIDDEN,),
    "blocks": (BLOCKS, HIDDEN),
}
PEERS = {"peers_o": HIDDEN, "peers_latent": LATENT, "peers_shared": OUT_SHARD}


def draw_streams(rows: int, gen: torch.Generator) -> dict[str, Tensor]:
    """Residual streams and the other ranks' parts of one step."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=gen.device, generator=gen)

    t = {key: normal(rows, *shape).to(BF16) for key, shape in INPUTS.items()}
    t |= {key: (normal(PARTS - 1, rows, size) * 0.3).to(BF16) for key, size in PEERS.items()}
    t["peers_out"] = normal(rows, HIDDEN).to(BF16)
    return t


def draw_inputs(rows: int, seed: int, device: str, null_rows: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """Residual streams, states, slots and the other ranks' parts of one step. Null rows get slot 0; slot 0 holds NaN."""
    gen = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, generator=gen)

    t = draw_streams(rows, gen)
    t["state"] = 0.3 * normal(SLOTS, HEADS, DIM, DIM)
    t["conv_state"] = normal(SLOTS, 3, 3 * WIDTH).to(BF16)
    t["state"][0] = float("nan")
    t["conv_state"][0] = float("nan")
    slots = torch.randperm(SLOTS - 1, device=device, generator=gen)[:rows].to(torch.int32) + 1
    for row in null_rows:
        slots[row] = 0
    t["slots"] = slots
    return t
