"""The stock path's MLA layer: 26 launches on one stream."""

from __future__ import annotations

import torch

from kernels_under_test.kimi_k3.cuda.mla_sizes import (
    CACHED,
    GATE_AT,
    HEAD_IN,
    KV_AT,
    KV_RANK,
    MLA_PROJECTION,
    NOPE,
    PAGE,
    Q_RANK,
    QUERY,
    SCALE,
    SHARED_KEY,
    VALUE,
)
from kernels_under_test.kimi_k3.cuda.sizes import HEADS, HIDDEN, WIDTH
from kernels_under_test.kimi_k3.cuda.stock import mla
from kernels_under_test.kimi_k3.cuda.stock.layer import PRODUCTS, Stock, Tile

LOG2E = 1.4426950408889634
SPLITS = 264
"""Most parts that a row's attention is cut into."""

MLA_PRODUCTS = {
    **{name: size for name, size in PRODUCTS.items() if name not in ("in_proj", "f_b")},
    "in_proj": (MLA_PROJECTION, HIDDEN),
    "q_b": (QUERY, Q_RANK),
}
BY_HEAD = ("absorb", "value")


def default_splits(rows: int, longest: int) -> int:
    """Parts of each row: about two for each multiprocessor, no part below 64 tokens."""
    return max(1, min(264 // rows, -(-longest // 64), SPLITS))


class StockMla(Stock):
    """One MLA layer of one rank. ``attention_tile``: tokens of a block, warps, stages; ``splits``: parts of each row.

    The products by head run by a tile (columns, depth, warps) or, where ``tiles`` has None for them, by the library.
    """

    products = MLA_PRODUCTS
    attention_tile: Tile = (32, 4, 3)

    def default_tiles(self) -> dict[str, Tile]:
        """Tiles of the shared kernels, and one for each product by head."""
        tiles = {k: v for k, v in super().default_tiles().items() if k not in ("in_proj", "f_b")}
        if self.m <= 2:
            tiles |= {"in_proj": (2, 2048, 4), "q_b": (4, 512, 4), "absorb": (16, 128, 4), "value": (4, 512, 4)}
        else:
            tiles |= {"absorb": (64, 128, 4), "value": (32, 128, 4)}
        return tiles

    def prepare(self) -> None:
        """Buffers and operands of the attention half."""
        m, new = self.m, self.new
        self.y, self.q, self.kv, self.up = new(m, MLA_PROJECTION), new(m, Q_RANK), new(m, KV_RANK), new(m, QUERY)
        self.absorbed, self.query = new(m, HEADS, KV_RANK), new(m, HEADS, CACHED)
        self.merged, self.values = new(m, HEADS, KV_RANK), new(m, WIDTH)
        self.set_splits(default_splits(m, int(self.t["lens"].max())))
        self.operands |= {"in_proj": (self.x, self.y), "q_b": (self.q, self.up)}

    def set_splits(self, splits: int) -> None:
        """Parts of each row, and room for them.

        Raises:
            ValueError: outside 1 to 264.
        """
        if not 1 <= splits <= SPLITS:
            raise ValueError(f"expected 1 to {SPLITS} parts, found {splits}")
        self.splits = splits
        self.parts = self.new(self.m * splits, HEADS, KV_RANK, dtype=torch.float32)
        self.logs = self.new(self.m * splits, HEADS, dtype=torch.float32)

    def by_head(self, name: str) -> None:
        """One of the two products with a matrix for each head."""
        weight = self.w["kv_b"]
        nope = self.up.view(self.m, HEADS, HEAD_IN)[:, :, :NOPE]
        x, w, y = (
            (nope, weight[:, :NOPE].transpose(1, 2), self.absorbed)
            if name == "absorb"
            else (self.merged, weight[:, NOPE:], self.values.view(self.m, HEADS, VALUE))
        )
        tile, n, k = self.tiles.get(name), w.shape[1], w.shape[2]
        if tile is None:
            torch.bmm(x.transpose(0, 1), w.transpose(1, 2), out=y.transpose(0, 1))
            return
        high, deep, warps = tile
        strides = (x.stride(0), x.stride(1), *w.stride(), y.stride(0), y.stride(1))
        if self.m <= 2:
            mla.heads_few[(n // high, HEADS)](x, w, y, *strides, K=k, M=self.m, BN=high, BK=deep, num_warps=warps)
        else:
            mla.heads[(n // high, HEADS)](
                x, w, y, self.m, *strides, K=k, BM=max(8, self.m), BN=high, BK=deep, num_warps=warps
            )

    def attend(self) -> None:
        """Attention over the paged cache, in splits."""
        t = self.t
        block, warps, stages = self.attention_tile
        mla.attention[(self.m, self.splits)](
            self.query, t["cache"], t["table"], t["lens"], self.parts, self.logs, t["table"].stride(0), self.splits, SCALE * LOG2E,
            H=HEADS, BH=16, KV=KV_RANK, R=SHARED_KEY, PAGE=PAGE, BN=block, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def merge(self) -> None:
        """The splits of each row and head."""
        wide = 1 << max(0, (self.splits - 1).bit_length())
        columns = 512 if wide <= 16 else 128 if wide <= 64 else 32 if wide <= 256 else 16
        mla.merge[(self.m, HEADS, KV_RANK // columns)](
            self.parts, self.logs, self.merged, self.splits, H=HEADS, KV=KV_RANK, W=wide, B=columns, num_warps=4
        )

    def attention(self) -> None:
        """Kernels 1 to 12: residual, MLA, all-reduce stand-in."""
        w, t, m = self.w, self.t, self.m
        self.residual(t["delta"], "pre")
        self.product("in_proj")
        mla.latent_norms[(m, 2)](
            self.y, w["q_norm"], w["kv_norm"], self.q, self.kv, PITCH=MLA_PROJECTION, Q=Q_RANK, WQ=2048, KV=KV_RANK, num_warps=4
        )  # fmt: skip
        self.product("q_b")
        self.by_head("absorb")
        mla.insert[(m, HEADS + 1)](
            self.absorbed, self.up, self.kv, self.y, t["where"], self.query, t["cache"], self.absorbed.stride(0),
            self.absorbed.stride(1), PITCH=MLA_PROJECTION, KEY_AT=KV_AT + KV_RANK, H=HEADS, IN=HEAD_IN, NOPE=NOPE, KV=KV_RANK,
            R=SHARED_KEY, num_warps=2,
        )  # fmt: skip
        self.attend()
        self.merge()
        self.by_head("value")
        mla.gate[(m, 2)](
            self.values, self.y, self.core, t["lens"], PITCH=MLA_PROJECTION, AT=GATE_AT, N=WIDTH, B=1024, num_warps=4
        )
        self.output()
