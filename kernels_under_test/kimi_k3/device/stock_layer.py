"""Stock's layer over the mailboxes of the arena. Needs Triton."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels_under_test.kimi_k3.cuda.sizes import (
    DOWN_SHARD,
    EXPERTS,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    PARTS,
    ROUTER_SHARD,
    SHARED,
    TOP_K,
)
from kernels_under_test.kimi_k3.cuda.stock import experts, rows
from kernels_under_test.kimi_k3.cuda.stock.layer import UNIT, Stock
from kernels_under_test.kimi_k3.cuda.tensors import Weights
from kernels_under_test.kimi_k3.device import mailbox


class MailboxStock(Stock):
    """The 23 launches; the routing reads the other ranks' columns from mailboxes and leaves this rank's there.

    ``own`` are the layer's tensors in the arena, ``ids`` [rows, 16] int32 where its chosen experts go.
    """

    def __init__(self, weights: Weights, inputs: dict[str, Tensor], own: Mapping[str, Tensor], ids: Tensor) -> None:
        super().__init__(weights, inputs)
        self.ids, self.box = ids, own["gathered.out"]
        self.full_latent, self.latent = self.latent, own["gathered.latent"]
        self.box_logits = own["gathered.logits"]
        self.operands["latent_down"] = (self.x, self.full_latent)
        self.operands["tail_up"] = (self.n, self.box[:, :OUT_SHARD])

    def feed_forward(self) -> None:
        """Kernels 10 to 23, as stock has them but for the routing."""
        w, t, m = self.w, self.t, self.m
        self.residual(self.a, "post")
        self.product("router")
        self.product("latent_down")
        mailbox.route[(m,)](
            self.logits, self.box_logits, self.full_latent, self.latent, w["bias"], self.ids, self.share,
            E=EXPERTS, W=1024, TOP=TOP_K, OWN=ROUTER_SHARD, L=LATENT, COLUMNS=DOWN_SHARD, B=512, num_warps=4,
        )  # fmt: skip
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
