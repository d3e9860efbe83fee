"""How a job ends, by what its handler did; and what the timer repairs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from gatekeeper.domain.errors import Conflict, Postponed, Rejected, Retryable
from gatekeeper.domain.jobs import Claim, JobKind, JobState
from gatekeeper.services.jobs import Handlers, pause, run
from gatekeeper.services.reconcile import reconcile
from gatekeeper.store.jobs import ATTEMPT_LIMIT, JobRow
from gatekeeper.store.unit_of_work import Store
from tests.builders import snapshot
from tests.conftest import Notices, TestClock


@dataclass
class Bench:
    """A context with nothing in it but what running a job needs, and a handler that a test chooses."""

    ctx: Any
    work: Callable[[Any, Claim], None] = lambda ctx, claim: None
    told: list[str] = field(default_factory=list)

    @property
    def handlers(self) -> Handlers:
        """The test's handler for intake, and a hook that takes notes."""
        return Handlers(
            by_kind={JobKind.INTAKE: self.work},
            failed=lambda ctx, claim, error: self.told.append(f"{claim.key}: {error}"),
        )

    def enqueue(self, kind: JobKind = JobKind.INTAKE, **keywords: Any) -> str:
        """Ask for a job."""
        with self.ctx.store.begin() as uow:
            job_id: str = uow.enqueue(kind, "7:1", **keywords)
        return job_id

    def run(self, job_id: str) -> Any:
        """Run it."""
        return run(self.ctx, job_id, self.handlers)

    def job(self, job_id: str) -> JobRow:
        """Return its row."""
        with self.ctx.store.read() as uow:
            row = uow.job(job_id)
        assert row is not None
        return row


@pytest.fixture
def bench(store: Store, notices: Notices, clock: TestClock) -> Bench:
    """A bench on each database."""
    return Bench(SimpleNamespace(store=store, queue=notices, clock=clock, lease=timedelta(seconds=60)))


def raising(error: BaseException) -> Callable[[Any, Claim], None]:
    def work(ctx: Any, claim: Claim) -> None:
        raise error

    return work


def test_a_handler_that_returns_has_succeeded_and_finishes_the_delivery(bench: Bench, clock: TestClock) -> None:
    with bench.ctx.store.begin() as uow:
        uow.record_delivery(9, "guid", "pull_request", "opened", b"{}", clock.now())
    job_id = bench.enqueue(payload={"hook_id": 9}, delivery_id="guid")
    assert bench.run(job_id) is None
    assert bench.job(job_id).state is JobState.SUCCEEDED
    with bench.ctx.store.read() as uow:
        assert uow.delivery(9, "guid").done_at == clock.now()
    assert bench.run(job_id) is None and bench.job(job_id).fence == 1, "a repeated notification does nothing"


def test_a_retryable_error_leads_to_a_later_try_and_a_failure_at_the_limit(bench: Bench, clock: TestClock) -> None:
    bench.work = raising(Retryable("no answer", code="GIT_FETCH"))
    job_id = bench.enqueue()
    for _attempt in range(1, ATTEMPT_LIMIT):
        assert bench.run(job_id) is None
        row = bench.job(job_id)
        assert row.state is JobState.QUEUED and row.run_after > clock.now()
        assert bench.run(job_id) == row.run_after, "who comes too early is told when to come back"
        assert bench.told == []
        clock.move(seconds=300)
    bench.run(job_id)
    assert bench.job(job_id).state is JobState.FAILED
    assert bench.told == ["7:1: GIT_FETCH: no answer"]


def test_a_conflict_ends_the_job_with_a_note(bench: Bench) -> None:
    bench.work = raising(Conflict("the pull request is gone", code="PULL_UNKNOWN"))
    job_id = bench.enqueue()
    bench.run(job_id)
    row = bench.job(job_id)
    assert row.state is JobState.SUCCEEDED and row.error is not None and "PULL_UNKNOWN" in row.error
    assert bench.told == []


@pytest.mark.parametrize("error", [Rejected("bad tree", code="ISO_MALFORMED_TREE"), ZeroDivisionError("a bug\0")])
def test_anything_else_fails_the_job_and_somebody_is_told(bench: Bench, error: Exception) -> None:
    bench.work = raising(error)
    job_id = bench.enqueue()
    bench.run(job_id)
    row = bench.job(job_id)
    assert row.state is JobState.FAILED and row.error
    assert len(bench.told) == 1


def test_a_kind_that_nobody_handles_fails_loudly(bench: Bench) -> None:
    job_id = bench.enqueue(JobKind.VERIFY)
    bench.run(job_id)
    assert "JOB_KIND" in (bench.job(job_id).error or "") and len(bench.told) == 1


def test_what_is_asked_for_while_it_runs_is_run_once_more(bench: Bench, notices: Notices) -> None:
    runs: list[int] = []

    def work(ctx: Any, claim: Claim) -> None:
        runs.append(claim.fence)
        if len(runs) == 1:
            bench.enqueue()
            bench.enqueue()

    bench.work = work
    job_id = bench.enqueue()
    bench.run(job_id)
    assert bench.job(job_id).state is JobState.QUEUED and notices.calls[-1] == (job_id,)
    bench.run(job_id)
    assert runs == [1, 2] and bench.job(job_id).state is JobState.SUCCEEDED


def test_a_worker_that_lost_its_claim_settles_nothing(bench: Bench, clock: TestClock) -> None:
    def work(ctx: Any, claim: Claim) -> None:
        clock.move(seconds=61)
        with ctx.store.begin() as uow:
            assert uow.claim(claim.job_id, timedelta(seconds=60)) is not None

    bench.work = work
    job_id = bench.enqueue()
    bench.run(job_id)
    row = bench.job(job_id)
    assert (row.state, row.fence) == (JobState.RUNNING, 2)


def test_the_lease_is_kept_while_the_handler_works(bench: Bench, clock: TestClock) -> None:
    bench.ctx.lease = timedelta(seconds=0.15)
    seen = threading.Event()

    def work(ctx: Any, claim: Claim) -> None:
        clock.move(seconds=0.1)
        for _ in range(200):
            with ctx.store.read() as uow:
                if uow.job(claim.job_id).lease_until > claim.lease_until:
                    seen.set()
                    return
            seen.wait(0.02)

    bench.work = work
    bench.run(bench.enqueue())
    assert seen.is_set()


def test_reconcile_notifies_what_is_due_and_what_lost_its_worker(
    bench: Bench, notices: Notices, clock: TestClock
) -> None:
    job_id = bench.enqueue()
    notices.calls.clear()
    assert reconcile(bench.ctx, bench.handlers) == 1 and notices.calls == [(job_id,)]
    with bench.ctx.store.begin() as uow:
        uow.claim(job_id, timedelta(seconds=60))
    assert reconcile(bench.ctx, bench.handlers) == 0
    clock.move(seconds=61)
    assert reconcile(bench.ctx, bench.handlers) == 1


def test_reconcile_fails_what_lost_its_worker_too_often_and_tells(bench: Bench, clock: TestClock) -> None:
    job_id = bench.enqueue()
    for _ in range(ATTEMPT_LIMIT):
        with bench.ctx.store.begin() as uow:
            assert uow.claim(job_id, timedelta(seconds=60))
        clock.move(seconds=61)
    assert reconcile(bench.ctx, bench.handlers) == 0
    assert bench.job(job_id).state is JobState.FAILED and len(bench.told) == 1 and "JOB_ABANDONED" in bench.told[0]


def test_pauses_double_up_to_five_minutes() -> None:
    for attempt, full in ((1, 2), (2, 4), (5, 32), (9, 300), (500, 300)):
        assert full / 2 <= pause(attempt).total_seconds() <= full


def test_reconcile_has_open_pull_requests_judged_again_that_were_judged_long_ago(
    bench: Bench, clock: TestClock
) -> None:
    with bench.ctx.store.begin() as uow:
        digests = [uow.put_snapshot(snapshot(number)) for number in (1, 2)]
        digests.append(uow.put_snapshot(snapshot(3).model_copy(update={"open": False})))
        for digest in digests:
            claim = uow.claim(uow.enqueue(JobKind.EVALUATE, digest), timedelta(seconds=60))
            assert claim is not None
            uow.finish(claim, JobState.SUCCEEDED)
    clock.move(hours=11)
    assert reconcile(bench.ctx, bench.handlers) == 0 and waiting(bench) == set()
    with bench.ctx.store.begin() as uow:
        claim = uow.claim(uow.enqueue(JobKind.EVALUATE, digests[1]), timedelta(seconds=60))
        assert claim is not None
        uow.finish(claim, JobState.SUCCEEDED)
    clock.move(hours=2)
    reconcile(bench.ctx, bench.handlers)
    assert waiting(bench) == {digests[0]}, "neither the one judged since nor the closed one"


def waiting(bench: Bench) -> set[str]:
    with bench.ctx.store.read() as uow:
        rows = [uow.job(job_id) for job_id in uow.due_jobs(10, [JobKind.EVALUATE])]
    return {row.key for row in rows if row is not None}


@pytest.mark.parametrize(("told", "least", "most"), [(None, 3, 3), (0.0, 3, 3), (90.0, 90, 99), (1e9, 3600, 3960)])
def test_what_was_told_when_to_come_back_does_not_come_back_before(
    bench: Bench, clock: TestClock, told: float | None, least: float, most: float
) -> None:
    error = Postponed("a limit is reached", code="LIMIT")
    error.retry_after = told
    bench.work = raising(error)
    job_id = bench.enqueue()
    bench.run(job_id)
    assert least <= (bench.job(job_id).run_after - clock.now()).total_seconds() <= most


def test_a_job_that_is_put_off_again_and_again_is_told_of_once_for_each_reason(bench: Bench, clock: TestClock) -> None:
    taken = Postponed("a race has to wait", code="RUN_MACHINE_TAKEN", found="a probe runs or waits")
    other = Postponed("a race has to wait", code="RUN_MACHINE_TAKEN", found="another race runs")
    job_id = bench.enqueue()
    with capture_logs() as records:
        for error in (taken, taken, taken, other, other):
            bench.work = raising(error)
            bench.run(job_id)
            row = bench.job(job_id)
            assert row.state is JobState.QUEUED and row.waits_for_machine and row.attempt == 0
            clock.move(seconds=10)
    told = [record["event"] for record in records]
    assert told == ["job.started", "job.postponed", "job.postponed"]
    with bench.ctx.store.begin() as uow:
        claim = uow.claim(job_id, timedelta(seconds=60))
        assert claim is not None and claim.waited_for_machine
        uow.begun(claim)
    row = bench.job(job_id)
    assert row.state is JobState.RUNNING and not row.waits_for_machine
