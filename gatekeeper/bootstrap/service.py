"""The composition root: settings in, a running set of parts out. Nothing else knows which mode this is."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from gatekeeper.backends.local import JOBS, LOOK_SECONDS, RACES, LocalQueue, Place, Timer
from gatekeeper.backends.subprocesses import SubprocessRunner
from gatekeeper.bootstrap.database import demand_database, reaching_the_database
from gatekeeper.bootstrap.github import github_app, outside
from gatekeeper.catalog import load_catalog
from gatekeeper.config import Settings
from gatekeeper.context import Context, JobQueue
from gatekeeper.domain.catalog import Catalog
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.race import RaceRequest
from gatekeeper.engine import PolicyBook, open_installed_books
from gatekeeper.git.mirror import Mirrors
from gatekeeper.github.app import GithubApp
from gatekeeper.services import jobs
from gatekeeper.services.evaluate import RACE_REQUEST
from gatekeeper.services.handlers import HANDLERS
from gatekeeper.services.reconcile import reconcile, wake
from gatekeeper.store.engine import make_engine
from gatekeeper.store.migrate import migrate, pending_revisions
from gatekeeper.store.queries import QueueLine, queue_lines
from gatekeeper.store.unit_of_work import Store, utc_now

FAIR_AMONG = 200
"""How many due races are looked at to find whose turn it is."""


class SystemClock:
    """Wall time of this machine."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return utc_now()


@dataclass(frozen=True)
class Service:
    """All parts of one process. ``local`` is the queue that works here, or None where Celery workers do."""

    settings: Settings
    ctx: Context
    runner: SubprocessRunner
    local: LocalQueue | None
    broker: Any = None
    guard: int | None = None
    github: GithubApp | None = None
    """The App, where one is configured; its ``meter`` tells what is used of the quota."""

    def run_job(self, job_id: str) -> datetime | None:
        """Run one job; see :func:`gatekeeper.services.jobs.run`."""
        return jobs.run(self.ctx, job_id, HANDLERS)

    def reconcile(self) -> int:
        """Find lost work, clear away old deliveries; see :func:`gatekeeper.services.reconcile.reconcile`."""
        return reconcile(self.ctx, HANDLERS, timedelta(days=self.settings.delivery_days))

    def lane_of(self, job_id: str) -> str:
        """Return the queue of a job; see :func:`lane_of`."""
        return lane_of(self.ctx.store, job_id)

    def run_next(self, job_id: str) -> tuple[str, datetime | None]:
        """Run the job that should go first in the lane of a job that a message named. Returns its id, and as :meth:`run_job`.

        A broker hands messages out as they came; whose turn it is stands in the database. There is a message for each job, so
        each gets its turn.
        """
        lane = self.lane_of(job_id)
        if lane != JOBS:
            with self.ctx.store.read() as uow:
                due = uow.due_jobs(FAIR_AMONG, [JobKind.RACE, JobKind.PROBE])
            job_id = next((each for each in due if self.lane_of(each) == lane), job_id)
        return job_id, self.run_job(job_id)

    def queue_lines(self) -> tuple[QueueLine, ...]:
        """Return how many jobs of each kind stand where."""
        with self.ctx.store.read() as uow:
            return queue_lines(uow)

    def start(self) -> None:
        """Start to work, where this process does the work itself."""
        if self.local is not None:
            store = self.ctx.store
            timers = (
                Timer("reconcile.failed", self.reconcile, self.settings.reconcile_seconds),
                Timer("queue.look_failed", lambda: wake(self.ctx), LOOK_SECONDS),
            )
            self.local.start(self.run_job, lambda job_id: place_of(store, job_id), timers)

    def close(self) -> None:
        """Finish what is running, as far as it ends in time; what does not is tried again later."""
        if self.local is not None and not self.local.stop(self.settings.stop_seconds):
            self.runner.close()
            self.local.stop(5)
        self.runner.close()
        self.ctx.mirrors.close()
        if self.github is not None:
            self.github.close()
        self.ctx.store.close()
        if self.guard is not None:
            os.close(self.guard)

    def pending_revisions(self) -> list[str]:
        """Return the migrations that the database still lacks."""
        return pending_revisions(self.ctx.store.engine)


def build(settings: Settings, *, serves: bool = False, existing: bool = False) -> Service:
    """Put the parts together. Without a broker the database is migrated here, and ``serves`` takes the process lock.

    ``existing`` is for commands about what a service knows: they neither make a database nor change its schema.

    Raises:
        ConfigurationError: for settings, policy sets or target files that are wrong, for a database that was not migrated,
            if another process already serves the same data directory, and with ``existing`` if there is no database.
        Retryable: ``STORE_UNREACHABLE`` if the database does not answer or cannot be opened.
    """
    embedded = settings.broker_url is None
    if existing:
        demand_database(settings)
    with contextlib.ExitStack() as undo:  # a start that fails leaves no lock and no connection behind
        parts = _parts(settings)  # first all that settings may have wrong, then whatever writes
        undo.callback(parts.close)
        _make_folder(settings.data_dir)
        guard = _guard(settings.data_dir) if serves and embedded else None
        if guard is not None:
            undo.callback(os.close, guard)
        engine = make_engine(settings.database_url)
        undo.callback(engine.dispose)
        with reaching_the_database():
            if embedded and not existing:
                migrate(engine)
            pending = pending_revisions(engine)
        if pending:
            raise ConfigurationError(
                "the database is not migrated: run `gatekeeper migrate`", code="CONFIG_MIGRATION",
                expected="the newest schema", found=f"one that lacks {', '.join(pending)}",
            )  # fmt: skip
        made = _put_together(settings, parts, engine, guard)
        undo.pop_all()
    return made


def build_worker(settings: Settings) -> Service:
    """Build the service of a worker process; see :func:`build`.

    Raises:
        ConfigurationError: ``CONFIG_BROKER_URL`` if the settings name no broker; nothing was opened or migrated then.
    """
    if settings.broker_url is None:
        raise ConfigurationError(
            "workers need a broker; without one `gatekeeper serve` does the work itself",
            code="CONFIG_BROKER_URL", expected="redis://HOST:PORT/NUMBER", found="none",
        )  # fmt: skip
    return build(settings, existing=True)


@dataclass(frozen=True)
class _Parts:
    """What is made of the settings alone."""

    books: dict[str, PolicyBook]
    catalog: Catalog
    mirrors: Mirrors
    github: GithubApp | None

    def close(self) -> None:
        self.mirrors.close()
        if self.github is not None:
            self.github.close()


def _parts(settings: Settings) -> _Parts:
    books, catalog = load_books(settings.policy_set), load_catalog()
    try:
        mirrors = Mirrors(settings.data_dir / "mirrors", settings.git_base_url)
    except ConfigurationError as error:
        named = "@" in settings.git_base_url  # what stands before it may be a password
        raise ConfigurationError(
            "GATEKEEPER_GIT_BASE_URL is no address that repositories may be fetched from", code="CONFIG_GIT_BASE_URL",
            expected=error.expected, found="one that names a user" if named else error.found,
        ) from None  # fmt: skip
    return _Parts(books, catalog, mirrors, github_app(settings))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            "the folder of GATEKEEPER_DATA_DIR cannot be made", code="CONFIG_DATA_DIR",
            expected="a directory that may be written to", found=f"{folder.absolute()}: {error.strerror}",
        ) from None  # fmt: skip


def _put_together(settings: Settings, parts: _Parts, engine: Engine, guard: int | None) -> Service:
    local = LocalQueue(settings.worker_threads, settings.race_slots) if settings.broker_url is None else None
    box: list[JobQueue] = []
    store = Store(engine, lambda job_ids: box[0].notify(job_ids))
    broker, jobs_queue = _queue(settings, store, local)
    box.append(jobs_queue)
    runner = SubprocessRunner(probe_seconds=settings.probe_seconds)
    forge, publishers = outside(settings, store, parts.github)
    ctx = Context(
        store=store,
        clock=SystemClock(),
        queue=jobs_queue,
        runner=runner,
        forge=forge,
        mirrors=parts.mirrors,
        publishers=publishers,
        catalog=parts.catalog,
        books=parts.books,
        default_policy_set=settings.policy_set,
        lease=timedelta(seconds=settings.lease_seconds),
        coalesce=timedelta(seconds=settings.coalesce_seconds),
    )
    return Service(
        settings=settings, ctx=ctx, runner=runner, local=local, broker=broker, guard=guard, github=parts.github
    )


def _queue(settings: Settings, store: Store, local: LocalQueue | None) -> tuple[Any, JobQueue]:
    if local is not None:
        return None, local
    # Celery takes a second to import; the embedded mode does without.
    from gatekeeper.backends.celery import CeleryQueue, make_app

    assert settings.broker_url is not None
    app = make_app(settings.broker_url.get_secret_value(), settings.reconcile_seconds, settings.data_dir)
    return app, CeleryQueue(app, lambda job_id: lane_of(store, job_id))


def lane_of(store: Store, job_id: str) -> str:
    """Return the queue of a job: ``race.<target>`` for a race, ``probes`` for a probe, ``jobs`` for everything else."""
    with store.read() as uow:
        job = uow.job(job_id)
        if job is not None and job.kind is JobKind.PROBE:
            return "probes"
        if job is None or job.kind is not JobKind.RACE:
            return JOBS
        return f"race.{uow.document(RACE_REQUEST, job.key, RaceRequest).target.name}"


def place_of(store: Store, job_id: str) -> Place:
    """Return where the embedded queue puts a job: races and probes share a lane, because they must not share the machine."""
    with store.read() as uow:
        job = uow.job(job_id)
    if job is None:
        return JOBS, 0
    return RACES if job.kind in (JobKind.RACE, JobKind.PROBE) else JOBS, job.priority


def load_books(default: str) -> dict[str, PolicyBook]:
    """Return the installed policy sets.

    Raises:
        ConfigurationError: ``CONFIG_POLICY_SET`` if the default set is not among them, or one does not fit the policies.
    """
    books = open_installed_books()
    if default not in books:
        raise ConfigurationError(
            "GATEKEEPER_POLICY_SET names a policy set that is not installed", code="CONFIG_POLICY_SET",
            expected=", ".join(sorted(books)) or "an installed policy set", found=default,
        )  # fmt: skip
    return books


def _guard(folder: Path) -> int:
    descriptor = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigurationError(
            "another process serves the directory of GATEKEEPER_DATA_DIR", code="CONFIG_DATA_DIR",
            expected="one embedded service for each data directory", found=str(folder),
        ) from None  # fmt: skip
    return descriptor


def worker_arguments(queues: Sequence[str], concurrency: int, timer: bool) -> list[str]:
    """Return the arguments of a Celery worker."""
    arguments = ["worker", "--loglevel", "INFO", "--concurrency", str(concurrency), "--queues", ",".join(queues)]
    return [*arguments, "--beat"] if timer else arguments
