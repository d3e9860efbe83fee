"""What the web side is told at start. ``bootstrap`` fills it from the settings; nothing here reads the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from gatekeeper.github.tenants import Keyring
from gatekeeper.services.deliveries import Quotas
from gatekeeper.store.queries import QueueLine
from gatekeeper.store.unit_of_work import Store

Readiness = Callable[[], str | None]
"""Returns None if all is well, else what is wrong, for an operator. Must not take longer than a second or two."""


class WebContext(Protocol):
    """The part of :class:`~gatekeeper.context.Context` that the web side uses: no forge, no mirror, no runner."""

    @property
    def store(self) -> Store:
        """The database."""
        ...

    @property
    def coalesce(self) -> timedelta:
        """How long an intake waits for further pushes to the same pull request."""
        ...


@dataclass(frozen=True)
class WebOptions:
    """The web side's settings.

    ``keyring``: the webhook secrets by scope, and which repositories and installations are served.
    ``quotas``: how much one repository or sender may ask for.
    ``hosts``: names under which this service answers, without port.
    ``largest_delivery``: bytes; GitHub sends at most 25 MB.
    ``slowest_chunk``, ``slowest_delivery``: seconds that a sender may stay silent, and take in all.
    ``readiness``: checks of ``/readyz`` by name.
    ``queue``: how the queue stands, for ``/readyz``; a long one is told and makes nothing unready.
    ``documentation``: whether ``/docs`` and ``/openapi.json`` are served.
    """

    keyring: Keyring
    quotas: Quotas = field(default_factory=Quotas)
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    largest_delivery: int = 25 * 1024 * 1024
    slowest_chunk: float = 10.0
    slowest_delivery: float = 60.0
    readiness: Mapping[str, Readiness] = field(default_factory=dict)
    queue: Callable[[], Sequence[QueueLine]] | None = None
    documentation: bool = False
