"""Planted wrong candidates on a device: the stock path with one fault each, which a race must say is WRONG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.device.stock import StockPath


class FrozenState(StockPath):
    """The last layer's recurrent state never advances: every step starts from the state that the run began with."""

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Callable[[], None]:
        """Return stock's step over a copy of that state, which each step makes anew."""
        name = f"layers.{facts['layers'][-1][0]}.recurrent_state"
        private = torch.zeros_like(tensors[name])
        step = super().build(facts, shape, {**tensors, name: private})

        def stale() -> None:
            private.copy_(tensors[name])
            step()

        return stale


class StrayWrite(StockPath):
    """Each step writes one byte behind its output."""

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Callable[[], None]:
        """Return stock's step with a write behind it."""
        step, out = super().build(facts, shape, tensors), tensors["out"]
        behind = torch.as_strided(out.view(-1), (1,), (1,), out.storage_offset() + out.numel())

        def spilling() -> None:
            step()
            behind.fill_(1.0)

        return spilling


class WritesWeights(StockPath):
    """Each step makes a norm that it may only read one last place larger."""

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Callable[[], None]:
        """Return stock's step with a write to a weight behind it."""
        step, weight = super().build(facts, shape, tensors), tensors["final_norm"]

        def writing() -> None:
            step()
            weight.mul_(1.0078125)

        return writing


frozen_state, stray_write, writes_weights = FrozenState(), StrayWrite(), WritesWeights()
