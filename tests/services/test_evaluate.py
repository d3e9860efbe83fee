"""What an evaluation writes when the world moves on while its policies run, and what given-up work does to a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper import bootstrap
from gatekeeper.config import Settings
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import Check, Outcome, PolicyResult, RaceRequirement, Severity
from gatekeeper.domain.race import ProbeRequest, TreeSource
from gatekeeper.domain.repository import Fault, RepositoryConfiguration
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services import evaluate
from gatekeeper.services.evaluate import CONFIGURATION
from tests import race_samples
from tests.builders import DIGEST, sha, snapshot

SOURCE = TreeSource(repository_id=7, tree=sha("1"), directory="a/b", entry_point="a.b.gate:candidate")
RACE = RaceRequirement(request=race_samples.request(candidate=SOURCE))
RULES = RepositoryConfiguration(fault=Fault(code="CONFIG_MISSING", message="none"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[bootstrap.Service]:
    made = bootstrap.build(
        Settings(database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}", data_dir=tmp_path / "data", policy_set="demo")
    )
    yield made
    made.close()


def result(policy: str, check: Check, *requirements: RaceRequirement) -> PolicyResult:
    return PolicyResult(
        policy=policy, check=check, outcome=Outcome.PENDING if requirements else Outcome.PASSED, title="a rule",
        summary="so it is", severity=Severity.BLOCKING, requirements=requirements, parameters=DIGEST,
    )  # fmt: skip


def concluded(service: bootstrap.Service, of: Snapshot) -> Verdict:
    """Conclude an evaluation in which both policies of the benchmarks ask for the same race."""
    results = (
        result("isolation", Check.ISOLATION),
        result("scope", Check.SCOPE),
        result("right", Check.BENCHMARKS, RACE),
        result("faster", Check.BENCHMARKS, RACE),
    )
    ctx = service.ctx
    with ctx.store.begin() as uow:
        return evaluate._conclude(ctx, uow, of.digest(), of, ctx.books["demo"], RULES, (), results, None)


def put(service: bootstrap.Service, of: Snapshot) -> None:
    with service.ctx.store.begin() as uow:
        uow.put_document(CONFIGURATION, RULES)
        uow.note_trees(uow.put_snapshot(of), [SOURCE.tree])


def raced(service: bootstrap.Service) -> JobState | None:
    with service.ctx.store.read() as uow:
        job = uow.job_named(JobKind.RACE, RACE.request.digest())
    return None if job is None else job.state


def test_nothing_is_asked_for_a_snapshot_that_was_replaced_while_the_policies_ran(service: bootstrap.Service) -> None:
    old = snapshot().model_copy(update={"configuration": RULES.digest()})
    put(service, old)
    put(service, snapshot(head="f", merge_tree="9").model_copy(update={"configuration": RULES.digest()}))
    concluded(service, old)
    assert raced(service) is None


def test_nothing_is_asked_for_a_head_beside_which_a_newer_one_is_announced(service: bootstrap.Service) -> None:
    of = snapshot().model_copy(update={"configuration": RULES.digest()})
    put(service, of)
    with service.ctx.store.begin() as uow:
        uow.remember_pull(
            7, 1, title="t", author_id=3, author_login="ada", base_ref="main", draft=False, open=True, head_sha=sha("f")
        )
    concluded(service, of)
    assert raced(service) is None


def test_what_was_given_up_is_said_once_and_makes_the_check_an_error(service: bootstrap.Service) -> None:
    of = snapshot().model_copy(update={"configuration": RULES.digest()})
    put(service, of)
    assert concluded(service, of).outcome is Outcome.PENDING
    assert raced(service) is JobState.QUEUED
    with service.ctx.store.begin() as uow:
        row = uow.job_named(JobKind.RACE, RACE.request.digest())
        assert row is not None
        claim = uow.claim(row.id, service.ctx.lease)
        assert claim is not None
        uow.finish(
            claim, JobState.FAILED, "RUN_REFUSED: the worker refuses the order (found RACE_MODEL: no such model)"
        )
    verdict = concluded(service, of)
    own = [each for each in verdict.results if each.policy == "engine"]
    assert verdict.outcome is Outcome.ERROR and len(own) == 1
    (finding,) = own[0].findings
    assert (finding.code, finding.message) == ("RUN_INFRASTRUCTURE", "the race could not be run")
    assert "no such model" in finding.found


@pytest.mark.parametrize("kind", [JobKind.RACE, JobKind.PROBE])
def test_a_worker_that_refuses_its_order_ends_in_a_verdict_that_says_so(
    service: bootstrap.Service, kind: JobKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = snapshot().model_copy(update={"configuration": RULES.digest()})
    put(service, of)
    request = RACE.request if kind is JobKind.RACE else ProbeRequest(source=SOURCE)

    def refuse(*_arguments: object) -> None:
        raise Rejected("the worker refuses the order", code="RUN_REFUSED", found="RACE_MODEL: no such model")

    monkeypatch.setattr(service.runner, "race" if kind is JobKind.RACE else "probe", refuse)
    with service.ctx.store.begin() as uow:
        uow.put_document(kind.value + "_request", request)
        job_id = uow.enqueue(kind, request.digest(), payload={"alpha": 0.01})
    assert service.run_job(job_id) is None
    with service.ctx.store.read() as uow:
        row = uow.job(job_id)
        woken = [uow.job(each) for each in uow.due_jobs(10, [JobKind.EVALUATE])]
    assert row is not None and (row.state, row.attempt) == (JobState.FAILED, 1)
    assert [each.key for each in woken if each is not None] == [of.digest()]


def test_an_evaluation_that_fails_for_good_makes_the_verdict_an_error(service: bootstrap.Service) -> None:
    of = snapshot().model_copy(update={"configuration": RULES.digest()})
    put(service, of)
    with service.ctx.store.begin() as uow:
        job_id = uow.enqueue(JobKind.EVALUATE, of.digest())
    service.run_job(job_id)  # the mirror holds none of the trees that this snapshot names
    with service.ctx.store.read() as uow:
        row, latest = uow.job(job_id), uow.latest_verdict(of.digest())
    assert row is not None and latest is not None
    assert latest[1].outcome is Outcome.ERROR
