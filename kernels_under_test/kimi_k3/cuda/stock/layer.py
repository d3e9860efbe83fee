"""The stock path's host side: 23 launches on one stream."""

from __future__ import annotations

import torch
from torch import Tensor

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
    ROWS,
    SHARED,
    TOP_K,
    WIDTH,
)  # fmt: skip
from kernels_under_test.kimi_k3.cuda.stock import experts, kda, products, rows
from kernels_under_test.kimi_k3.cuda.tensors import BF16, STOCK_BLOCK, Weights

UNIT = 8
Tile = tuple[int, ...]
PRODUCTS = {
    "in_proj": (PROJECTION, HIDDEN),
    "f_b": (WIDTH, RANK),
    "o_proj": (HIDDEN, WIDTH),
    "router": (EXPERTS, HIDDEN),
    "latent_down": (LATENT, HIDDEN),
    "gate_up": (2 * SHARED, HIDDEN),
    "shared_down": (HIDDEN, SHARED),
    "tail_up": (OUT_SHARD, LATENT),
}
"""Rows and columns of each dense weight."""

GROUPED = {"in": (2 * INTER, LATENT), "out": (LATENT, INTER)}
SKINNY = {
    1: {
        "in_proj": (2, 2048, 4), "f_b": (8, 256, 4), "o_proj": (2, 1024, 4), "router": (1, 2048, 4), "latent_down": (2, 2048, 4),
        "gate_up": (2, 2048, 4), "shared_down": (8, 256, 4), "tail_up": (1, 2048, 4),
    },
    2: {
        "in_proj": (1, 2048, 4), "f_b": (8, 256, 4), "router": (1, 2048, 4), "latent_down": (1, 2048, 4), "gate_up": (2, 1024, 2),
        "tail_up": (1, 2048, 4),
    },
}  # fmt: skip
"""Rows and columns of a tile and its warps, the fastest of eight shapes on an H200, where the library is slower than that."""

NARROW: dict[int, Tile] = {8: (16, 128, 4, 4), 16: (16, 128, 4, 4), 32: (16, 64, 4, 3), 64: (16, 64, 4, 3)}
"""Rows, columns, groups (one warp each) and stages of the products with few weight rows, by the rows of x."""


def default_tiles(rows: int) -> dict[str, Tile]:
    """A tile for each kernel that is no library product, for a number of rows."""
    if rows <= 2:
        return {"in": (32, 2, 3), "out": (64, 2, 3), **SKINNY[rows]}
    tiles: dict[str, Tile] = {"in": (64, 4, 3), "out": (64, 2, 3), "tail_up": NARROW[rows]}
    return tiles | ({"router": NARROW[rows], "gate_up": NARROW[rows]} if rows <= 16 else {})


class Stock:
    """One KDA layer of one rank; every buffer is allocated once, so that the launches can be captured.

    Raises:
        ValueError: for a number of rows other than 1, 2, 8, 16, 32 or 64.
    """

    products = PRODUCTS

    def __init__(self, weights: Weights, inputs: dict[str, Tensor], tiles: dict[str, Tile] | None = None) -> None:
        self.w, self.e, self.t = weights.dense, weights.stock, inputs
        self.m = m = inputs["delta"].shape[0]
        if m not in ROWS:
            raise ValueError(f"expected one of {ROWS} rows, found {m}")
        self.tiles = {**self.default_tiles(), **(tiles or {})}
        pairs, new = m * TOP_K, self.new
        self.x, self.core, self.part, self.a = new(m, HIDDEN), new(m, WIDTH), new(m, HIDDEN), new(m, HIDDEN)
        self.logits, self.latent = new(m, EXPERTS, dtype=torch.float32), new(m, LATENT)
        self.ids, self.share = new(m, TOP_K, dtype=torch.int32), new(m, TOP_K, dtype=torch.float32)
        self.count, self.expert = new(1, dtype=torch.int32), new(pairs, dtype=torch.int32)
        self.token, self.pair = new(pairs * UNIT, dtype=torch.int32), new(pairs * UNIT, dtype=torch.int32)
        self.both, self.h, self.rows = new(pairs, 2 * INTER), new(pairs, INTER), new(pairs, LATENT)
        self.gu, self.sh, self.down = new(m, 2 * SHARED), new(m, SHARED), new(m, HIDDEN)
        self.n, self.shard = new(m, LATENT), new(m, OUT_SHARD)
        self.box, self.spare, self.out = inputs["peers_out"].clone(), new(m, HIDDEN), new(m, HIDDEN)
        self.operands = {
            "o_proj": (self.core, self.part), "router": (self.x, self.logits),
            "latent_down": (self.x, self.latent), "gate_up": (self.x, self.gu),
            "shared_down": (self.sh, self.down), "tail_up": (self.n, self.box[:, :OUT_SHARD]),
        }  # fmt: skip
        self.prepare()

    def default_tiles(self) -> dict[str, Tile]:
        """A tile for each kernel that is no library product."""
        return default_tiles(self.m)

    def new(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        """A buffer."""
        return torch.zeros(*shape, device=self.t["delta"].device, dtype=dtype)

    def prepare(self) -> None:
        """Buffers and operands of the attention half."""
        m, new = self.m, self.new
        self.y, self.raw, self.z, self.o = new(m, PROJECTION), new(m, WIDTH), new(m, 3 * WIDTH), new(m, WIDTH)
        self.operands |= {
            "in_proj": (self.x, self.y), "f_b": (self.y[:, 4 * WIDTH : 4 * WIDTH + RANK], self.raw),
        }  # fmt: skip

    def set_tile(self, kernel: str, tile: Tile | None) -> None:
        """Another tile for a kernel; None is the library's product.

        Raises:
            ValueError: for the library's product where the kernel does more than a product.
        """
        if tile is None and kernel in (*GROUPED, "tail_up"):
            raise ValueError(f"expected a tile for {kernel}, found None: no library product does its work")
        self.tiles = {k: v for k, v in self.tiles.items() if k != kernel} | ({} if tile is None else {kernel: tile})

    def residual(self, delta: Tensor, call: str) -> None:
        """Attention residual and its norm."""
        w, t = self.w, self.t
        rows.residual[(self.m,)](
            delta, t["prefix"], t["blocks"], w[f"{call}_gamma"], w[f"{call}_query"], w[f"{call}_norm"], self.x,
            D=HIDDEN, NB=BLOCKS, S=8, W=8192, num_warps=8,
        )  # fmt: skip

    def product(self, name: str) -> None:
        """One dense product, by the tile that the arm has for it or else by the library."""
        x, y = self.operands[name]
        n, k = self.products[name]
        add = name == "tail_up"
        w, m, tile = self.w["latent_up" if add else name], self.m, self.tiles.get(name)
        if tile is None:
            torch.mm(x, w.t(), out=y, **({"out_dtype": y.dtype} if y.dtype != BF16 else {}))
        elif len(tile) == 3:
            high, columns, warps = tile
            products.skinny[(n // high,)](
                x, w, y, self.shard, n, x.stride(0), y.stride(0), K=k, M=m, BN=high, BK=columns, ADD=add, num_warps=warps
            )  # fmt: skip
        else:
            high, columns, groups, stages = tile
            products.narrow[(n // high,)](
                x, w, y, self.shard, m, n, x.stride(0), y.stride(0), K=k, BN=high, BM=max(8, m), BK=columns, G=groups, ADD=add,
                num_warps=groups, num_stages=stages,
            )  # fmt: skip

    def attention(self) -> None:
        """Kernels 1 to 9: residual, KDA, all-reduce stand-in."""
        w, t, m = self.w, self.t, self.m
        self.residual(t["delta"], "pre")
        self.product("in_proj")
        self.product("f_b")
        kda.conv_update[(m, 3 * WIDTH // 256)](
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
        kda.delta_rule[(DIM // 16, HEADS, m)](
            self.z, self.raw, self.y, w["a_log"], w["dt_bias"], t["slots"], t["state"], self.o,
            PITCH=PROJECTION, B_AT=B_COLUMN, H=HEADS, K=DIM, BV=16, num_warps=2,
        )  # fmt: skip
        kda.copy[(m, 2)](self.o, self.core, PITCH_IN=WIDTH, PITCH_OUT=WIDTH, N=WIDTH, B=1024)
        kda.gated_norm[(HEADS, m)](
            self.core, self.y, w["o_norm"], PITCH=PROJECTION, G_AT=3 * WIDTH, H=HEADS, K=DIM, num_warps=1
        )
        self.output()

    def output(self) -> None:
        """Kernels 8 and 9: output projection and the all-reduce's stand-in."""
        self.product("o_proj")
        rows.rank_sum[(self.m, HIDDEN // 512)](
            self.part, self.t["peers_o"], self.a, self.m, D=HIDDEN, PEERS=PARTS - 1, B=512, num_warps=2
        )

    def grouped(self, kind: str) -> None:
        """One of the experts' two products."""
        x, y = (self.latent, self.both) if kind == "in" else (self.h, self.rows)
        n, k = GROUPED[kind]
        high, warps, stages = self.tiles[kind]
        experts.experts[(n // high, self.m * TOP_K)](
            x, self.e[f"{kind}_codes"], self.e[f"{kind}_scales"], self.count, self.expert, self.token, self.pair, y,
            N=n, K=k, BN=high, KW=STOCK_BLOCK[kind], UNIT=UNIT, OWN=kind == "out", num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def route(self) -> None:
        """Kernel 13: choose the experts of each row and their shares."""
        experts.route[(self.m,)](
            self.logits, self.w["bias"], self.ids, self.share, E=EXPERTS, W=1024, TOP=TOP_K, num_warps=4
        )

    def feed_forward(self) -> None:
        """Kernels 10 to 23: residual, routing, experts, shared expert, tail."""
        w, t, m = self.w, self.t, self.m
        self.residual(self.a, "post")
        self.product("router")
        self.product("latent_down")
        self.route()
        experts.permute[(EXPERTS // 8,)](
            self.ids, self.count, self.expert, self.token, self.pair,
            PAIRS=m * TOP_K, W=1024, UNIT=UNIT, TOP=TOP_K, B=8, num_warps=4,
        )  # fmt: skip
        self.grouped("in")
        experts.situ[(m * TOP_K, 1)](self.both, self.h, N=INTER, B=512, num_warps=2)
        self.grouped("out")
        self.product("gate_up")
        experts.situ[(m, 2)](self.gu, self.sh, N=SHARED, B=512, num_warps=2)
        self.product("shared_down")
        rows.finalise[(m,)](
            self.rows, self.share, t["peers_latent"], w["latent_norm"], self.n, self.down, t["peers_shared"], self.shard, m,
            L=LATENT, W=4096, D=HIDDEN, OUT=OUT_SHARD, TOP=TOP_K, PEERS=PARTS - 1, num_warps=16,
        )  # fmt: skip
        self.product("tail_up")
        rows.tail_copy[(m, HIDDEN // 1024)](self.box, self.out, self.spare, N=HIDDEN, B=1024, num_warps=4)

    def run(self) -> None:
        """All 23 kernels."""
        self.attention()
        self.feed_forward()
