"""Jobs in the store. Every change of state is one guarded UPDATE; the row that it changed is the proof that it happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, and_, case, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from gatekeeper.domain.documents import Value
from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.jobs import MACHINE_TAKEN, Claim, JobKind, JobState
from gatekeeper.store.tables import jobs

ATTEMPT_LIMIT = 5
CANCELLED = "JOB_CANCELLED"
"""How the error text of a job begins that was ended before it ran, because nobody wanted it any more."""
Payload = Mapping[str, str | int | float | bool | None]


class Spent(StrEnum):
    """What a try that led to nothing cost."""

    ATTEMPT = "attempt"
    VOID = "void"
    NOTHING = "nothing"


class JobRow(Value):
    """A job as it stands.

    ``asked`` counts how often it was asked for, ``fence`` how often it was claimed, ``attempt`` how often its worker was lost
    or failed since it was queued anew, ``voids`` how often its work was done and disturbed.
    """

    id: str
    kind: JobKind
    key: str
    state: JobState
    priority: int
    asked: int
    attempt: int
    voids: int
    fence: int
    payload: dict[str, str | int | float | bool | None]
    delivery_id: str | None
    run_after: datetime
    lease_until: datetime | None
    error: str | None
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def waits_for_machine(self) -> bool:
        """Whether others have the machine. Each look for a turn is a try of its own, so the state alone does not tell."""
        unfinished = self.state in (JobState.QUEUED, JobState.RUNNING)
        return unfinished and (self.error or "").startswith(MACHINE_TAKEN)


class JobReads:
    """Look at jobs."""

    connection: Connection
    now: datetime

    def job(self, job_id: str) -> JobRow | None:
        """Return a job by id, or None."""
        identity = _uuid(job_id)
        row = None if identity is None else self.connection.execute(select(jobs).where(jobs.c.id == identity)).first()
        return None if row is None else job_row(row)

    def job_named(self, kind: JobKind, key: str) -> JobRow | None:
        """Return a job by what makes it unique, or None."""
        row = self.connection.execute(select(jobs).where(jobs.c.kind == kind.value, jobs.c.key == key)).first()
        return None if row is None else job_row(row)

    def owns(self, claim: Claim) -> bool:
        """Return whether a claim still holds: the job runs, and nobody has claimed, ended or cancelled it since."""
        return self.connection.scalar(select(jobs.c.id).where(_owned(claim))) is not None

    def payloads(self, kind: JobKind, states: Iterable[JobState]) -> list[dict[str, Any]]:
        """Return the payloads of all jobs of a kind in one of these states."""
        wanted = [state.value for state in states]
        rows = self.connection.scalars(
            select(jobs.c.payload).where(jobs.c.kind == kind.value, jobs.c.state.in_(wanted))
        )
        return [dict(payload) for payload in rows]

    def due_jobs(self, limit: int, kinds: Iterable[JobKind] | None = None) -> list[str]:
        """Return ids of jobs that could be claimed now: highest priority first, then longest due."""
        statement = select(jobs.c.id).where(_claimable(self.now))
        if kinds is not None:
            statement = statement.where(jobs.c.kind.in_([kind.value for kind in kinds]))
        rows = self.connection.scalars(statement.order_by(jobs.c.priority.desc(), jobs.c.run_after).limit(limit))
        return [str(identity) for identity in rows]


class JobWrites(JobReads):
    """Ask for work, own it, and end it. Ids in :attr:`woken` are notified once the transaction has been committed."""

    woken: dict[str, None]

    def enqueue(
        self,
        kind: JobKind,
        key: str,
        *,
        payload: Payload | None = None,
        run_after: datetime | None = None,
        delivery_id: str | None = None,
        priority: int = 0,
    ) -> str:
        """Ask for a job: a new row, or one more ``asked`` on the row of this kind and key. Returns the job's id.

        A finished job is queued anew with a fresh count of attempts. A running one is left alone and runs once more
        afterwards, because :meth:`finish` sees that ``asked`` has moved. A queued one keeps the earlier of both times,
        so that a stream of requests cannot put it off for ever. The payload given last is the one that runs.
        """
        due = run_after or self.now
        if not self._ask_again(kind, key, payload, due, delivery_id, priority):
            try:
                with self.connection.begin_nested():
                    self.connection.execute(
                        insert(jobs).values(
                            id=uuid4(), kind=kind.value, key=key, state=JobState.QUEUED.value, priority=priority,
                            asked=1, attempt=0, fence=0, payload=dict(payload or {}), delivery_id=delivery_id,
                            run_after=due, enqueued_at=self.now,
                        )
                    )  # fmt: skip
            except IntegrityError:  # somebody else inserted it between the two statements
                self._ask_again(kind, key, payload, due, delivery_id, priority)
        job_id = str(
            self.connection.scalars(select(jobs.c.id).where(jobs.c.kind == kind.value, jobs.c.key == key)).one()
        )
        self.woken[job_id] = None
        return job_id

    def _ask_again(
        self, kind: JobKind, key: str, payload: Payload | None, due: datetime, delivery_id: str | None, priority: int
    ) -> bool:
        finished = jobs.c.state.in_([JobState.SUCCEEDED.value, JobState.FAILED.value])
        queued = jobs.c.state == JobState.QUEUED.value
        values: dict[str, Any] = {
            "asked": jobs.c.asked + 1,
            "state": case((finished, JobState.QUEUED.value), else_=jobs.c.state),
            "attempt": case((finished, 0), else_=jobs.c.attempt),
            "voids": case((finished, 0), else_=jobs.c.voids),
            "error": case((finished, None), else_=jobs.c.error),
            "enqueued_at": case((finished, self.now), else_=jobs.c.enqueued_at),
            "run_after": case((and_(queued, jobs.c.run_after < due), jobs.c.run_after), else_=due),
            "priority": case((or_(finished, jobs.c.priority < priority), priority), else_=jobs.c.priority),
        }
        if payload is not None:
            values["payload"] = dict(payload)
        if delivery_id is not None:
            values["delivery_id"] = delivery_id
        statement = update(jobs).where(jobs.c.kind == kind.value, jobs.c.key == key).values(**values)
        return bool(self.connection.execute(statement).rowcount)

    def claim(self, job_id: str, lease: timedelta) -> Claim | None:
        """Take a job that is due, or one whose owner let its lease run out. None: it is not to be had (now).

        One UPDATE, guarded by state and time, decides between any number of callers. The fence grows with every claim;
        whoever held the job before is refused from then on.
        """
        identity = _uuid(job_id)
        if identity is None:
            return None
        row = self.connection.execute(
            update(jobs)
            .where(jobs.c.id == identity, _claimable(self.now))
            .values(
                state=JobState.RUNNING.value, fence=jobs.c.fence + 1, attempt=jobs.c.attempt + 1,
                lease_until=self.now + lease, started_at=self.now, finished_at=None,
            )
            .returning(*jobs.c)
        ).first()  # fmt: skip
        if row is None:
            return None
        return Claim(
            job_id=job_id, kind=JobKind(row.kind), key=row.key, payload=row.payload, delivery_id=row.delivery_id,
            fence=row.fence, asked=row.asked, attempt=row.attempt, voids=row.voids, lease_until=row.lease_until,
            said=row.error,
        )  # fmt: skip

    def beat(self, claim: Claim, lease: timedelta) -> bool:
        """Lengthen the lease. False: the claim is no longer ours, and the work should stop."""
        statement = update(jobs).where(_owned(claim)).values(lease_until=self.now + lease)
        return bool(self.connection.execute(statement).rowcount)

    def begun(self, claim: Claim) -> None:
        """Note that the work itself has begun: what the last try ended with is over."""
        self.connection.execute(update(jobs).where(_owned(claim)).values(error=None))

    def hold(self, claim: Claim) -> None:
        """Make this transaction's writes depend on the claim: whoever claims the job next waits until it has ended.

        Raises:
            Conflict: ``JOB_FENCE`` if the job was claimed by somebody else or has ended.
        """
        statement = update(jobs).where(_owned(claim)).values(fence=claim.fence)
        if not self.connection.execute(statement).rowcount:
            raise self._lost(claim)

    def finish(self, claim: Claim, state: JobState, error: str | None = None) -> bool:
        """End a job. True: it has ended in ``state``. False: it was asked for meanwhile and is queued again.

        Raises:
            Conflict: ``JOB_FENCE`` if the job was claimed by somebody else or has ended.
            ValueError: if ``state`` is not an end.
        """
        if state not in {JobState.SUCCEEDED, JobState.FAILED}:
            raise ValueError(f"a job ends in succeeded or failed; found {state.value}")
        ended = (
            update(jobs)
            .where(_owned(claim), jobs.c.asked == claim.asked)
            .values(state=state.value, error=error, lease_until=None, finished_at=self.now)
        )
        if self.connection.execute(ended).rowcount:
            return True
        again = (
            update(jobs)
            .where(_owned(claim))
            .values(
                state=JobState.QUEUED.value, error=error, lease_until=None, attempt=0, voids=0, enqueued_at=self.now
            )
        )
        if not self.connection.execute(again).rowcount:
            raise self._lost(claim)
        self.woken[claim.job_id] = None
        return False

    def release(self, claim: Claim, run_after: datetime, error: str, spent: Spent = Spent.ATTEMPT) -> JobState:
        """Give a job back to be tried again from ``run_after`` on. At the limit of attempts it has failed instead.

        What the try cost is ``spent``: only an attempt counts against the limit. Returns the state that the job has now.

        Raises:
            Conflict: ``JOB_FENCE`` if the job was claimed by somebody else or has ended.
        """
        if spent is Spent.ATTEMPT and claim.attempt >= ATTEMPT_LIMIT:
            ended = self.finish(claim, JobState.FAILED, f"{error} (given up after {claim.attempt} attempts)")
            return JobState.FAILED if ended else JobState.QUEUED
        counts = {"attempt": claim.attempt - (spent is not Spent.ATTEMPT), "voids": claim.voids + (spent is Spent.VOID)}
        back = (
            update(jobs)
            .where(_owned(claim))
            .values(state=JobState.QUEUED.value, run_after=run_after, error=error, lease_until=None, **counts)
        )
        if not self.connection.execute(back).rowcount:
            raise self._lost(claim)
        self.woken[claim.job_id] = None
        return JobState.QUEUED

    def cancel(self, kind: JobKind, key: str) -> bool:
        """End a job that is queued or running. Returns whether there was one.

        Whoever runs it has lost the claim: the worker is stopped when that is next looked at, and its result is refused.
        """
        unfinished = jobs.c.state.in_([JobState.QUEUED.value, JobState.RUNNING.value])
        statement = (
            update(jobs)
            .where(jobs.c.kind == kind.value, jobs.c.key == key, unfinished)
            .values(
                state=JobState.FAILED.value, error=f"{CANCELLED}: no longer wanted", finished_at=self.now, lease_until=None
            )
        )  # fmt: skip
        return bool(self.connection.execute(statement).rowcount)

    def fail_abandoned(self) -> list[Claim]:
        """Fail running jobs whose lease ran out on their last attempt. Returns their last claims, to be told of."""
        rows = self.connection.execute(
            update(jobs)
            .where(_expired(self.now), jobs.c.attempt >= ATTEMPT_LIMIT)
            .values(
                state=JobState.FAILED.value, lease_until=None, finished_at=self.now,
                error=f"JOB_ABANDONED: its worker was lost {ATTEMPT_LIMIT} times",
            )
            .returning(*jobs.c)
        )  # fmt: skip
        return [
            Claim(
                job_id=str(row.id), kind=JobKind(row.kind), key=row.key, payload=row.payload, fence=row.fence,
                delivery_id=row.delivery_id, asked=row.asked, attempt=row.attempt, voids=row.voids, lease_until=self.now,
            )
            for row in rows
        ]  # fmt: skip

    def _lost(self, claim: Claim) -> Conflict:
        row = self.job(claim.job_id)
        found = f"fence {row.fence}, {row.state.value}" if row else "no such job"
        return Conflict(
            f"this claim of {claim.kind.value} job {claim.job_id} is over",
            code="JOB_FENCE", expected=f"fence {claim.fence}, running", found=found,
        )  # fmt: skip


def _expired(now: datetime) -> ColumnElement[bool]:
    return and_(jobs.c.state == JobState.RUNNING.value, jobs.c.lease_until < now)


def _claimable(now: datetime) -> ColumnElement[bool]:
    due = and_(jobs.c.state == JobState.QUEUED.value, jobs.c.run_after <= now)
    return or_(due, and_(_expired(now), jobs.c.attempt < ATTEMPT_LIMIT))


def _owned(claim: Claim) -> ColumnElement[bool]:
    return and_(jobs.c.id == _uuid(claim.job_id), jobs.c.fence == claim.fence, jobs.c.state == JobState.RUNNING.value)


def _uuid(job_id: str) -> UUID | None:
    try:
        return UUID(job_id)
    except ValueError:
        return None


def job_row(row: Row[Any]) -> JobRow:
    """Return the typed form of a row of the table of jobs."""
    return JobRow.model_validate({**row._mapping, "id": str(row.id)})
