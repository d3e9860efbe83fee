"""Webhook deliveries: kept as they came until they are done and old; counted, so that no sender can flood the service."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, String, cast, delete, func, select, tuple_, update

from gatekeeper.domain.documents import Value
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.store.statements import insert_once
from gatekeeper.store.tables import deliveries, jobs, pulls

OPEN_STATES = (JobState.QUEUED.value, JobState.RUNNING.value)


class Delivery(Value):
    """A webhook delivery as it arrived. ``times`` counts how often GitHub sent it, ``size`` is its length in bytes."""

    hook_id: int
    guid: str
    event: str
    action: str | None
    body: bytes
    size: int
    repository_id: int | None
    number: int | None
    """The pull request that it is about, if it is about one."""
    sender_id: int | None
    """Account whose action caused it."""
    times: int
    received_at: datetime
    done_at: datetime | None
    note: str | None


class Received(NamedTuple):
    """What came in a span of time: how many deliveries, how many bytes, and when the first of them came."""

    deliveries: int
    bytes: int
    first: datetime | None


class DeliveryReads:
    """Look up and count deliveries, and the intakes that they ask for."""

    connection: Connection

    def delivery(self, hook_id: int, guid: str) -> Delivery | None:
        """Return a delivery, or None if it never arrived (or is long done and was cleared away)."""
        row = self.connection.execute(select(deliveries).where(_named(hook_id, guid))).first()
        return None if row is None else Delivery.model_validate(dict(row._mapping))

    def received(self, since: datetime, *, repository_id: int | None = None, sender_id: int | None = None) -> Received:
        """Count what came since a moment, from one repository or caused by one sender (or both)."""
        counted = select(
            func.count(), func.coalesce(func.sum(deliveries.c.size), 0), func.min(deliveries.c.received_at)
        ).where(deliveries.c.received_at > since)
        if repository_id is not None:
            counted = counted.where(deliveries.c.repository_id == repository_id)
        if sender_id is not None:
            counted = counted.where(deliveries.c.sender_id == sender_id)
        count, size, first = self.connection.execute(counted).one()
        return Received(int(count), int(size), first)

    def waiting_intakes(self, repository_id: int) -> frozenset[int]:
        """Return the numbers of a repository's pull requests whose intake is queued or running."""
        prefix = f"{repository_id}:"
        keys = self.connection.scalars(
            select(jobs.c.key).where(
                jobs.c.kind == JobKind.INTAKE.value, jobs.c.state.in_(OPEN_STATES), jobs.c.key.startswith(prefix)
            )
        )
        return frozenset(int(key.removeprefix(prefix)) for key in keys)

    def pulls_of_author(self, repository_id: int, author_id: int, numbers: frozenset[int]) -> int:
        """Count the pull requests among ``numbers`` that this account has opened."""
        statement = select(func.count()).where(
            pulls.c.repository_id == repository_id, pulls.c.author_id == author_id, pulls.c.number.in_(numbers)
        )
        return self.connection.scalar(statement) or 0

    def given_up_intakes(self, before: datetime, limit: int) -> list[tuple[int, int]]:
        """Return (repository id, number) of open pull requests whose intake has failed for good before a moment."""
        rows = self.connection.execute(
            select(pulls.c.repository_id, pulls.c.number)
            .join(jobs, jobs.c.key == cast(pulls.c.repository_id, String) + ":" + cast(pulls.c.number, String))
            .where(
                jobs.c.kind == JobKind.INTAKE.value,
                jobs.c.state == JobState.FAILED.value,
                jobs.c.finished_at < before,
                pulls.c.open.is_(True),
            )
            .order_by(jobs.c.finished_at)
            .limit(limit)
        )
        return [(row.repository_id, row.number) for row in rows]


class DeliveryWrites(DeliveryReads):
    """Keep deliveries, mark them as done, and clear them away."""

    now: datetime

    def record_delivery(
        self,
        hook_id: int,
        guid: str,
        event: str,
        action: str | None,
        body: bytes,
        received_at: datetime,
        *,
        repository_id: int | None = None,
        number: int | None = None,
        sender_id: int | None = None,
    ) -> bool:
        """Keep a delivery. Returns whether there is work to do: False only if it arrived before and was finished."""
        values = {
            "hook_id": hook_id, "guid": guid, "event": event, "action": action, "body": body, "size": len(body),
            "repository_id": repository_id, "number": number, "sender_id": sender_id, "times": 1,
            "received_at": received_at,
        }  # fmt: skip
        if insert_once(self.connection, deliveries, values):
            return True
        row = self.connection.execute(
            update(deliveries)
            .where(_named(hook_id, guid))
            .values(times=deliveries.c.times + 1)
            .returning(deliveries.c.done_at)
        ).one()
        return row.done_at is None

    def delivery_done(self, hook_id: int, guid: str, note: str | None = None) -> None:
        """Note that a delivery needs no more work, and why."""
        self.connection.execute(update(deliveries).where(_named(hook_id, guid)).values(done_at=self.now, note=note))

    def deliveries_seen(self, repository_id: int, number: int, before: datetime, note: str) -> None:
        """Mark every delivery about a pull request as done that had come when its state was looked at.

        Many deliveries end in one look at git: without this only the last of them would ever count as done.
        """
        self.connection.execute(
            update(deliveries)
            .where(
                deliveries.c.repository_id == repository_id,
                deliveries.c.number == number,
                deliveries.c.received_at <= before,
                deliveries.c.done_at.is_(None),
            )
            .values(done_at=self.now, note=note)
        )

    def purge_deliveries(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` deliveries that came before a moment, oldest first. Returns how many were deleted."""
        oldest = (
            select(deliveries.c.hook_id, deliveries.c.guid)
            .where(deliveries.c.received_at < before)
            .order_by(deliveries.c.received_at)
            .limit(limit)
        )
        names = [(row.hook_id, row.guid) for row in self.connection.execute(oldest)]
        if not names:
            return 0
        named = tuple_(deliveries.c.hook_id, deliveries.c.guid).in_(names)
        return self.connection.execute(delete(deliveries).where(named)).rowcount


def _named(hook_id: int, guid: str) -> ColumnElement[bool]:
    return (deliveries.c.hook_id == hook_id) & (deliveries.c.guid == guid)
