"""Counts over the queue, for people and for monitoring: one statement, whatever its length."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, case, func, select

from gatekeeper.domain.documents import Value
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.store.jobs import CANCELLED
from gatekeeper.store.tables import jobs, pulls
from gatekeeper.store.unit_of_work import ReadUnit


class QueueLine(Value):
    """How many jobs of one kind stand where. What succeeded or was cancelled is not counted."""

    kind: JobKind
    due: int
    """Queued, and could be claimed now."""
    later: int
    """Queued for a later time: a pause between attempts, or a wait for further pushes."""
    running: int
    lost: int
    """Running by their row, but their lease has run out: their worker has died or cannot reach the database."""
    failed: int
    """Given up. Such jobs stay until somebody asks again."""
    due_since: datetime | None
    """Since when the longest waiting due job could have been claimed."""


def queue_lines(uow: ReadUnit) -> tuple[QueueLine, ...]:
    """Return one line for each kind that has jobs which are not over, in the order in which work follows work."""
    queued, running = jobs.c.state == JobState.QUEUED.value, jobs.c.state == JobState.RUNNING.value
    due, lost = and_(queued, jobs.c.run_after <= uow.now), and_(running, jobs.c.lease_until < uow.now)
    cancelled = func.coalesce(jobs.c.error, "").startswith(CANCELLED, autoescape=True)
    failed = and_(jobs.c.state == JobState.FAILED.value, ~cancelled)

    counted = {
        "due": due,
        "later": and_(queued, jobs.c.run_after > uow.now),
        "running": and_(running, jobs.c.lease_until >= uow.now),
        "lost": lost,
        "failed": failed,
    }
    columns = [func.coalesce(func.sum(case((what, 1), else_=0)), 0).label(name) for name, what in counted.items()]
    since = func.min(case((due, jobs.c.run_after))).label("due_since")
    rows = uow.connection.execute(
        select(jobs.c.kind, *columns, since).where(jobs.c.state != JobState.SUCCEEDED.value).group_by(jobs.c.kind)
    )
    found = {row.kind: QueueLine.model_validate(dict(row._mapping)) for row in rows}
    lines = (found.get(kind.value) for kind in JobKind)
    return tuple(line for line in lines if line is not None and any(getattr(line, name) for name in counted))


def judged_before(uow: ReadUnit, moment: datetime, limit: int) -> list[str]:
    """Return digests of current snapshots of open pull requests whose evaluation ended last before a moment, oldest first."""
    return list(
        uow.connection.scalars(
            select(jobs.c.key)
            .join(pulls, pulls.c.snapshot == jobs.c.key)
            .where(
                jobs.c.kind == JobKind.EVALUATE.value,
                jobs.c.state == JobState.SUCCEEDED.value,
                jobs.c.finished_at < moment,
                pulls.c.open.is_(True),
            )
            .order_by(jobs.c.finished_at)
            .limit(limit)
        )
    )
