"""What the harness needs of the place where a race's tensors live.

Session, blocks, runs and judge are the same everywhere; everything that differs between the machine's own memory and an
accelerator is behind :class:`Device`. ``find.py`` chooses one by the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import torch

from workers.arena import Guarded, Place
from workers.jail import Bind, Jail, Limits


@dataclass(frozen=True)
class Reading:
    """What the device says of itself at one moment."""

    reasons: tuple[str, ...] = ()
    """Why clocks are lower than they could be, all of them."""
    slowed: tuple[str, ...] = ()
    """Of these the ones that spoil a measurement: the hardware protects itself, from heat or from too little power."""
    clocks: Mapping[str, int] = field(default_factory=dict)
    """MHz by domain."""
    celsius: int | None = None
    milliwatts: int | None = None


class Device(Protocol):
    """One place where tensors live. All methods are called by the harness alone."""

    name: str
    """As the vendor names it; ``cpu`` for the machine itself."""
    place: torch.device
    """Where the harness makes its own tensors."""
    mode: Literal["eager", "graph"]
    """How an arm runs a step."""
    largest_workspace: int
    """Bytes that an implementation may ask for."""
    together: int
    """Pairs of processes that start up side by side before their blocks."""
    load_seconds: float
    """Time that an implementation may take to build one configuration."""

    def arena(self, places: dict[str, Place]) -> Guarded:
        """Make the memory of one arm at one configuration."""
        ...

    def settle(self) -> None:
        """Return when everything that the harness has begun on this device is done."""
        ...

    def gauge(self) -> str | None:
        """Return what shows that something else runs on the device, or None where it is idle but for the harness."""
        ...

    def read(self) -> Reading:
        """Return what the device says of itself now."""
        ...

    def stub(self) -> Sequence[Path]:
        """Return the files that the arm's stub needs beside it."""
        ...

    def binds(self) -> Sequence[Bind]:
        """Return what the jail has to show beside the implementation."""
        ...

    def environment(self, jail: Jail) -> Mapping[str, str]:
        """Return what is added to a jailed process's environment."""
        ...

    def limits(self, limits: Limits) -> Limits:
        """Return the bounds of an arm's process tree, from those on the machine alone."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return versions and digests for the record, by component."""
        ...

    def close(self) -> None:
        """Give back what this object holds."""
        ...
