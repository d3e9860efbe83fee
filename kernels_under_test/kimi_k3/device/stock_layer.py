"""Stock's layer over the mailboxes of the arena. Needs Triton."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels_under_test.kimi_k3.cuda.sizes import (
    DOWN_SHARD,
    EXPERTS,
    LATENT,
    OUT_SHARD,
    ROUTER_SHARD,
    TOP_K,
)
from kernels_under_test.kimi_k3.cuda.stock.layer import Stock
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

    def route(self) -> None:
        """The routing, over the mailboxes of the other ranks' columns."""
        mailbox.route[(self.m,)](
            self.logits, self.box_logits, self.full_latent, self.latent, self.w["bias"], self.ids, self.share,
            E=EXPERTS, W=1024, TOP=TOP_K, OWN=ROUTER_SHARD, L=LATENT, COLUMNS=DOWN_SHARD, B=512, num_warps=4,
        )  # fmt: skip
