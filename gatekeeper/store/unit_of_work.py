"""Transactions: a writing unit commits at its end or leaves no trace, and workers are woken only after it has committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from gatekeeper.domain.errors import Retryable
from gatekeeper.store.deliveries import DeliveryReads, DeliveryWrites
from gatekeeper.store.documents import DocumentReads, DocumentWrites
from gatekeeper.store.engine import WRITES, worth_retrying
from gatekeeper.store.jobs import JobReads, JobWrites
from gatekeeper.store.pulls import PullReads, PullWrites

LOG = structlog.get_logger()
Notify = Callable[[Sequence[str]], None]


def utc_now() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


class ReadUnit(DocumentReads, JobReads, PullReads, DeliveryReads):
    """A consistent, read-only look at the store. ``connection`` is for the projections in ``store.queries``."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now


class UnitOfWork(ReadUnit, DocumentWrites, JobWrites, PullWrites, DeliveryWrites):
    """All that one transaction may do. ``now`` is one moment for the whole unit."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        super().__init__(connection, now)
        self.woken: dict[str, None] = {}


class Store:
    """The database behind two kinds of transaction. ``notify`` receives job ids after each commit that queued any."""

    def __init__(self, engine: Engine, notify: Notify, now: Callable[[], datetime] = utc_now) -> None:
        self.engine = engine
        self._notify = notify
        self._now = now

    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        """Open a writing unit: commits at the end, rolls back on an exception, then wakes workers.

        Raises:
            Retryable: ``STORE_BUSY`` if the database is locked, deadlocked or gone; nothing was written.
        """
        with _translated(), self.engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: True})
            with connection.begin():
                unit = UnitOfWork(connection, self._now())
                yield unit
        if unit.woken:
            self._wake(tuple(unit.woken))

    @contextmanager
    def read(self) -> Iterator[ReadUnit]:
        """Open a read-only unit: everything it sees is from one moment.

        Raises:
            Retryable: ``STORE_BUSY`` if the database is locked or gone.
        """
        with _translated(), self.engine.connect() as plain:
            connection = plain
            if self.engine.dialect.name == "postgresql":
                connection = plain.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield ReadUnit(connection, self._now())

    def _wake(self, job_ids: tuple[str, ...]) -> None:
        try:
            self._notify(job_ids)
        except Exception:
            # The work is committed and the reconciler will find it: a broker that is down must not fail the caller.
            LOG.warning("store.notify_failed", jobs=job_ids, exc_info=True)

    def close(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if not worth_retrying(error):
            raise
        raise Retryable("the database did not answer in time", code="STORE_BUSY", found=str(error.orig)) from error
