"""The stock path's host side: 23 launches on one stream."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda import mxfp4
from kernels_under_test.kimi_k3.cuda.sizes import (
    B_COLUMN,
    BLOCKS,
    DIM,
    EXPERTS,
    HEADS,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    PARTS,
    PROJECTION,
    RANK,
    SHARED,
    TOP_K,
    WIDTH,
)  # fmt: skip
from kernels_under_test.kimi_k3.cuda.stock import kernels as tk
from kernels_under_test.kimi_k3.cuda.tensors import BF16, STOCK_BLOCK, Weights

UNIT = 16
TILES = {"in": (64, 4, 3), "out": (128, 4, 3)}
"""Rows of a tile, warps and stages of the grouped products, by what was fastest of those tried on an H200."""


class Stock:
    """One layer of one rank; every buffer is allocated once, so that the launches can be captured."""

    def __init__(
        self, weights: Weights, inputs: dict[str, Tensor], tiles: dict[str, tuple[int, int, int]] | None = None
    ) -> None:
        self.w, self.e, self.t = weights.dense, weights.stock, inputs
        self.m = inputs["delta"].shape[0]
        self.tiles = tiles or TILES
        device, pairs = inputs["delta"].device, self.m * TOP_K

        def new(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
            return torch.zeros(*shape, device=device, dtype=dtype)

        m = self.m
        self.x, self.y, self.raw = new(m, HIDDEN), new(m, PROJECTION), new(m, WIDTH)
        self.z, self.o, self.core = new(m, 3 * WIDTH), new(m, WIDTH), new(m, WIDTH)
        self.part, self.a = new(m, HIDDEN), new(m, HIDDEN)
        self.logits, self.latent = new(m, EXPERTS, dtype=torch.float32), new(m, LATENT)
        self.ids, self.share = new(m, TOP_K, dtype=torch.int32), new(m, TOP_K, dtype=torch.float32)
        self.count, self.expert = new(1, dtype=torch.int32), new(pairs, dtype=torch.int32)
        self.token, self.pair = new(pairs * UNIT, dtype=torch.int32), new(pairs * UNIT, dtype=torch.int32)
        self.both, self.h, self.rows = new(pairs, 2 * INTER), new(pairs, INTER), new(pairs, LATENT)
        self.gu, self.sh, self.down = new(m, 2 * SHARED), new(m, SHARED), new(m, HIDDEN)
        self.n, self.shard = new(m, LATENT), new(m, OUT_SHARD)
        self.box, self.spare, self.out = inputs["peers_out"].clone(), new(m, HIDDEN), new(m, HIDDEN)

    def _residual(self, delta: Tensor, call: str) -> None:
        w, t = self.w, self.t
        tk.residual[(self.m,)](
            delta, t["prefix"], t["blocks"], w[f"{call}_gamma"], w[f"{call}_query"], w[f"{call}_norm"], self.x,
            D=HIDDEN, NB=BLOCKS, S=8, W=8192, num_warps=16,
        )  # fmt: skip

    def attention(self) -> None:
        """Kernels 1 to 9: residual, KDA, all-reduce stand-in."""
        w, t, m = self.w, self.t, self.m
        self._residual(t["delta"], "pre")
        torch.mm(self.x, w["in_proj"].t(), out=self.y)
        torch.mm(self.y[:, 4 * WIDTH : 4 * WIDTH + RANK], w["f_b"].t(), out=self.raw)
        tk.conv_update[(m, 3 * WIDTH // 256)](
            self.y,
            t["conv_state"],
            w["conv"],
            t["slots"],
            self.z,
            PITCH=PROJECTION,
            C=3 * WIDTH,
            WIDTH=WIDTH,
            B=256,
            num_warps=2,
        )
        tk.delta_rule[(DIM // 16, HEADS, m)](
            self.z, self.raw, self.y, w["a_log"], w["dt_bias"], t["slots"], t["state"], self.o,
            PITCH=PROJECTION, B_AT=B_COLUMN, H=HEADS, K=DIM, BV=16, num_warps=2,
        )  # fmt: skip
        tk.copy[(m, 2)](self.o, self.core, PITCH_IN=WIDTH, PITCH_OUT=WIDTH, N=WIDTH, B=1024)
        tk.gated_norm[(HEADS, m)](
            self.core, self.y, w["o_norm"], PITCH=PROJECTION, G_AT=3 * WIDTH, H=HEADS, K=DIM, num_warps=1
        )
        torch.mm(self.core, w["o_proj"].t(), out=self.part)
        tk.rank_sum[(m, HIDDEN // 512)](
            self.part, t["peers_o"], self.a, m, D=HIDDEN, PEERS=PARTS - 1, B=512, num_warps=2
        )

    def grouped(self, kind: str) -> None:
        """One of the experts' two products."""
        x, y = (self.latent, self.both) if kind == "in" else (self.h, self.rows)
        n, k = (2 * INTER, LATENT) if kind == "in" else (LATENT, INTER)
        rows, warps, stages = self.tiles[kind]
        tk.experts[(n // rows, self.m * TOP_K)](
            x, self.e[f"{kind}_codes"], self.e[f"{kind}_scales"], self.count, self.expert, self.token, self.pair, y,
            N=n, K=k, BN=rows, KB=STOCK_BLOCK[kind], UNIT=UNIT, OWN=kind == "out", ASM=mxfp4.STOCK_ASM, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def feed_forward(self) -> None:
        """Kernels 10 to 23: residual, routing, experts, shared expert, tail."""
        w, t, m = self.w, self.t, self.m
        self._residual(self.a, "post")
        torch.mm(self.x, w["router"].t(), out_dtype=torch.float32, out=self.logits)
        torch.mm(self.x, w["latent_down"].t(), out=self.latent)
        tk.route[(m,)](self.logits, w["bias"], self.ids, self.share, E=EXPERTS, W=1024, TOP=TOP_K, num_warps=1)
        tk.permute[(EXPERTS // 16,)](
            self.ids, self.count, self.expert, self.token, self.pair,
            PAIRS=m * TOP_K, W=1024, UNIT=UNIT, TOP=TOP_K, B=16, num_warps=8,
        )  # fmt: skip
        self.grouped("in")
        tk.situ[(m * TOP_K, 1)](self.both, self.h, N=INTER, B=512, num_warps=2)
        self.grouped("out")
        torch.mm(self.x, w["gate_up"].t(), out=self.gu)
        tk.situ[(m, 2)](self.gu, self.sh, N=SHARED, B=512, num_warps=2)
        torch.mm(self.sh, w["shared_down"].t(), out=self.down)
        tk.finalise[(m,)](
            self.rows, self.share, t["peers_latent"], w["latent_norm"], self.n, self.down, t["peers_shared"], self.shard, m,
            L=LATENT, W=4096, D=HIDDEN, OUT=OUT_SHARD, TOP=TOP_K, PEERS=PARTS - 1, num_warps=16,
        )  # fmt: skip
        tk.tail_up[(OUT_SHARD // 16,)](
            self.n, w["latent_up"], self.shard, self.box, m,
            L=LATENT, D=HIDDEN, OUT=OUT_SHARD, BN=16, BK=256, BM=max(16, m), num_warps=4, num_stages=4 if m <= 16 else 3,
        )  # fmt: skip
        tk.tail_copy[(m, HIDDEN // 1024)](self.box, self.out, self.spare, N=HIDDEN, B=1024, num_warps=4)

    def run(self) -> None:
        """All 23 kernels."""
        self.attention()
        self.feed_forward()
