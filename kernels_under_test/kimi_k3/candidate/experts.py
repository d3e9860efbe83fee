"""Latent experts and the shared expert: front (F1), route (F2), shared expert (F3 to F6), experts (E), tail (T).

With few experts of this size, one product over all of them costs less than a dispatch for each: the rows' own experts are then
picked, weighted and multiplied by the packed second matrix, which sums over the slots on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .residual import Site

MX_BLOCK = 32


def plain(w: Mapping[str, Tensor], name: str) -> Tensor:
    """An expert matrix by values: as stored, or of MXFP4 (even input in the low half of a byte) [experts, rows, inputs] fp32."""
    stored, scales = w[name], w.get(f"{name}_scale")
    if scales is None:
        return stored
    codes = torch.stack((stored & 15, stored >> 4), dim=-1).flatten(-2)
    magnitude = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])[(codes & 7).long()]
    value = torch.where(codes >= 8, -magnitude, magnitude)
    return torch.ldexp(value, (scales.int() - 127).repeat_interleave(MX_BLOCK, dim=-1))


def situ(both: Tensor, scale: Tensor, width: int) -> Tensor:
    """SiTU without its outer factors, fp32: tanh(g / b1) sigmoid(g) tanh(u / b2)."""
    wide = both.float()
    bent = (wide * scale).tanh_()
    return torch.sigmoid(wide[..., :width]).mul_(bent[..., :width]).mul_(bent[..., width:])


class Experts:
    """The feed-forward part of a layer."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        w: Mapping[str, Tensor],
        packed: Mapping[str, Tensor],
        mailbox: Tensor,
        ids: Tensor,
        after: Site,
    ) -> None:
        self._w, self._p, self._mailbox, self._out_ids, self._after = w, packed, mailbox, ids, after
        self._experts, self._top_k = facts["experts"], facts["top_k"]
        self._wide: int = facts["expert_intermediate"]
        self._shared: int = facts["shared_intermediate"]
        self._guard: float = facts["eps.renormalise"]
        self._norm_eps: float = facts["eps.latent_norm"]
        # Both outer factors of the activation are one factor of the routed weights and of the shared product.
        self._outer: float = facts["situ_beta"] * facts["situ_linear_beta"]
        self._routed: float = facts["routed_scaling"] * self._outer
        packed["front"].copy_(torch.cat((w["router"], w["latent_down"])))
        packed["latent_norm"].copy_(w["latent_norm"])
        packed["minus_bias"].copy_(-w["router_bias"])
        packed["w2"].copy_(plain(w, "w2").transpose(0, 1).flatten(1))
        for name, width in (("expert_scale", self._wide), ("shared_scale", self._shared)):
            packed[name][:width] = 1 / facts["situ_beta"]
            packed[name][width:] = 1 / facts["situ_linear_beta"]
        if "w13" in packed:
            packed["w13"].copy_(plain(w, "w13").flatten(0, 1))
        self._w13 = packed["w13"] if "w13" in packed else w["w13"].flatten(0, 1)
        self.delta = torch.empty(0)

    def stages(self) -> list[tuple[str, Callable[[], None]]]:
        """Names and functions, in order."""
        return [
            ("F1", self.front),
            ("F2", self.route),
            ("F3", self.shared_gate_up),
            ("F4", self.shared_situ),
            ("F5", self.shared_down),
            ("F6", self.push),
            ("E", self.experts),
            ("T", self.tail),
        ]

    def front(self) -> None:
        """Router logits and the experts' latent input as one product; the logits stay fp32."""
        x = self._after.x
        self._x = x.to(torch.bfloat16)
        self._front = functional.linear(self._x.float(), self._p["front"])

    def route(self) -> None:
        """Choose by sigmoid plus bias, ties to the lower id and NaN last; weight by the sigmoid alone."""
        scores = torch.sigmoid(self._front[:, : self._experts])
        order = torch.sort(self._p["minus_bias"] - scores, dim=-1, stable=True).indices
        self._ids = order[:, : self._top_k]
        self._out_ids.copy_(self._ids)
        picked = scores.gather(1, self._ids)
        self._weights = picked.mul_(self._routed / (picked.sum(-1, keepdim=True) + self._guard))

    def shared_gate_up(self) -> None:
        """Gate and up of the shared expert."""
        self._both = functional.linear(self._x, self._w["shared_gate_up"])

    def shared_situ(self) -> None:
        """Activation of the shared expert."""
        bent = situ(self._both, self._p["shared_scale"], self._shared)
        self._hidden = bent.mul_(self._outer).to(torch.bfloat16)

    def shared_down(self) -> None:
        """Output of the shared expert."""
        self._down = functional.linear(self._hidden, self._w["shared_down"])

    def push(self) -> None:
        """Store the shared expert's rows with their owner, here the only rank."""
        self._mailbox.copy_(self._down)

    def experts(self) -> None:
        """All chosen experts of all rows, weighted and summed over the slots: [rows, latent] bf16."""
        rows = self._ids.shape[0]
        z = self._front[:, self._experts :].to(torch.bfloat16)
        both = functional.linear(z, self._w13).view(rows, self._experts, -1)
        ids = self._ids.unsqueeze(-1)
        mine = both.gather(1, ids.expand(-1, -1, 2 * self._wide))
        bent = situ(mine, self._p["expert_scale"], self._wide).mul_(self._weights.unsqueeze(-1))
        spread = self._p["spread"].zero_()
        spread.scatter_(1, ids.expand(-1, -1, self._wide), bent.to(torch.bfloat16))
        self._latent = functional.linear(spread.view(rows, -1), self._p["w2"])

    def tail(self) -> None:
        """Norm of the latent, projection up, and the shared expert's rows added."""
        latent = self._latent.float()
        normed = functional.rms_norm(latent, self._p["latent_norm"].shape, self._p["latent_norm"], self._norm_eps)
        self.delta = functional.linear(normed.to(torch.bfloat16), self._w["latent_up"]).add_(self._mailbox)
