"""The embedded queue: a few threads in this process, with a lane of its own for races and for what must not run beside one."""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import structlog

JOBS, RACES = "jobs", "races"
Place = tuple[str, int]
"""Lane and priority of a job: in a lane the highest priority goes first, then what came first."""
RunJob = Callable[[str], datetime | None]
"""Runs a job by id; returns when to come back if it is queued for later."""
LOOK_SECONDS = 2.0
"""How often an embedded queue looks for jobs of another process: ``gatekeeper approve`` should set work free while one watches."""
LOG = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Timer:
    """What is called every ``seconds``; an error of ``call`` is logged as ``event``."""

    event: str
    call: Callable[[], object]
    seconds: float


class LocalQueue:
    """Runs jobs in threads. Races wait in a lane of their own, so that they never hold up an evaluation.

    Probes belong into that lane too: they would disturb the timing of a race that runs beside them.

    A timer thread carries ids to lanes, brings back jobs that are queued for later, and calls what is due regularly.
    """

    def __init__(self, threads: int = 2, race_slots: int = 1) -> None:
        self._lanes: dict[str, queue.PriorityQueue[tuple[float, int, str | None]]] = {
            JOBS: queue.PriorityQueue(), RACES: queue.PriorityQueue()
        }  # fmt: skip
        self._counter = itertools.count()
        self._sizes = {JOBS: threads, RACES: race_slots}
        self._coming: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self._waiting: set[str] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def notify(self, job_ids: Sequence[str]) -> None:
        """Say that these jobs may be claimed. Also allowed before :meth:`start`."""
        self._put(job_ids, at=time.monotonic())

    def start(self, run_job: RunJob, place_of: Callable[[str], Place], timers: Sequence[Timer]) -> None:
        """Start all threads. ``place_of`` says where a job id belongs; each of ``timers`` is called at once and then regularly."""
        timer = threading.Thread(target=self._time, args=(place_of, timers), name="timer", daemon=True)
        self._threads.append(timer)
        for lane, size in self._sizes.items():
            for number in range(size):
                name = f"{lane}-{number}"
                self._threads.append(threading.Thread(target=self._serve, args=(lane, run_job), name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> bool:
        """Take no new job and wait for the running ones. Returns whether all threads ended in time."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for lane, size in self._sizes.items():
            for _ in range(size):
                self._lanes[lane].put((-float("inf"), next(self._counter), None))
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def alive(self) -> bool:
        """Return whether every thread still runs."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def _put(self, job_ids: Sequence[str], at: float) -> None:
        with self._changed:
            for job_id in job_ids:
                heapq.heappush(self._coming, (at, job_id))
            self._changed.notify_all()

    def _time(self, place_of: Callable[[str], Place], timers: Sequence[Timer]) -> None:
        following = [time.monotonic()] * len(timers)
        while not self._stopping.is_set():
            for number, timer in enumerate(timers):
                if time.monotonic() >= following[number]:
                    _guarded(timer.event, timer.call)
                    following[number] = time.monotonic() + timer.seconds
            for job_id in self._due(until=min(following, default=time.monotonic() + 60)):
                _guarded("queue.dispatch_failed", partial(self._dispatch, job_id, place_of))

    def _due(self, until: float) -> list[str]:
        """Wait for ids whose time has come, at most until the given moment."""
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                due: list[str] = []
                while self._coming and self._coming[0][0] <= now:
                    due.append(heapq.heappop(self._coming)[1])
                if due or now >= until:
                    return list(dict.fromkeys(due))
                wake = min(until, self._coming[0][0]) if self._coming else until
                self._changed.wait(wake - now)
        return []

    def _dispatch(self, job_id: str, place_of: Callable[[str], Place]) -> None:
        with self._changed:
            if job_id in self._waiting:
                return
            self._waiting.add(job_id)
        try:
            lane, priority = place_of(job_id)
        except BaseException:
            self._no_longer_waiting(job_id)
            raise
        self._lanes[lane].put((-priority, next(self._counter), job_id))

    def _no_longer_waiting(self, job_id: str) -> None:
        with self._changed:
            self._waiting.discard(job_id)

    def _serve(self, lane: str, run_job: RunJob) -> None:
        while (job_id := self._lanes[lane].get()[2]) is not None and not self._stopping.is_set():
            self._no_longer_waiting(job_id)  # before the claim: what is asked for from now on must not be dropped
            _guarded("queue.job_failed", partial(self._run, job_id, run_job))

    def _run(self, job_id: str, run_job: RunJob) -> None:
        later = run_job(job_id)
        if later is not None:
            self._put([job_id], at=time.monotonic() + max(0.0, (later - datetime.now(UTC)).total_seconds()))


def _guarded(event: str, call: Callable[[], object]) -> None:
    """A thread of the queue outlives any error: the job's row is still there, and the reconciler brings it back."""
    try:
        call()
    except Exception:
        LOG.exception(event)
