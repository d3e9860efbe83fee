"""The embedded queue: lanes, coming back later, stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gatekeeper.backends.local import JOBS, RACES, LocalQueue, Place, Timer


@pytest.fixture
def queue() -> Iterator[LocalQueue]:
    """A queue with two threads for jobs and one for races, stopped afterwards."""
    made = LocalQueue(threads=2, race_slots=1)
    yield made
    made.stop(5)


def lane(job_id: str) -> Place:
    return (RACES if job_id.startswith(("race", "probe")) else JOBS), (10 if job_id.startswith("probe") else 0)


def test_races_never_hold_up_other_jobs_and_run_one_at_a_time(queue: LocalQueue) -> None:
    release, done = threading.Event(), threading.Event()
    racing: list[str] = []

    def run(job_id: str) -> None:
        if lane(job_id)[0] == RACES:
            racing.append(job_id)
            release.wait(10)
        else:
            done.set()

    queue.notify(["race-1", "race-2", "race-3"])
    queue.start(run, lane, ())
    queue.notify(["evaluate"])
    assert done.wait(5)
    assert racing == ["race-1"]
    release.set()


def test_a_job_that_is_queued_for_later_is_brought_back_then(queue: LocalQueue) -> None:
    seen: list[float] = []
    done = threading.Event()

    def run(job_id: str) -> datetime | None:
        seen.append(time.monotonic())
        if len(seen) == 1:
            return datetime.now(UTC) + timedelta(seconds=0.3)
        done.set()
        return None

    queue.start(run, lane, ())
    queue.notify(["intake"])
    assert done.wait(5)
    assert 0.25 < seen[1] - seen[0] < 2


def test_an_error_in_a_job_or_in_reconcile_ends_no_thread(queue: LocalQueue) -> None:
    reconciled, ran, look = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)

    def run(job_id: str) -> None:
        ran.release()
        raise ZeroDivisionError

    def reconcile() -> None:
        reconciled.release()
        raise ZeroDivisionError

    queue.start(run, lane, [Timer("reconcile.failed", reconcile, 0.05), Timer("look.failed", look.release, 0.02)])
    queue.notify([f"job-{number}" for number in range(6)])
    for _ in range(6):
        assert ran.acquire(timeout=5)
    for _ in range(3):
        assert reconciled.acquire(timeout=5)
        assert look.acquire(timeout=5)
    assert queue.alive()


def test_stopping_waits_for_what_runs_and_takes_nothing_new(queue: LocalQueue) -> None:
    started, finished = threading.Event(), []

    def run(job_id: str) -> None:
        started.set()
        time.sleep(0.3)
        finished.append(job_id)

    queue.start(run, lane, ())
    queue.notify(["one"])
    assert started.wait(5)
    assert queue.stop(5)
    queue.notify(["two"])
    time.sleep(0.1)
    assert finished == ["one"] and not queue.alive()


def test_stopping_says_if_something_would_not_end(queue: LocalQueue) -> None:
    started, release = threading.Event(), threading.Event()

    def run(job_id: str) -> None:
        started.set()
        release.wait(10)

    queue.start(run, lane, ())
    queue.notify(["stuck"])
    assert started.wait(5)
    assert not queue.stop(0.1)
    release.set()


def test_in_the_lane_of_races_a_probe_goes_first_and_never_beside_a_race(queue: LocalQueue) -> None:
    order: list[str] = []
    release, done = threading.Event(), threading.Event()

    def run(job_id: str) -> None:
        order.append(job_id)
        if job_id == "race-1":
            release.wait(10)
        if len(order) == 4:
            done.set()

    queue.start(run, lane, ())
    queue.notify(["race-1"])
    while order != ["race-1"]:
        time.sleep(0.01)
    queue.notify(["race-2", "race-3"])
    queue.notify(["probe-1"])
    time.sleep(0.2)
    assert order == ["race-1"]
    release.set()
    assert done.wait(5)
    assert order == ["race-1", "probe-1", "race-2", "race-3"]
