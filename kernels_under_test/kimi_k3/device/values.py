"""What the tensors of a rank's problem hold, made from a counter on the device where they lie: the same bits on every device.

Distributions are those of :mod:`kernels_under_test.kimi_k3.values`; the streams of random words are not, since here a tensor has
a billion codes: a code is four bits of a word, not a word.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from kernels_under_test import hashrng
from kernels_under_test.contract import Role, TensorSpec
from kernels_under_test.kimi_k3.sizes import Sizes

E2M1_RMS = 2.926
PIECE = 1 << 26
"""Elements made at a time: each takes two words and as much again while they are mixed, 2 GiB in all."""
PEERS = 0.3
"""Size of one peer's part of a sum of seven."""
QUERY = 2.3
"""Spread of a residual's scores. The 0.2 of the small problems is 2.3 at their 128 columns and 17 at 7,168, where the softmax would
take one source alone: most layers would then see nothing but a block that never changes."""
HELD = 0.3
"""About the size that the recurrence settles at."""


class Filler:
    """Fills tensors of one rank under one seed and regime."""

    def __init__(self, sizes: Sizes, seed: int, regime: str) -> None:
        self.sizes, self.seed, self.regime = sizes, seed, regime

    def fill(self, spec: TensorSpec, target: Tensor) -> None:
        """Write one tensor in place."""
        part = spec.name.rsplit(".", 1)[-1]
        rules: dict[str, Callable[[], Tensor | None]] = {
            "w13": lambda: self._codes(spec.name, target),
            "w2": lambda: self._codes(spec.name, target),
            "w13_scale": lambda: self._scales(spec.name, target, self.sizes.latent),
            "w2_scale": lambda: self._scales(spec.name, target, self.sizes.expert_intermediate),
            "query": lambda: self._normal(spec.name, target, QUERY * self.sizes.hidden**-0.5),
            "gamma": lambda: self._normal(spec.name, target, 0.1, 1.0),
            "conv": lambda: self._normal(spec.name, target, 0.5),
            "router_bias": lambda: self._normal(spec.name, target, 0.05),
            "a_log": lambda: self._speeds(spec, target),
            "dt_bias": lambda: self._biases(spec, target),
            "slots": lambda: self._slots(target),
        }
        if part in rules:
            rules[part]()
        elif part.endswith("norm"):
            self._normal(spec.name, target, 0.1, 1.0)
        elif spec.role is Role.WEIGHT:
            self._normal(spec.name, target, spec.shape[-1] ** -0.5)
            if part == "in_proj":
                s = self.sizes
                target[4 * s.kda_width + s.forget_rank + s.heads :] = 0
        else:
            self._given(spec, target)

    def _normal(self, name: str, target: Tensor, scale: float, mean: float = 0.0) -> None:
        flat = target.view(-1)
        for at in range(0, flat.numel(), PIECE):
            piece = flat[at : at + PIECE]
            drawn = hashrng.normal(self.seed, name, (piece.numel(),), counter=at, device=target.device)
            piece.copy_(drawn.mul_(scale).add_(mean))

    def _codes(self, name: str, target: Tensor) -> None:
        """Two codes a byte: every byte of the stream's words, as they lie in memory."""
        flat = target.view(-1)
        for at in range(0, flat.numel(), 8 * PIECE):
            piece = flat[at : at + 8 * PIECE]
            words = hashrng.words(self.seed, name, -(-piece.numel() // 8), counter=at // 8, device=target.device)
            piece.copy_(words.view(torch.uint8)[: piece.numel()])

    def _scales(self, name: str, target: Tensor, inputs: int) -> None:
        """E8M0 bytes about those that make the gain of ``inputs`` inputs one."""
        exponent = 0
        while 2.0**exponent > 1.4 * inputs**-0.5 / E2M1_RMS:
            exponent -= 1
        flat = target.view(-1)
        for at in range(0, flat.numel(), PIECE):
            piece = flat[at : at + PIECE]
            drawn = hashrng.integers(self.seed, name, 0, 3, (piece.numel(),), counter=at, device=target.device)
            piece.copy_(drawn.add_(exponent - 1 + 127))

    def _long(self, size: tuple[int, ...], place: torch.device) -> Tensor:
        """True for the heads with long memory: every second one."""
        heads = self.sizes.heads
        return (torch.arange(heads, device=place) % 2 == 1).repeat_interleave(prod(size) // heads)

    def _speeds(self, spec: TensorSpec, target: Tensor) -> None:
        drawn = hashrng.uniform(self.seed, spec.name, spec.shape, device=target.device) * 3.44 - 3.0
        target.copy_(drawn.masked_fill(self._long(spec.shape, target.device), 0.0))

    def _biases(self, spec: TensorSpec, target: Tensor) -> None:
        slow = hashrng.uniform(self.seed, spec.name + ".long", spec.shape, device=target.device) * 4.0 - 8.5
        fast = hashrng.normal(self.seed, spec.name, spec.shape, device=target.device) - 2
        target.copy_(torch.where(self._long(spec.shape, target.device), slow, fast))

    def _slots(self, target: Tensor) -> None:
        """Distinct slots in any order; in the regime ``padded`` the last of several rows has the null slot."""
        from kernels_under_test.kimi_k3.device.problem import SLOTS

        rows = target.numel()
        target.copy_(hashrng.permutation(self.seed, "slots", SLOTS - 1, device=target.device)[:rows] + 1)
        if self.regime == "padded" and rows > 1:
            target[-1] = 0

    def _given(self, spec: TensorSpec, target: Tensor) -> None:
        """States, streams and the other ranks' parts; the null slot holds NaN."""
        scale = PEERS if ".peers." in spec.name else HELD if spec.name.endswith("recurrent_state") else 1.0
        self._normal(spec.name, target, scale)
        if self.regime == "heavy" and ".gathered." not in spec.name:
            flat = target.view(-1)
            for at in range(0, flat.numel(), PIECE):
                piece = flat[at : at + PIECE]
                dice = hashrng.words(self.seed, spec.name + ".heavy", piece.numel(), counter=at, device=target.device)
                dice.bitwise_and_(255)
                piece.mul_(torch.where(dice == 0, 16.0, torch.where(dice <= 16, 4.0, 1.0)))
        if spec.name.endswith("_state"):
            target[0] = torch.nan
