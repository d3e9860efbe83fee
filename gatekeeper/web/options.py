"""What the web side is told at start. ``bootstrap`` fills it from the settings; nothing here reads the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Readiness = Callable[[], str | None]
"""Returns None if all is well, else what is wrong, for an operator. Must not take longer than a second or two."""


@dataclass(frozen=True)
class WebOptions:
    """The web side's settings.

    ``webhook_secrets``: one secret of at least 32 bytes, or two while it is rotated (newest first).
    ``hosts``: names under which this service answers, without port.
    ``repositories``: full names from which deliveries are taken; empty takes all that are signed.
    ``intake_delay``: seconds between a delivery and its intake, so that a burst of pushes is looked at once.
    ``readiness``: checks of ``/readyz`` by name.
    ``documentation``: whether ``/docs`` and ``/openapi.json`` are served.
    """

    webhook_secrets: tuple[bytes, ...]
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    repositories: tuple[str, ...] = ()
    intake_delay: float = 2.0
    largest_delivery: int = 25 * 1024 * 1024
    slowest_chunk: float = 10.0
    slowest_delivery: float = 60.0
    readiness: Mapping[str, Readiness] = field(default_factory=dict)
    documentation: bool = True
