"""KDA layers: the projection (P1) and the whole core as one stage (K)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .residual import Site
from .rows import Rows


class Kda:
    """Kimi delta attention for one token per request; ``verify`` has several. The convolution and the core stay in fp32; padded
    rows give zero."""

    def __init__(
        self, facts: Mapping[str, Any], w: Mapping[str, Tensor], packed: Mapping[str, Tensor], rows: Rows, before: Site
    ) -> None:
        self._w, self._p, self._rows, self._before = w, packed, rows, before
        self._heads, self._dim, self._rank = facts["heads"], facts["kda_dim"], facts["forget_rank"]
        self._bound: float = facts["gate_lower_bound"]
        self._l2: float = facts["eps.kda_l2"]
        # The query stays unscaled: o is then sqrt(dim) times as large, and so its norm's eps is dim times as large.
        self._eps: float = facts["eps.kda_norm"] * self._dim
        speed = torch.exp(w["a_log"]).repeat_interleave(self._dim)
        packed["conv"].copy_(w["conv"].t())
        packed["f_b"].copy_((w["f_b"].float() * speed.unsqueeze(1)).t())
        packed["dt_bias"].copy_(w["dt_bias"] * speed)
        packed["o_norm"].copy_(w["o_norm"])
        self.partial = torch.empty(0)

    def stages(self) -> list[tuple[str, Callable[[], None]]]:
        """Names and functions, in order."""
        return [("P1", self.project), ("K", self.core)]

    def project(self) -> None:
        """q | k | v | g | f_a | b of all rows, bf16."""
        self._y = functional.linear(self._before.x.to(torch.bfloat16), self._w["in_proj"])

    def core(self) -> None:
        """Forget gate, convolution, recurrence and gated norm of the live rows."""
        y, live, slots = self._y, self._rows.live, self._rows.slots
        if live is not None:
            self._p["attention"].zero_()
            y = y.index_select(0, live)
        count, d, heads, dim = y.shape[0], self._heads * self._dim, self._heads, self._dim
        if count == 0:
            return
        z = self._convolve(y[:, : 3 * d], slots)
        small = y[:, 3 * d : 4 * d + self._rank + heads].float()
        gates = torch.sigmoid(small)
        raw = torch.addmm(self._p["dt_bias"], small[:, d : d + self._rank], self._p["f_b"])
        decay = raw.sigmoid_().mul_(self._bound).exp_().view(count, heads, 1, dim)
        qk = z[:, : 2 * d].reshape(count, 2, heads, dim)
        qk = qk * (qk * qk).sum(-1, keepdim=True).add_(self._l2).rsqrt_()
        q, k = qk[:, 0].reshape(-1, dim, 1), qk[:, 1].reshape(-1, dim, 1)
        state = self._w["recurrent_state"].index_select(0, slots).mul_(decay).view(-1, dim, dim)
        error = torch.baddbmm(z[:, 2 * d :].reshape(-1, dim, 1), state, k, alpha=-1)
        error.mul_(gates[:, d + self._rank :].reshape(-1, 1, 1))
        state.baddbmm_(error, k.transpose(1, 2))
        self._w["recurrent_state"].index_copy_(0, slots, state.view(count, heads, dim, dim))
        o = torch.bmm(state, q).view(count, heads, dim)
        o = functional.rms_norm(o, (dim,), self._p["o_norm"], self._eps).view(count, d).mul_(gates[:, :d])
        if live is None:
            self._p["attention"].copy_(o)
        else:
            self._p["attention"].index_copy_(0, live, o.to(torch.bfloat16))

    def _convolve(self, qkv: Tensor, slots: Tensor) -> Tensor:
        """Convolution and SiLU, [live, 3d] fp32; shifts the convolution state."""
        taps = torch.cat((self._w["conv_state"].index_select(0, slots), qkv.unsqueeze(1)), dim=1)
        self._w["conv_state"].index_copy_(0, slots, taps[:, 1:])
        return functional.silu((taps * self._p["conv"]).sum(1), inplace=True)

    def o_proj(self) -> None:
        """Output projection, [rows, hidden] bf16."""
        self.partial = functional.linear(self._p["attention"], self._w["o_proj"])
