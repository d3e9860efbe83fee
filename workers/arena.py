"""The memory that an arm works on: it belongs to the harness, every tensor stands between guard bands, and size never changes.

Two memories for each arm and configuration. What the arm may only read (weights, metadata, schedules, noise, table) lies in the
first; states, outputs, histories and workspace lie in the other. :class:`Guarded` is what all arenas share, whatever memory they
lie in; :class:`Arena` lies in the machine's own: there the first memory is sealed against writing by anyone but the harness's own
mapping, so that a write by the arm is a fault of its process, and both are sealed against shrinking and growing: a truncated
arena would kill the harness on its next read. An arena on a device is in ``workers/devices/cuda_arena.py``.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from kernels_under_test.contract import OUT, TABLE_ROWS, Role, TensorSpec, X

GUARD = 4096
GUARD_BYTE = 0xA5
POISON_BYTE = 0xFF
"""As bf16 or fp32 this is NaN, as a signed integer -1: no right answer of any dtype."""
F_SEAL_FUTURE_WRITE = 0x0010
"""Linux 5.1: mappings made from now on cannot be written, those that exist can. Not in Python's fcntl before 3.13."""
WORKSPACE = "workspace"
FIXED, CHANGING = 0, 1
READ_ONLY = (Role.WEIGHT, Role.METADATA)


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: arena (``FIXED`` or ``CHANGING``), offset and size in bytes, shape, dtype name."""

    arena: int
    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Stray:
    """A byte that was overwritten: of a guard band, or of a tensor that an arm may only read."""

    tensor: str
    offset: int
    """Of the byte, from the tensor's first; negative before it, at least its size after it in a guard band."""


def layout(specs: Sequence[TensorSpec], steps: int, workspace: int) -> dict[str, Place]:
    """Return the place of every tensor for runs of up to ``steps`` steps, names as the stub knows them.

    Besides the specs: ``schedule.<name>`` and ``history.<name>`` with a step axis, ``noise`` [steps, rows, hidden] bf16,
    ``table`` [4096, hidden] bf16, ``multipliers`` [hidden] int64 and ``workspace`` [bytes] uint8.
    """
    by_name = {spec.name: spec for spec in specs}
    hidden = by_name[OUT].shape[-1]
    wanted: list[tuple[str, int, tuple[int, ...], str]] = []
    for spec in specs:
        wanted.append((spec.name, FIXED if spec.role in READ_ONLY else CHANGING, spec.shape, spec.dtype))
        if spec.role is Role.SCHEDULE:
            wanted.append((f"schedule.{spec.name}", FIXED, (steps, *spec.shape), spec.dtype))
        if spec.role is Role.OUTPUT:
            wanted.append((f"history.{spec.name}", CHANGING, (steps, *spec.shape), spec.dtype))
    wanted.append(("noise", FIXED, (steps, *by_name[X].shape), "bfloat16"))
    wanted.append(("table", FIXED, (TABLE_ROWS, hidden), "bfloat16"))
    wanted.append(("multipliers", FIXED, (hidden,), "int64"))
    wanted.append((WORKSPACE, CHANGING, (max(workspace, 1),), "uint8"))
    ends = [GUARD, GUARD]
    places: dict[str, Place] = {}
    for name, arena, shape, dtype in wanted:
        size = prod(shape) * getattr(torch, dtype).itemsize
        places[name] = Place(arena, ends[arena], size, shape, dtype)
        # The next tensor starts a whole guard band or more behind the end of this one, on a page.
        ends[arena] += -(-size // GUARD) * GUARD + GUARD
    return places


class Guarded(ABC):
    """Both memories of one arm at one configuration, mapped in the harness, with a view of every tensor by name.

    ``descriptors`` are the two files, ``FIXED`` and ``CHANGING``, that an arm gets to map them.
    """

    sealed = True
    """Whether the arm cannot write what it may only read; else the harness compares it after each run."""
    guarded: tuple[int, ...] = (CHANGING,)
    """Memories that the arm can write, so that their guard bands are looked at."""

    def __init__(self, places: dict[str, Place]) -> None:
        self.places = places
        self.descriptors: list[int] = []
        self._bytes: list[Tensor] = []
        for arena in (FIXED, CHANGING):
            end = max(
                (p.offset + -(-p.size // GUARD) * GUARD for p in places.values() if p.arena == arena), default=GUARD
            )
            self._bytes.append(self._add(end + GUARD, writable=arena == CHANGING))
            self._bytes[-1].fill_(GUARD_BYTE)
        self.tensors = {
            name: self._bytes[p.arena][p.offset : p.offset + p.size].view(getattr(torch, p.dtype)).reshape(p.shape)
            for name, p in places.items()
        }
        self._bands = [band for arena in self.guarded for band in self._guard_bands(arena)]

    @abstractmethod
    def _add(self, size: int, *, writable: bool) -> Tensor:
        """Make one memory, append its descriptor and return all its bytes, [at least ``size``] uint8."""

    @abstractmethod
    def _release(self) -> None:
        """Give the memories back; no view of them is left."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each memory."""
        return tuple(memory.numel() for memory in self._bytes)

    def _guard_bands(self, arena: int) -> list[tuple[str, int, Tensor]]:
        """(tensor, offset of the band from the tensor's start, bytes) of one memory."""
        ours = sorted((p.offset, name, p) for name, p in self.places.items() if p.arena == arena)
        memory = self._bytes[arena]
        bands = [(ours[0][1], -ours[0][0], memory[: ours[0][0]])]
        for index, (offset, name, place) in enumerate(ours):
            end = ours[index + 1][0] if index + 1 < len(ours) else memory.numel()
            bands.append((name, place.size, memory[offset + place.size : end]))
        return bands

    def strays(self) -> list[Stray]:
        """Return the first overwritten byte of every guard band that does not hold its pattern."""
        found = []
        for name, start, band in self._bands:
            wrong = band != GUARD_BYTE
            if bool(wrong.any()):
                found.append(Stray(name, start + int(wrong.to(torch.uint8).argmax())))
        return found

    def mend(self) -> None:
        """Fill all guard bands anew."""
        for _, _, band in self._bands:
            band.fill_(GUARD_BYTE)

    def poison(self, names: Sequence[str]) -> None:
        """Fill tensors with the poison byte."""
        for name in names:
            place = self.places[name]
            self._bytes[place.arena][place.offset : place.offset + place.size].fill_(POISON_BYTE)

    def table(self) -> dict[str, tuple[int, int, tuple[int, ...], str]]:
        """Return the layout table as the stub wants it."""
        return {name: (p.arena, p.offset, p.shape, p.dtype) for name, p in self.places.items()}

    def close(self) -> None:
        """Give the memory back; views must not be used any more."""
        self.tensors, self._bytes, self._bands = {}, [], []
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []
        self._release()


class Arena(Guarded):
    """An arena in the machine's own memory: two sealed files that live in memory alone."""

    def __init__(self, places: dict[str, Place]) -> None:
        self._maps: list[mmap.mmap] = []
        super().__init__(places)

    def _add(self, size: int, *, writable: bool) -> Tensor:
        descriptor = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        mapped = mmap.mmap(descriptor, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | (0 if writable else F_SEAL_FUTURE_WRITE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)
        self.descriptors.append(descriptor)
        self._maps.append(mapped)
        return torch.frombuffer(mapped, dtype=torch.uint8)

    def _release(self) -> None:
        self._maps = []
