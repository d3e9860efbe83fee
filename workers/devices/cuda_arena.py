"""An arena in a device's memory, handed to the arm as two file descriptors.

Whoever imports such a descriptor chooses its access, so nothing here is sealed: both memories have guard bands that are looked at,
and what the arm may only read is compared with what it was after each run (``workers/loop/unsealed.py``). The size of such memory
cannot change, and the harness keeps its own mapping whatever the arm does with its.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workers.arena import CHANGING, FIXED, Guarded, Place
from workers.devices.driver import Driver, Memory


class CudaArena(Guarded):
    """Both memories of one arm at one configuration on a device."""

    sealed = False
    guarded = (FIXED, CHANGING)

    def __init__(self, places: dict[str, Place], driver: Driver) -> None:
        self._driver = driver
        self._memories: list[Memory] = []
        super().__init__(places)

    def _add(self, size: int, *, writable: bool) -> Tensor:  # noqa: ARG002  (both are)
        memory = self._driver.make(size)
        self._memories.append(memory)
        self.descriptors.append(self._driver.export(memory))
        return memory.bytes()

    def _release(self) -> None:
        torch.cuda.synchronize()
        for memory in self._memories:
            self._driver.drop(memory)
        self._memories = []
