"""The ports to the outside and the context that carries them. Services get a ``Context`` and nothing global."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gatekeeper.domain.catalog import Catalog
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.race import ProbeRequest, ProbeResult, RaceOrder, RaceResult, TreeSource
from gatekeeper.domain.snapshot import PullFacts, Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.engine import PolicyBook

if TYPE_CHECKING:  # types only: at run time the layers below are handed in
    from gatekeeper.git.mirror import Mirrors
    from gatekeeper.store.unit_of_work import Store

Progress = Callable[[Mapping[str, Any]], None]
"""Receives each progress event of a worker: a JSON object with at least ``event``."""

Exported = Callable[[TreeSource, Path], AbstractContextManager[Path]]
"""Writes a tree source's directory below a fresh folder in the given place and yields that folder; it is removed afterwards."""


class Clock(Protocol):
    """Wall time. Durations are measured elsewhere, by a monotonic clock."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        ...


class JobQueue(Protocol):
    """Wakes workers. A lost or repeated notification is harmless: the database says what there is to do."""

    def notify(self, job_ids: Sequence[str]) -> None:
        """Say that these jobs may be claimed. Called only after the commit that queued them."""
        ...


class Runner(Protocol):
    """Runs a request on a worker and returns its parsed result."""

    def race(self, order: RaceOrder, exported: Exported, progress: Progress, stop: threading.Event) -> RaceResult:
        """Run a race. Once ``stop`` is set nobody waits for it any more, and everything that it started is killed.

        Raises:
            Conflict: ``RUN_STOPPED`` if ``stop`` was set before the result was there.
            Rejected: if the worker refuses the order; asked again it would refuse it again.
            Postponed: if the machine is taken.
            Retryable: if the worker died, did not answer in time or answered with something that is no result.
        """
        ...

    def probe(
        self, request: ProbeRequest, exported: Exported, progress: Progress, stop: threading.Event
    ) -> ProbeResult:
        """Run a probe; the same errors as :meth:`race`."""
        ...


class Forge(Protocol):
    """The platform that hosts the repository: GitHub, or the demonstration's stand-in."""

    def pull(self, repository: RepositoryRef, number: int) -> PullFacts:
        """Return what a pull request is now.

        Raises:
            Conflict: if there is no such pull request (any more).
            Retryable: if the forge cannot be reached.
        """
        ...


class Publisher(Protocol):
    """Shows a verdict somewhere. Called again with the same verdict it changes nothing that a person would see."""

    name: str

    def publish(
        self, snapshot: Snapshot, digest: str, verdict: Verdict, external: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Show the verdict named ``digest``; ``external`` is what the last call returned (ids of the other side).

        Raises:
            Retryable: if the other side cannot be reached now.
        """
        ...


class ShownRun(Protocol):
    """A check run as a forge shows it now. ``external_id`` is ours: it says what was written there."""

    @property
    def id(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def conclusion(self) -> str | None: ...
    @property
    def external_id(self) -> str | None: ...
    @property
    def annotations(self) -> int: ...


class CheckRuns(Protocol):
    """The check runs that this service may write in one repository."""

    def latest(self, head_sha: str) -> Mapping[str, ShownRun]:
        """Return our newest run of each name at a commit.

        Raises:
            Conflict: if the forge has no such commit.
            Retryable: if the forge does not answer; so do the other methods.
        """
        ...

    def create(self, body: Mapping[str, Any]) -> ShownRun:
        """Create a run. Raises ``Rejected`` if the forge does not take it."""
        ...

    def update(self, run: int, body: Mapping[str, Any]) -> ShownRun:
        """Change a run. Raises ``Rejected`` if the forge does not take it."""
        ...

    def mode(self, base_ref: str) -> str:
        """Return the mode that the configuration on a base branch chooses; ``block`` where it cannot be read."""
        ...


@dataclass(frozen=True)
class Judged:
    """A pull request's current snapshot and the latest verdict about it, or None before the first."""

    snapshot: Snapshot
    digest: str | None = None
    verdict: Verdict | None = None


@runtime_checkable
class HeadPublisher(Publisher, Protocol):
    """Shows verdicts on commits instead of on pull requests: several of these may have the same head."""

    def announce(self, repository: RepositoryRef, number: int, head_sha: str, base_ref: str) -> None:
        """Say that a head is being judged, unless that is said already. Raises as :class:`CheckRuns` does."""
        ...

    def show(self, repository: RepositoryRef, head_sha: str, judged: Sequence[Judged]) -> Mapping[str, Any]:
        """Show what was decided about all pull requests that have this head; the same twice changes nothing."""
        ...

    def leave(self, repository: RepositoryRef, number: int, head_sha: str, newer: str) -> None:
        """Finish what is unfinished at a head that a ``newer`` one has replaced, unless it speaks for others too."""
        ...


@dataclass(frozen=True)
class Context:
    """Everything a service may use. Built once, in ``bootstrap``; tests build their own with fakes."""

    store: Store
    clock: Clock
    queue: JobQueue
    runner: Runner
    forge: Forge
    mirrors: Mirrors
    publishers: tuple[Publisher, ...]
    catalog: Catalog
    books: Mapping[str, PolicyBook]
    """Policy sets by name, each applied to the installed policies."""
    default_policy_set: str
    lease: timedelta = timedelta(seconds=60)
    watch_seconds: float = 2.0
    """How often a running race or probe asks whether it is still wanted."""
    coalesce: timedelta = timedelta(0)
    """How long an intake waits for further pushes to the same pull request."""
