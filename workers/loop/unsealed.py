"""What an arm may only read, where its memory lets it write all the same: compared byte for byte after each run.

On a device no memory can be handed out that another process cannot write: whoever imports a handle chooses the access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels_under_test.contract import Role, TensorSpec
from workers.arena import Stray

if TYPE_CHECKING:
    from workers.loop.runs import Data


def changed(tensors: Mapping[str, Tensor], specs: Sequence[TensorSpec], data: Data) -> Iterator[Stray]:
    """Yield the first byte that differs of each tensor that an arm may only read: weights, metadata, schedules, noise, table.

    Args:
        tensors: the arm's, by name as in its arena.
        specs: the problem's tensors at this shape.
        data: what the run was given; bytes behind the run's last step are not compared.
    """
    given: dict[str, Tensor] = {"noise": data.noise, "multipliers": data.multipliers, "table": data.table * data.signs}
    for spec in specs:
        if spec.role in (Role.WEIGHT, Role.METADATA):
            given[spec.name] = data.initial[spec.name]
        elif spec.role is Role.SCHEDULE:
            given[f"schedule.{spec.name}"] = data.initial[spec.name]
    for name, wanted in given.items():
        by_step = name == "noise" or name.startswith("schedule.")
        mine = words(tensors[name][: data.steps] if by_step else tensors[name])
        apart = mine != words(wanted)
        if bool(apart.any()):
            yield Stray(name, int(apart.to(torch.uint8).argmax()) * mine.element_size())


def words(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes as integers as wide as they fill, [n]: int64 where their number is a multiple of eight."""
    raw = tensor.contiguous().reshape(-1).view(torch.uint8)
    return raw.view(torch.int64) if raw.numel() % 8 == 0 and raw.storage_offset() % 8 == 0 else raw
