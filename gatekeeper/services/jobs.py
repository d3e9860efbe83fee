"""Run one job: claim it, keep the lease alive, hand it to its handler, and settle how it ended.

Both backends call :func:`run` and nothing else, so that the embedded mode tests the path that production takes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gatekeeper.context import Context
from gatekeeper.domain.errors import Conflict, Disturbed, GatekeeperError, Postponed, Retryable
from gatekeeper.domain.jobs import Claim, JobKind, JobState
from gatekeeper.logs import carrying
from gatekeeper.store.jobs import Spent

Handler = Callable[[Context, Claim], None]
FailureHook = Callable[[Context, Claim, BaseException], None]
POSTPONED_PAUSE = timedelta(seconds=3)
LONGEST_TOLD = timedelta(hours=1)
"""The longest pause that another service may ask for: its limits are by the hour."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=2), timedelta(minutes=5)
LONGEST_ERROR = 4000
LOG = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Handlers:
    """What does the work of each kind, and who is told when a job has failed for good."""

    by_kind: Mapping[JobKind, Handler]
    failed: FailureHook


def run(ctx: Context, job_id: str, handlers: Handlers) -> datetime | None:
    """Run a job if it is to be had. Returns the moment to come back at if it is queued for later, else None.

    How a handler ends: normally, the job has succeeded; ``Conflict``, it has succeeded with a note; ``Retryable``, it is
    tried again after a pause until the limit of attempts (``Postponed`` and ``Disturbed`` are no attempts); anything else, it
    has failed at once and ``handlers.failed`` is told.
    """
    with ctx.store.begin() as uow:
        claim = uow.claim(job_id, ctx.lease)
        job = None if claim else uow.job(job_id)
    if claim is None:
        return job.run_after if job is not None and job.state is JobState.QUEUED else None
    with carrying(job=job_id, kind=claim.kind.value, delivery=claim.delivery_id):
        if (
            not claim.waited_for_machine
        ):  # it looks for its turn every few seconds; ``measure`` tells when that has come
            LOG.info("job.started", key=claim.key, attempt=claim.attempt)
        try:
            _work(ctx, claim, handlers)
        except Conflict as note:  # the claim was lost while the end was being written: the next owner settles it
            LOG.warning("job.lost", reason=str(note))
    return None


def _work(ctx: Context, claim: Claim, handlers: Handlers) -> None:
    handler = handlers.by_kind.get(claim.kind)
    try:
        if handler is None:
            known = ", ".join(sorted(kind.value for kind in handlers.by_kind))
            raise GatekeeperError(
                "nobody does this kind of work", code="JOB_KIND", expected=known, found=claim.kind.value
            )
        with kept_alive(ctx, claim):
            handler(ctx, claim)
    except Conflict as note:
        LOG.info("job.conflict", reason=str(note))
        _succeed(ctx, claim, note=str(note))
    except Retryable as error:
        _retry(ctx, claim, error, handlers)
    except Exception as error:
        LOG.exception("job.failed", key=claim.key)
        with ctx.store.begin() as uow:
            ended = uow.finish(claim, JobState.FAILED, described(error))
        if ended:
            tell(ctx, claim, error, handlers)
    else:
        _succeed(ctx, claim)


def _succeed(ctx: Context, claim: Claim, note: str | None = None) -> None:
    with ctx.store.begin() as uow:
        ended = uow.finish(claim, JobState.SUCCEEDED, note)
        hook = claim.payload.get("hook_id")
        if claim.delivery_id is not None and isinstance(hook, int):
            uow.delivery_done(hook, claim.delivery_id, note)
    LOG.info("job.succeeded" if ended else "job.asked_again", key=claim.key)


def _retry(ctx: Context, claim: Claim, error: Retryable, handlers: Handlers) -> None:
    with ctx.store.begin() as uow:
        state = uow.release(claim, uow.now + _pause_after(claim, error), described(error), spent_by(error))
    if isinstance(error, Postponed):
        if described(error) != claim.said:  # told once, and again when the reason is another one
            LOG.info("job.postponed", key=claim.key, reason=str(error))
        return
    LOG.warning("job.retried", key=claim.key, state=state.value, reason=str(error))
    if state is JobState.FAILED:
        tell(ctx, claim, error, handlers)


def spent_by(error: Retryable) -> Spent:
    """Return what a try that ended with this error cost."""
    if isinstance(error, Disturbed):
        return Spent.VOID
    return Spent.NOTHING if isinstance(error, Postponed) else Spent.ATTEMPT


def _pause_after(claim: Claim, error: Retryable) -> timedelta:
    if not isinstance(error, Postponed):
        return pause(claim.attempt + claim.voids)
    if error.retry_after is None:
        return POSTPONED_PAUSE
    # What was told to wait comes back no earlier than told; jobs that were told the same do not come back as one.
    told = min(timedelta(seconds=max(0.0, error.retry_after)), LONGEST_TOLD)
    return max(POSTPONED_PAUSE, told * random.uniform(1.0, 1.1))  # noqa: S311  (spreads load, as below)


def tell(ctx: Context, claim: Claim, error: BaseException, handlers: Handlers) -> None:
    """Call the failure hook. A hook that fails itself is logged: the job's row already says what went wrong."""
    try:
        handlers.failed(ctx, claim, error)
    except Exception:
        LOG.exception("job.failure_hook_failed", key=claim.key)


def pause(attempt: int) -> timedelta:
    """Return the pause after an attempt (1, 2, ...): doubling from 2 s up to 5 min, each between half of it and all of it."""
    full = min(FIRST_PAUSE * (1 << min(attempt - 1, 20)), LONGEST_PAUSE)
    return full * random.uniform(0.5, 1.0)  # noqa: S311  (spreads load; nothing secret depends on it)


def described(error: BaseException) -> str:
    """Return an error as it is kept in the row: reason code or type first, cut at 4,000 characters, without NUL."""
    text = str(error) if isinstance(error, GatekeeperError) else f"{type(error).__name__}: {error}"
    return text[:LONGEST_ERROR].replace("\0", "\\0")


@contextmanager
def kept_alive(ctx: Context, claim: Claim) -> Iterator[None]:
    """Lengthen the lease three times per lease while the block runs. A lost claim is logged; ``hold`` then refuses writes."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(ctx.lease.total_seconds() / 3):
            try:
                with ctx.store.begin() as uow:
                    ours = uow.beat(claim, ctx.lease)
            except Retryable as error:
                LOG.warning("job.beat_missed", job=claim.job_id, reason=str(error))
                continue
            if not ours:
                LOG.warning("job.claim_lost", job=claim.job_id, key=claim.key)
                return

    thread = threading.Thread(target=beat, name=f"beat-{claim.job_id[:8]}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
