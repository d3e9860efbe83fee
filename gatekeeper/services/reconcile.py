"""The safety net: what a lost message or a lost worker left behind is found by a timer."""

from __future__ import annotations

from datetime import timedelta

import structlog

from gatekeeper.context import Context
from gatekeeper.domain.errors import Retryable
from gatekeeper.domain.jobs import JobKind
from gatekeeper.services.intake import key_of
from gatekeeper.services.jobs import Handlers, tell
from gatekeeper.store.jobs import ATTEMPT_LIMIT
from gatekeeper.store.queries import judged_before

LIMIT = 1000
READ_AGAIN = timedelta(minutes=15)
"""How long a pull request that could not be read is left alone before it is tried again."""
JUDGE_AGAIN = timedelta(hours=12)
"""How long a verdict stands before its facts are looked at again; where they say the same, nothing is written."""
JUDGED_AT_ONCE = 50
KEEP_DELIVERIES = timedelta(days=30)
LOG = structlog.get_logger(__name__)


def reconcile(ctx: Context, handlers: Handlers, keep_deliveries: timedelta = KEEP_DELIVERIES) -> int:
    """Notify jobs that are due or whose lease ran out, and fail those that lost their worker too often.

    Open pull requests that could not be read are tried again, those that were judged long ago are judged again, because
    evidence grows too old and policy sets change, and deliveries older than ``keep_deliveries`` are deleted, at
    most :data:`LIMIT` in one call. Returns how many jobs were notified. A job that is already being taken is notified in vain:
    the claim decides.
    """
    with ctx.store.begin() as uow:
        abandoned = uow.fail_abandoned()
    for claim in abandoned:
        LOG.error("job.abandoned", job=claim.job_id, kind=claim.kind.value, key=claim.key)
        lost = Retryable(f"the worker was lost {ATTEMPT_LIMIT} times", code="JOB_ABANDONED")
        tell(ctx, claim, lost, handlers)
    due = wake(ctx)
    if due:
        LOG.info("reconcile.notified", jobs=due)
    _read_again(ctx)
    _judge_again(ctx)
    _purge(ctx, keep_deliveries)
    return due


def wake(ctx: Context) -> int:
    """Notify the queue of every job that is due, whoever enqueued it; one read. Returns how many."""
    with ctx.store.read() as uow:
        due = uow.due_jobs(LIMIT)
    if due:
        ctx.queue.notify(due)
    return len(due)


def _read_again(ctx: Context) -> None:
    with ctx.store.begin() as uow:
        given_up = uow.given_up_intakes(uow.now - READ_AGAIN, LIMIT)
        for repository_id, number in given_up:
            uow.enqueue(JobKind.INTAKE, key_of(repository_id, number))
    if given_up:
        LOG.info("reconcile.read_again", pulls=len(given_up))


def _judge_again(ctx: Context) -> None:
    with ctx.store.begin() as uow:
        stale = judged_before(uow, uow.now - JUDGE_AGAIN, JUDGED_AT_ONCE)
        for digest in stale:
            uow.enqueue(JobKind.EVALUATE, digest, priority=-1)
    if stale:
        LOG.info("reconcile.judge_again", snapshots=len(stale))


def _purge(ctx: Context, keep: timedelta) -> None:
    """Delete old deliveries: they hold whole payloads, and GitHub sends none again after a few days."""
    with ctx.store.begin() as uow:
        deleted = uow.purge_deliveries(uow.now - keep, LIMIT)
    if deleted:
        LOG.info("reconcile.purged_deliveries", deliveries=deleted)
