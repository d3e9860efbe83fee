"""The queue in numbers, on both databases."""

from __future__ import annotations

from datetime import timedelta

from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.store.queries import QueueLine, queue_lines
from gatekeeper.store.unit_of_work import Store
from tests.conftest import TestClock


def test_an_empty_queue_has_no_lines(store: Store) -> None:
    with store.begin() as uow:
        uow.enqueue(JobKind.RACE, "unwanted")
        uow.cancel(JobKind.RACE, "unwanted")
    with store.read() as uow:
        assert queue_lines(uow) == ()


def test_each_kind_is_counted_by_where_its_jobs_stand(store: Store, clock: TestClock) -> None:
    with store.begin() as uow:
        first = uow.enqueue(JobKind.EVALUATE, "1")
        uow.enqueue(JobKind.INTAKE, "later", run_after=uow.now + timedelta(minutes=1))
        ids = [uow.enqueue(JobKind.RACE, f"r{number}") for number in range(4)]
        kept, lost, failed = (
            uow.claim(job_id, timedelta(seconds=seconds)) for job_id, seconds in zip(ids[:3], (90, 10, 90), strict=True)
        )
        assert kept and lost and failed
        uow.finish(failed, JobState.FAILED, "RUN_REFUSED: no")
        done = uow.claim(uow.enqueue(JobKind.PUBLISH, "done"), timedelta(seconds=60))
        assert done is not None
        uow.finish(done, JobState.SUCCEEDED)
    begun = clock.now()
    clock.move(seconds=30)
    with store.begin() as uow:
        uow.enqueue(JobKind.EVALUATE, "2")
        assert uow.job(first) is not None
    none = {"due": 0, "later": 0, "running": 0, "lost": 0, "failed": 0, "due_since": None}
    with store.read() as uow:
        assert queue_lines(uow) == (
            QueueLine(kind=JobKind.INTAKE, **none | {"later": 1}),
            QueueLine(kind=JobKind.EVALUATE, **none | {"due": 2, "due_since": begun}),
            QueueLine(kind=JobKind.RACE, **none | {"due": 1, "running": 1, "lost": 1, "failed": 1, "due_since": begun}),
        )
