"""A key pair and an App for tests against the in-memory GitHub."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gatekeeper.domain.events import RepositoryRef
from gatekeeper.github.app import GithubApp, Identity
from gatekeeper.github.pace import Limits
from tests.github.serving import served
from tests.github.world import CLIENT_ID, World

REPOSITORY = RepositoryRef(id=7, full_name="acme/kernels")
HEAD, BASE = "a" * 40, "b" * 40
START = 1_796_000_000.0
"""Where the simulated clock begins, in seconds since 1970."""


@functools.cache
def keys() -> tuple[str, bytes]:
    """Return a private key and its public key in PEM, made once."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@dataclass
class Clock:
    """Time that moves only when somebody sleeps or the test says so."""

    moment: float = START
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        """Return the moment."""
        return self.moment

    def sleep(self, seconds: float) -> None:
        """Move on, and remember it."""
        self.slept.append(seconds)
        self.moment += seconds


@contextmanager
def installed(
    folder: Path, limits: Limits | None = None, *, app: str = CLIENT_ID
) -> Iterator[tuple[World, GithubApp, Clock]]:
    """Serve a world with one repository, one open pull request and an App that is installed there."""
    private, public = keys()
    clock = Clock()
    world = World(public, clock.now)
    repository = world.repository(REPOSITORY.id, REPOSITORY.full_name)
    repository.commits |= {HEAD, BASE}
    with served(world) as url:
        made = GithubApp(
            Identity(app, private, url), folder / "github", limits=limits, now=clock.now, sleep=clock.sleep
        )
        yield world, made, clock
        made.close()


def bodies(requests: list[Any]) -> list[Any]:
    """Return the bodies of requests."""
    return [each.body for each in requests]
