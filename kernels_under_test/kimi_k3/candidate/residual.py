"""Attention residuals without copies: blocks and prefix share one buffer, the prefix directly behind the complete blocks.

A layer that opens a block leaves the prefix where it lies, where it has become a block, and puts its attention output behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class Residual:
    """The streams [rows, blocks + 1, hidden] in fp32."""

    def __init__(self, facts: Mapping[str, Any], streams: Tensor, tensors: Mapping[str, Tensor]) -> None:
        self.streams = streams
        self.score_eps: float = facts["eps.residual_score"]
        self.norm_eps: float = facts["eps.layer_norm"]
        self._first: int = facts["first_blocks"]
        self._tensors = tensors

    def enter(self) -> None:
        """Load what the layers before the window left, the last output added to the prefix."""
        if not self._first:  # layer 0: the embedding alone
            self.streams[:, 0].copy_(self._tensors["x"])
            return
        self.streams[:, : self._first].copy_(self._tensors["blocks_in"])
        torch.add(self._tensors["prefix_in"], self._tensors["x"], out=self.streams[:, self._first])


class Site:
    """One attention residual over the first ``blocks`` blocks and the prefix, with the norm behind it.

    ``weights`` are gamma, query and norm, all [hidden] bf16; ``packed`` are two fp32 buffers [hidden] for gamma x query and norm.
    """

    def __init__(self, residual: Residual, blocks: int, weights: list[Tensor], packed: tuple[Tensor, Tensor]) -> None:
        gamma, query, norm = weights
        self._direction, self._norm = packed
        self._direction.copy_(gamma.float() * query.float())
        self._norm.copy_(norm)
        self._sources = residual.streams[:, : blocks + 1]
        self._prefix = residual.streams[:, blocks]
        self._residual = residual
        self.x = torch.empty(0)

    def take(self, value: Tensor, *, replace: bool) -> None:
        """Add ``value`` to the prefix, or begin a new prefix with it, then mix."""
        if replace:
            self._prefix.copy_(value)
        else:
            self._prefix.add_(value)
        self.mix_in()

    def mix_in(self) -> None:
        """Mix the sources by the softmax of their scores and norm: ``x`` [rows, hidden] fp32."""
        v = self._sources
        inverse = (v * v).mean(-1).add_(self._residual.score_eps).rsqrt_()
        shares = torch.softmax((v * self._direction).sum(-1).mul_(inverse), dim=-1)
        self.mixed = torch.bmm(shares.unsqueeze(1), v).squeeze(1)
        self.x = functional.rms_norm(self.mixed, self._norm.shape, self._norm, self._residual.norm_eps)

    def close(self, out: Tensor) -> None:
        """Write the normed mix to ``out``."""
        out.copy_(self.x)
