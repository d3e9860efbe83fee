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
    output of the layer before, not yet added; None where there is no layer before.
    """

    def __init__(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        self.facts = facts
        self.rows: int = shape.rows
        self.requests: int = shape.rows // shape.query_tokens
        self.query_tokens: int = shape.query_tokens
        self.ranks: int = shape.decode_context_parallel
        self.shards: int = shape.tensor_parallel
        self.page: int = shape.page_size
        self.x = tensors["x"]
        self.out = tensors["out"]
        self.first_blocks: int = facts["first_blocks"]
        self.prefix = torch.empty_like(self.x)
        self.blocks = torch.zeros(
            (self.rows, facts["blocks"], facts["hidden"]), dtype=torch.bfloat16, device=self.x.device
        )
        self.delta: Tensor | None = self.x
        self.mixed = self.prefix
        width = tensors["block_table"].shape[1]
        self.positions = torch.arange(width * self.page, device=self.x.device)
        self.layers: list[Layer] = []
        sparse = 0
        for index, kind in facts["layers"]:
            dense = index in facts.get("dense_layers", ())
            self.layers.append(Layer(self, None if dense else sparse, index, kind))
            sparse += not dense

    def local_lengths(self, rank: int) -> Tensor:
        """How many tokens of a rank's shard each row sees: [rows] int64. With one query token, those of its request."""
        if self.query_tokens == 1:
            lengths: Tensor = self.tensors["local_lens"][rank].long()
            return lengths
        return self._visible(rank)

    def _visible(self, rank: int) -> Tensor:
        """Causal within the step, in global positions: token t of q sees the first length - q + t + 1 tokens."""
        q, every = self.query_tokens, int(self.facts["dcp_interleave"])
        turn = every * self.ranks
        ends = self.tensors["seq_lens"].long().unsqueeze(1) + torch.arange(1 - q, 1)
        seen = ends.clamp(min=0).flatten()
        return seen // turn * every + (seen % turn - rank * every).clamp(0, every)

    def block_table(self) -> Tensor:
        """The block table with one line for each row: [rows, width]."""
        table: Tensor = self.tensors["block_table"]
        return table if self.query_tokens == 1 else table.repeat_interleave(self.query_tokens, dim=0)


class Layer:
    """One layer: ``w`` holds its weights, ``v`` the values of the current step, both by the names of the model's parts."""

    def __init__(self, window: Window, place: int | None, index: int, kind: str) -> None:
        self.window = window
        self.index = index
        self.kind = kind
        self.block_size: int = window.facts["block_size"]
        prefix = f"layers.{index}."
        own = {n.removeprefix(prefix): t for n, t in window.tensors.items() if n.startswith(prefix)}
        self.w = SimpleNamespace(**{name.replace(".", "_"): tensor for name, tensor in own.items()})
        self.v = SimpleNamespace()
        self.dense = place is None
        self.ids = window.tensors["expert_ids"][place] if place is not None else torch.empty(0)
        self.ranks: list[Rank] = []

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


class _Values(SimpleNamespace):
    """Values of one rank; what it does not have is the layer's, which every rank holds alike."""

    def __init__(self, common: SimpleNamespace) -> None:
        super().__init__()
        self.__dict__["_common"] = common

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_common"], name)


class Rank(Layer):
    """One rank's shard of a layer under tensor parallelism: its slices of the weights and states, and its own values."""

    def __init__(self, whole: Layer, rank: int, sharded: frozenset[str]) -> None:
        self.window, self.index, self.kind, self.block_size = whole.window, whole.index, whole.kind, whole.block_size
        self.w = SimpleNamespace(**{n: t[rank] if n in sharded else t for n, t in vars(whole.w).items()})
        self.v = _Values(whole.v)
        self.ids = whole.ids
        self.dense = whole.dense

    def fact(self, name: str) -> Any:
        """A size of this rank, or an eps."""
        found = self.window.facts[name]
        return found // self.window.shards if name == "heads" else found
