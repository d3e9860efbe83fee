"""The safety net: what a lost message or a lost worker left behind is found by a timer."""

from __future__ import annotations

import structlog

from gatekeeper.context import Context
from gatekeeper.domain.errors import Retryable
from gatekeeper.services.jobs import Handlers, tell
from gatekeeper.store.jobs import ATTEMPT_LIMIT

LIMIT = 1000
LOG = structlog.get_logger(__name__)


def reconcile(ctx: Context, handlers: Handlers) -> int:
    """Notify jobs that are due or whose lease ran out, and fail those that lost their worker too often.

    Returns how many jobs were notified. A job that is already being taken is notified in vain: the claim decides.
    """
    with ctx.store.begin() as uow:
        abandoned = uow.fail_abandoned()
        due = uow.due_jobs(LIMIT)
    for claim in abandoned:
        LOG.error("job.abandoned", job=claim.job_id, kind=claim.kind.value, key=claim.key)
        lost = Retryable(f"the worker was lost {ATTEMPT_LIMIT} times", code="JOB_ABANDONED")
        tell(ctx, claim, lost, handlers)
    if due:
        LOG.info("reconcile.notified", jobs=len(due))
        ctx.queue.notify(due)
    return len(due)
