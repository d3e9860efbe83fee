"""What the steps of one layer share: weights by name, states, and the intermediate results that one step hands to the next."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


class Window:
    """The layers of one decode step and the residual streams that run through them.

    ``prefix`` [rows, hidden] and ``blocks`` [rows, blocks, hidden] are bf16 scratch of one step. ``delta`` is the feed-forward
    output of the layer before, not yet added.
    """

    def __init__(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.facts = facts
        self.rows: int = shape.rows
        self.ranks: int = shape.decode_context_parallel
        self.page: int = shape.page_size
        self.x = tensors["x"]
        self.out = tensors["out"]
        self.first_blocks: int = facts["first_blocks"]
        self.prefix = torch.empty_like(tensors["prefix_in"])
        self.blocks = torch.zeros(
            (self.rows, facts["blocks"], facts["hidden"]), dtype=torch.bfloat16, device=self.x.device
        )
        self.delta = self.x
        self.mixed = self.prefix
        width = tensors["block_table"].shape[1]
        self.positions = torch.arange(width * self.page, device=self.x.device)
        self.layers = [Layer(self, place, *entry) for place, entry in enumerate(facts["layers"])]


class Layer:
    """One layer: ``w`` holds its weights, ``v`` the values of the current step, both by the names of the model's parts."""

    def __init__(self, window: Window, place: int, index: int, kind: str) -> None:
        self.window = window
        self.place = place
        self.index = index
        self.kind = kind
        self.block_size: int = window.facts["block_size"]
        prefix = f"layers.{index}."
        own = {n.removeprefix(prefix): t for n, t in window.tensors.items() if n.startswith(prefix)}
        self.w = SimpleNamespace(**{name.replace(".", "_"): tensor for name, tensor in own.items()})
        self.v = SimpleNamespace()
        self.ids = window.tensors["expert_ids"][place]

    @property
    def opens_block(self) -> bool:
        """Whether the prefix before this layer becomes an attention-residual block."""
        return self.index % self.block_size == 0

    @property
    def complete_blocks(self) -> int:
        """Blocks that are sources before attention: ceil(index / block size)."""
        return -(-self.index // self.block_size)

    def fact(self, name: str) -> Any:
        """A size or eps of the problem."""
        return self.window.facts[name]
