"""Races and probes as jobs: what a worker's ending does to the job, and what stops one that nobody wants any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gatekeeper.backends.machine import Machine
from gatekeeper.domain.errors import Conflict, Postponed, Rejected, Retryable
from gatekeeper.domain.evidence import RaceEvidence
from gatekeeper.domain.jobs import MACHINE_TAKEN, JobKind, JobState
from gatekeeper.domain.race import ProbeRequest, ProbeResult, RaceOutcome, RaceRequest, TreeSource
from gatekeeper.services import measure
from gatekeeper.services.evaluate import PROBE_REQUEST, RACE_REQUEST
from gatekeeper.services.jobs import Handlers, run
from gatekeeper.store.jobs import ATTEMPT_LIMIT, JobRow
from gatekeeper.store.unit_of_work import Store
from tests import race_samples
from tests.builders import sha, snapshot
from tests.conftest import TestClock

SOURCE = TreeSource(repository_id=7, tree=sha("1"), directory="pkg/special", entry_point="pkg.special.gate:candidate")
REQUEST = race_samples.request(candidate=SOURCE)
STRANGE = SOURCE.model_copy(update={"repository_id": 8})  # no such repository
PROBE = ProbeRequest(source=SOURCE)
VOID = race_samples.result(outcome=RaceOutcome.VOID)


class Workers:
    """A runner whose races end as a test says, one after the other; the last one again and again."""

    def __init__(self, *endings: Any) -> None:
        self.endings = list(endings)
        self.alphas: list[float] = []

    def race(self, order: Any, exported: Any, progress: Any, stop: threading.Event) -> Any:
        self.alphas.append(order.alpha)
        return self._end(stop)

    def probe(self, request: Any, exported: Any, progress: Any, stop: threading.Event) -> Any:
        return self._end(stop)

    def _end(self, stop: threading.Event) -> Any:
        ending = self.endings.pop(0) if len(self.endings) > 1 else self.endings[0]
        if isinstance(ending, BaseException):
            raise ending
        return ending(stop) if callable(ending) else ending


class Bench:
    """A store with one open pull request whose tree is to be raced."""

    def __init__(self, store: Store, clock: TestClock) -> None:
        self.store, self.clock = store, clock
        self.told: list[str] = []
        self.ctx: Any = SimpleNamespace(
            store=store, clock=clock, lease=timedelta(seconds=60), watch_seconds=0.01, runner=Workers()
        )
        with store.begin() as uow:
            self.snapshot = uow.put_snapshot(snapshot())
            uow.note_trees(self.snapshot, [SOURCE.tree])
            uow.put_document(RACE_REQUEST, REQUEST)
            uow.put_document(PROBE_REQUEST, PROBE)

    def ask(self, kind: JobKind = JobKind.RACE) -> str:
        key = (REQUEST if kind is JobKind.RACE else PROBE).digest()
        with self.store.begin() as uow:
            return uow.enqueue(kind, key, payload={"alpha": 0.005})

    def run(self, job_id: str, *endings: Any) -> JobRow:
        self.ctx.runner = Workers(*endings)
        handlers = Handlers(
            by_kind={JobKind.RACE: measure.race, JobKind.PROBE: measure.probe},
            failed=lambda ctx, claim, error: self.told.append(str(error)),
        )
        run(self.ctx, job_id, handlers)
        self.clock.move(minutes=10)
        with self.store.read() as uow:
            row = uow.job(job_id)
        assert row is not None
        return row

    def evaluations(self) -> list[str]:
        with self.store.read() as uow:
            rows = [uow.job(job_id) for job_id in uow.due_jobs(10, [JobKind.EVALUATE])]
        return [row.key for row in rows if row is not None]


@pytest.fixture
def bench(store: Store, clock: TestClock) -> Iterator[Bench]:
    yield Bench(store, clock)


def test_a_result_becomes_evidence_and_wakes_the_pull_request(bench: Bench) -> None:
    assert bench.run(bench.ask(), race_samples.result()).state is JobState.SUCCEEDED
    assert bench.ctx.runner.alphas == [0.005] and bench.evaluations() == [bench.snapshot]
    with bench.store.read() as uow:
        (digest,) = uow.answers_to(REQUEST.digest())
        body = uow.evidence(digest).body
    assert isinstance(body, RaceEvidence) and body.result.outcome is RaceOutcome.BETTER


def test_a_race_wakes_also_a_pull_request_that_has_left_its_tree_behind(bench: Bench) -> None:
    with bench.store.begin() as uow:
        newer = uow.put_snapshot(snapshot(head="f", merge_tree="9"))
    bench.run(bench.ask(), race_samples.result())
    assert bench.evaluations() == [newer]


@pytest.mark.parametrize("kind", [JobKind.RACE, JobKind.PROBE])
def test_a_refused_order_fails_at_once_and_says_why(bench: Bench, kind: JobKind) -> None:
    refusal = Rejected("the worker refuses the order", code="RUN_REFUSED", found="RACE_MODEL: no such model")
    row = bench.run(bench.ask(kind), refusal)
    assert (row.state, row.attempt) == (JobState.FAILED, 1)
    assert "RACE_MODEL: no such model" in (row.error or "") and len(bench.told) == 1


def test_void_races_have_a_limit_of_their_own_beside_lost_workers(bench: Bench) -> None:
    job_id = bench.ask()
    lost = Retryable("the worker died", code="RUN_CRASHED")
    for attempt in range(1, ATTEMPT_LIMIT):
        row = bench.run(job_id, lost)
        assert (row.state, row.attempt, row.voids) == (JobState.QUEUED, attempt, 0)
    for voids in range(1, measure.VOID_RETRIES + 1):
        row = bench.run(job_id, VOID)
        assert (row.state, row.attempt, row.voids) == (JobState.QUEUED, ATTEMPT_LIMIT - 1, voids), "no attempt is spent"
    row = bench.run(job_id, VOID)
    assert row.state is JobState.SUCCEEDED and bench.told == []
    with bench.store.read() as uow:
        assert len(uow.answers_to(REQUEST.digest())) == 1, "the last one is recorded as it is, once"


def test_a_machine_that_is_taken_costs_nothing(bench: Bench) -> None:
    job_id = bench.ask(JobKind.PROBE)
    for _ in range(3 * ATTEMPT_LIMIT):
        row = bench.run(job_id, Postponed("a race runs", code="RUN_MACHINE_TAKEN"))
        assert (row.state, row.attempt) == (JobState.QUEUED, 0)
    answer = ProbeResult(jail="process", entry_point_found=True, seconds=0.1)
    assert bench.run(job_id, answer).state is JobState.SUCCEEDED


def test_a_job_that_waited_for_the_machine_is_said_to_run_once_it_has_it(bench: Bench, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine")
    with machine.probing(), pytest.raises(Postponed) as taken, machine.probing():
        pass
    assert taken.value.code == MACHINE_TAKEN
    job_id = bench.ask(JobKind.PROBE)
    assert bench.run(job_id, taken.value).waits_for_machine
    bench.clock.move(seconds=10)
    with bench.store.begin() as uow:
        claim = uow.claim(job_id, timedelta(seconds=60))
        assert claim is not None
    with bench.store.read() as uow:
        assert uow.job(job_id).waits_for_machine, "a claim alone is a look for its turn"
    with pytest.raises(Rejected), measure._exporter(bench.ctx, claim)(STRANGE, tmp_path):
        pass
    with bench.store.read() as uow:
        row = uow.job(job_id)
    assert row.state is JobState.RUNNING and not row.waits_for_machine


def test_a_cancelled_race_is_told_to_stop_and_its_result_is_refused(bench: Bench) -> None:
    def cancelled_meanwhile(obeys: bool) -> Callable[[threading.Event], Any]:
        def end(stop: threading.Event) -> Any:
            with bench.store.begin() as uow:
                assert uow.cancel(JobKind.RACE, REQUEST.digest())
            assert stop.wait(10), "the run is told"
            if obeys:
                raise Conflict("nobody waits for this run any more", code="RUN_STOPPED")
            return race_samples.result()

        return end

    for obeys in (True, False):
        row = bench.run(bench.ask(), cancelled_meanwhile(obeys))
        assert row.state is JobState.FAILED and (row.error or "").startswith("JOB_CANCELLED")
    with bench.store.read() as uow:
        assert uow.answers_to(REQUEST.digest()) == frozenset()
    assert bench.evaluations() == [] and bench.told == []


def test_a_race_that_another_worker_has_taken_over_is_told_to_stop(bench: Bench) -> None:
    job_id = bench.ask()

    def end(stop: threading.Event) -> Any:
        bench.clock.move(seconds=61)
        with bench.store.begin() as uow:
            assert uow.claim(job_id, timedelta(minutes=30)) is not None
        assert stop.wait(10)
        return race_samples.result()

    row = bench.run(job_id, end)
    assert (row.state, row.fence) == (JobState.RUNNING, 2)
    with bench.store.read() as uow:
        assert uow.answers_to(REQUEST.digest()) == frozenset()


def test_a_race_without_a_tree_or_an_alpha_is_no_race_for_a_verdict(bench: Bench) -> None:
    installed = race_samples.request()
    with bench.store.begin() as uow:
        uow.put_document(RACE_REQUEST, installed)
        without_tree = uow.enqueue(JobKind.RACE, installed.digest(), payload={"alpha": 0.01})
        without_alpha = uow.enqueue(JobKind.RACE, REQUEST.digest(), payload={})
    assert "RACE_SOURCE" in (bench.run(without_tree, race_samples.result()).error or "")
    assert "RACE_ALPHA" in (bench.run(without_alpha, race_samples.result()).error or "")
    assert isinstance(installed, RaceRequest)
