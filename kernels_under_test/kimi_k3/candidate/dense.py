"""The dense feed-forward of layer 0, on the seams of the shared expert: gate and up (F3), activation (F4), down (F5), push (F6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .experts import situ
from .residual import Site


class Dense:
    """The feed-forward part of layer 0."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        w: Mapping[str, Tensor],
        packed: Mapping[str, Tensor],
        mailbox: Tensor,
        after: Site,
    ) -> None:
        self._w, self._scale, self._after = w, packed["dense_scale"], after
        self._wide: int = facts["dense_intermediate"]
        self._outer: float = facts["situ_beta"] * facts["situ_linear_beta"]
        self._scale[: self._wide] = 1 / facts["situ_beta"]
        self._scale[self._wide :] = 1 / facts["situ_linear_beta"]
        self.delta = mailbox

    def stages(self) -> list[tuple[str, Callable[[], None]]]:
        """Names and functions, in order."""
        return [("F3", self.gate_up), ("F4", self.activation), ("F5", self.down), ("F6", self.push)]

    def gate_up(self) -> None:
        """Gate and up."""
        self._both = functional.linear(self._after.x.to(torch.bfloat16), self._w["dense_gate_up"])

    def activation(self) -> None:
        """SiTU."""
        self._hidden = situ(self._both, self._scale, self._wide).mul_(self._outer).to(torch.bfloat16)

    def down(self) -> None:
        """Output of this rank, here the only one."""
        self._down = functional.linear(self._hidden, self._w["dense_down"])

    def push(self) -> None:
        """Store the rows where the next residual reads them."""
        self.delta.copy_(self._down)
