"""Jobs: who owns one, what asking twice does, and what is left when a worker dies."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.jobs import Claim, JobKind, JobState
from gatekeeper.store.jobs import ATTEMPT_LIMIT, Spent
from gatekeeper.store.unit_of_work import Store
from tests.conftest import Notices, TestClock

LEASE = timedelta(seconds=60)
THREADS = 16


def enqueue(store: Store, key: str = "7:1") -> str:
    with store.begin() as uow:
        return uow.enqueue(JobKind.INTAKE, key)


def claim(store: Store, job_id: str) -> Claim:
    with store.begin() as uow:
        taken = uow.claim(job_id, LEASE)
    assert taken is not None
    return taken


def state(store: Store, job_id: str) -> JobState:
    with store.read() as uow:
        job = uow.job(job_id)
    assert job is not None
    return job.state


def test_of_sixteen_claims_at_once_exactly_one_wins(store: Store) -> None:
    for round_number in range(5):
        job_id = enqueue(store, f"7:{round_number}")
        gate = threading.Barrier(THREADS)

        def attempt(job_id: str = job_id, gate: threading.Barrier = gate) -> Claim | None:
            gate.wait()
            with store.begin() as uow:
                return uow.claim(job_id, LEASE)

        with ThreadPoolExecutor(THREADS) as pool:
            results = [future.result() for future in [pool.submit(attempt) for _ in range(THREADS)]]
        assert sum(result is not None for result in results) == 1


def test_sixteen_writers_lose_nothing(store: Store) -> None:
    per_thread = 10
    gate = threading.Barrier(THREADS)

    def write(number: int) -> None:
        gate.wait()
        for turn in range(per_thread):
            with store.begin() as uow:
                uow.enqueue(JobKind.INTAKE, f"{number}:{turn}")
                uow.enqueue(JobKind.INTAKE, "shared:1")

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(write, number) for number in range(THREADS)]:
            future.result()
    with store.read() as uow:
        shared = uow.job_named(JobKind.INTAKE, "shared:1")
        assert shared is not None and shared.asked == THREADS * per_thread
        assert len(uow.due_jobs(1000)) == THREADS * per_thread + 1


def test_asking_while_it_runs_makes_it_run_once_more(store: Store, notices: Notices) -> None:
    job_id = enqueue(store)
    first = claim(store, job_id)
    assert enqueue(store) == job_id and enqueue(store) == job_id
    assert state(store, job_id) is JobState.RUNNING
    notices.calls.clear()
    with store.begin() as uow:
        assert not uow.finish(first, JobState.SUCCEEDED)
    assert notices.calls == [(job_id,)]
    second = claim(store, job_id)
    with store.begin() as uow:
        assert uow.finish(second, JobState.SUCCEEDED)
    assert state(store, job_id) is JobState.SUCCEEDED


def test_a_finished_job_is_queued_anew_with_fresh_attempts(store: Store) -> None:
    job_id = enqueue(store)
    with store.begin() as uow:
        taken = uow.claim(job_id, LEASE)
        assert taken is not None
        uow.finish(taken, JobState.FAILED, "BUG: it broke")
    assert enqueue(store) == job_id
    again = claim(store, job_id)
    assert (again.attempt, again.fence, again.asked) == (1, 2, 2)


def test_an_expired_lease_is_claimed_again_and_the_old_fence_is_refused(store: Store, clock: TestClock) -> None:
    job_id = enqueue(store)
    old = claim(store, job_id)
    clock.move(seconds=59)
    with store.begin() as uow:
        assert uow.claim(job_id, LEASE) is None
    clock.move(seconds=2)
    new = claim(store, job_id)
    assert (new.fence, new.attempt) == (old.fence + 1, 2)
    with store.begin() as uow:
        assert not uow.beat(old, LEASE)
        assert uow.beat(new, LEASE)
    for write in ("finish", "hold", "release"):
        with pytest.raises(Conflict, match="JOB_FENCE"), store.begin() as uow:
            if write == "finish":
                uow.finish(old, JobState.SUCCEEDED)
            elif write == "hold":
                uow.hold(old)
            else:
                uow.release(old, clock.now(), "late")
    with store.begin() as uow:
        uow.hold(new)
        assert uow.finish(new, JobState.SUCCEEDED)


def test_a_beat_keeps_the_lease(store: Store, clock: TestClock) -> None:
    job_id = enqueue(store)
    mine = claim(store, job_id)
    for _ in range(3):
        clock.move(seconds=50)
        with store.begin() as uow:
            assert uow.beat(mine, LEASE)
            assert uow.claim(job_id, LEASE) is None


def test_a_released_job_waits_for_its_time_and_fails_at_the_limit(store: Store, clock: TestClock) -> None:
    job_id = enqueue(store)
    for attempt in range(1, ATTEMPT_LIMIT + 1):
        mine = claim(store, job_id)
        assert mine.attempt == attempt
        with store.begin() as uow:
            after = uow.release(mine, uow.now + timedelta(seconds=10), "GIT_FETCH: no answer")
        if attempt < ATTEMPT_LIMIT:
            assert after is JobState.QUEUED
            with store.begin() as uow:
                assert uow.claim(job_id, LEASE) is None
        clock.move(seconds=10)
    assert after is JobState.FAILED
    with store.read() as uow:
        job = uow.job(job_id)
        assert job is not None and job.error is not None and "GIT_FETCH" in job.error and "5 attempts" in job.error
        assert uow.due_jobs(10) == []


def test_a_job_whose_worker_is_lost_too_often_fails(store: Store, clock: TestClock) -> None:
    job_id = enqueue(store)
    for _ in range(ATTEMPT_LIMIT):
        claim(store, job_id)
        clock.move(seconds=61)
    with store.begin() as uow:
        assert uow.claim(job_id, LEASE) is None
        assert [lost.job_id for lost in uow.fail_abandoned()] == [job_id]
        assert uow.fail_abandoned() == []
    assert state(store, job_id) is JobState.FAILED


def test_workers_are_woken_after_the_commit_and_never_for_what_was_rolled_back(store: Store, notices: Notices) -> None:
    with store.begin() as uow:
        job_id = uow.enqueue(JobKind.INTAKE, "7:1")
        uow.enqueue(JobKind.INTAKE, "7:1")
        assert notices.calls == []
    assert notices.calls == [(job_id,)]
    with pytest.raises(ZeroDivisionError), store.begin() as uow:
        uow.enqueue(JobKind.INTAKE, "7:2")
        raise ZeroDivisionError
    assert len(notices.calls) == 1


def test_a_broker_that_is_down_does_not_undo_the_work(engine: object, clock: TestClock) -> None:
    def broken(_job_ids: object) -> None:
        raise ConnectionError("no broker")

    store = Store(engine, broken, clock.now)  # type: ignore[arg-type]
    assert state(store, enqueue(store)) is JobState.QUEUED


def test_a_queued_job_keeps_the_earlier_time_and_the_last_payload(store: Store, clock: TestClock) -> None:
    later = clock.now() + timedelta(seconds=5)
    with store.begin() as uow:
        job_id = uow.enqueue(JobKind.INTAKE, "7:1", payload={"n": 1}, run_after=later, delivery_id="one")
        uow.enqueue(JobKind.INTAKE, "7:1", payload={"n": 2}, run_after=later + timedelta(seconds=5), priority=3)
        job = uow.job(job_id)
    assert job is not None
    assert (job.run_after, job.payload, job.delivery_id, job.priority) == (later, {"n": 2}, "one", 3)


def test_a_cancelled_job_is_over_also_for_whoever_runs_it(store: Store) -> None:
    job_id = enqueue(store)
    with store.begin() as uow:
        assert uow.cancel(JobKind.INTAKE, "7:1")
        assert not uow.cancel(JobKind.INTAKE, "7:1")
        assert not uow.cancel(JobKind.INTAKE, "another")
    assert state(store, job_id) is JobState.FAILED
    enqueue(store)
    mine = claim(store, job_id)
    with store.begin() as uow:
        assert uow.owns(mine)
        assert uow.cancel(JobKind.INTAKE, "7:1")
        assert not uow.owns(mine)
    for late in ("hold", "finish", "beat"):
        with store.begin() as uow:
            if late == "beat":
                assert not uow.beat(mine, LEASE)
            else:
                with pytest.raises(Conflict, match="JOB_FENCE"):
                    uow.hold(mine) if late == "hold" else uow.finish(mine, JobState.SUCCEEDED)
    enqueue(store)
    assert claim(store, job_id).fence == mine.fence + 1, "asked for again it starts anew"


def test_disturbed_and_postponed_tries_are_no_attempts(store: Store, clock: TestClock) -> None:
    job_id = enqueue(store)
    for voids in range(ATTEMPT_LIMIT + 1):
        mine = claim(store, job_id)
        assert (mine.attempt, mine.voids) == (1, voids)
        with store.begin() as uow:
            assert uow.release(mine, clock.now(), "disturbed", Spent.VOID) is JobState.QUEUED
    with store.begin() as uow:
        assert uow.release(uow.claim(job_id, LEASE), clock.now(), "later", Spent.NOTHING) is JobState.QUEUED
    for attempt in range(1, ATTEMPT_LIMIT + 1):
        mine = claim(store, job_id)
        assert (mine.attempt, mine.voids) == (attempt, ATTEMPT_LIMIT + 1)
        with store.begin() as uow:
            uow.release(mine, clock.now(), "lost")
    assert state(store, job_id) is JobState.FAILED
    enqueue(store)
    assert claim(store, job_id).voids == 0


def test_asked_for_anew_a_finished_job_takes_its_new_priority(store: Store) -> None:
    with store.begin() as uow:
        job_id = uow.enqueue(JobKind.RACE, "r", priority=5)
        uow.enqueue(JobKind.RACE, "r", priority=1)
        assert uow.job(job_id).priority == 5
        uow.cancel(JobKind.RACE, "r")
        uow.enqueue(JobKind.RACE, "r", priority=-3, payload={"author": 9})
        assert uow.job(job_id).priority == -3
        assert uow.payloads(JobKind.RACE, [JobState.QUEUED]) == [{"author": 9}]
        assert uow.payloads(JobKind.RACE, [JobState.RUNNING]) == []


def test_due_jobs_come_by_priority_and_can_be_narrowed(store: Store) -> None:
    with store.begin() as uow:
        low = uow.enqueue(JobKind.INTAKE, "7:1")
        high = uow.enqueue(JobKind.EVALUATE, "x", priority=1)
        uow.enqueue(JobKind.INTAKE, "7:2", run_after=uow.now + timedelta(seconds=1))
        assert uow.due_jobs(10) == [high, low]
        assert uow.due_jobs(1) == [high]
        assert uow.due_jobs(10, [JobKind.INTAKE]) == [low]
        assert uow.job("no such id") is None and uow.claim("no such id", LEASE) is None
