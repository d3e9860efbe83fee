"""What a step reads about its rows before the first layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Rows:
    """The rows of the current step: which are live, their state slots, lengths and cache slots. Read anew in every step."""

    def __init__(self, shape: Any, tensors: Mapping[str, Tensor]) -> None:
        self.count: int = shape.rows
        self.ranks: int = shape.decode_context_parallel
        self.page: int = shape.page_size
        self.tensors = tensors
        self.live: Tensor | None = None
        self.slots = torch.zeros(0, dtype=torch.int64)
        self.cache_slots: list[tuple[int, int, int]] = []
        self.longest = 0

    def read(self) -> None:
        """Read slots, lengths and mappings; ``live`` is None where every row is live."""
        slots: list[int] = self.tensors["slots"].tolist()
        rows = [row for row, slot in enumerate(slots) if slot > 0]
        self.live = None if len(rows) == self.count else torch.tensor(rows, dtype=torch.int64)
        self.slots = torch.tensor([slots[row] for row in rows], dtype=torch.int64)
        self.longest = int(self.tensors["local_lens"].max())
        mapping: list[list[int]] = self.tensors["slot_mapping"].tolist()
        self.cache_slots = [
            (rank, row, slot) for rank, ranked in enumerate(mapping) for row, slot in enumerate(ranked) if slot >= 0
        ]
