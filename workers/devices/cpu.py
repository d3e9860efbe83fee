"""The machine itself as the place where tensors live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch

from workers.arena import Arena, Place
from workers.devices.port import Reading
from workers.jail import Bind, Jail, Limits


class CpuDevice:
    """Arenas are sealed files in memory, steps run eagerly. Implements :class:`workers.devices.port.Device`."""

    name = "cpu"
    place = torch.device("cpu")
    mode: Literal["eager", "graph"] = "eager"
    largest_workspace = 1 << 30
    together = 1
    load_seconds = 30.0

    def arena(self, places: dict[str, Place]) -> Arena:
        """Make the memory of one arm at one configuration."""
        return Arena(places)

    def settle(self) -> None:
        """Nothing runs by itself here."""

    def gauge(self) -> str | None:
        """The other arm's CPU time is counted instead."""
        return None

    def read(self) -> Reading:
        """The machine says nothing of itself."""
        return Reading()

    def stub(self) -> Sequence[Path]:
        """The stub needs nothing beside it."""
        return ()

    def binds(self) -> Sequence[Bind]:
        """Nothing has to be shown."""
        return ()

    def environment(self, jail: Jail) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing is added."""
        return {}

    def limits(self, limits: Limits) -> Limits:
        """Return the bounds as they are."""
        return limits

    def versions(self) -> Mapping[str, str]:
        """Nothing beside what every record holds."""
        return {}

    def close(self) -> None:
        """Nothing is held."""
