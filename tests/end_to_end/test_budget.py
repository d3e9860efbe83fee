"""The error budget of one pull request over its pushes, whatever its author does with it in between."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gatekeeper import bootstrap
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import DIRECTORY, sample_pulls
from gatekeeper.demo.upstream import Changes, Upstream, build
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.evidence import Evidence, RaceEvidence, TreeSubject
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import RaceRequirement
from gatekeeper.domain.race import RaceOutcome, RaceResult
from gatekeeper.services import decisions
from tests import race_samples

SECRET = "s" * 40
HONEST = sample_pulls()[0]
FISHER, OTHER = 1, 2
LOST = race_samples.result(outcome=RaceOutcome.NOT_BETTER)


def attempt(number: int) -> Changes:
    """The honest change, different each time by a remark."""
    remark = {f"{DIRECTORY}/remark_{number}.py": f'"""Attempt {number}."""\n'.encode()}
    return {**HONEST.changes, **remark}


ATTEMPTS = {number: (HONEST.title, attempt(number)) for number in range(11, 15)}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    place = tmp_path_factory.mktemp("remote") / delivery.OWNER / f"{delivery.NAME}.git"
    place.parent.mkdir()
    changes = {FISHER: (HONEST.title, HONEST.changes), OTHER: (HONEST.title, HONEST.changes)}
    return build(place, {**changes, **ATTEMPTS})


@dataclass
class Gate:
    """A service whose races a test makes up."""

    service: bootstrap.Service
    client: TestClient
    upstream: Upstream
    minutes: int = 0

    def show(self, number: int, of: int, action: str = "synchronize", **changes: Any) -> None:
        """Let a pull request have the head that was built as number ``of``, and read and judge it."""
        head = self.upstream.heads[of]
        (self.upstream.path / "refs" / "pull" / str(number) / "head").write_text(head + "\n")
        content = delivery.payload(number, HONEST.title, HONEST.author, head, self.upstream.base_sha)
        content["action"] = action
        content["pull_request"].update(changes)
        body = json.dumps(content).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "pull_request",
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-GitHub-Hook-ID": str(delivery.HOOK_ID),
            "X-Hub-Signature-256": delivery.sign(SECRET, body),
        }
        assert self.client.post("/webhooks/github", content=body, headers=headers).status_code == 202
        self.work_off()

    def work_off(self) -> None:
        for _ in range(50):
            with self.service.ctx.store.read() as uow:
                due = uow.due_jobs(20, [JobKind.INTAKE, JobKind.EVALUATE])
            if not due:
                return
            for job_id in due:
                self.service.run_job(job_id)
        raise AssertionError("the jobs never end")

    def needed(self, number: int) -> RaceRequirement:
        with self.service.ctx.store.read() as uow:
            current = uow.latest_snapshot(delivery.REPOSITORY_ID, number)
            latest = uow.latest_verdict(current[0]) if current else None
        assert latest is not None
        return next(
            need for result in latest[1].results for need in result.requirements if isinstance(need, RaceRequirement)
        )

    def alpha(self, number: int = FISHER) -> float:
        return self.needed(number).alpha

    def raced(self, number: int = FISHER, result: RaceResult | None = None) -> None:
        """Store a race of what a pull request needs raced now; a lost one unless told otherwise."""
        request = self.needed(number).request
        self.minutes += 1
        subject = TreeSubject(
            tree=request.candidate.tree, directory=request.candidate.directory, suite=request.suite,
            target=request.target.name, target_digest=request.target.digest(),
        )  # fmt: skip
        body = RaceEvidence(request=request.digest(), result=result or LOST)
        at = self.service.ctx.clock.now() - timedelta(hours=1) + timedelta(minutes=self.minutes)
        with self.service.ctx.store.begin() as uow:
            uow.put_evidence(Evidence(subject=subject, recorded_at=at, body=body))

    def push(self, of: int) -> None:
        self.show(FISHER, of)


@pytest.fixture
def gate(tmp_path: Path, upstream: Upstream) -> Iterator[Gate]:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}",
        data_dir=tmp_path / "data",
        webhook_secret=SECRET,  # type: ignore[arg-type]
        git_base_url=f"file://{upstream.path.parent.parent}",
        policy_set="demo",
        trusted_authors=frozenset({"ada", "ben"}),
    )
    service = bootstrap.build(settings)
    yield Gate(service, TestClient(web_app(service), base_url="http://127.0.0.1"), upstream)
    service.close()


def test_every_race_of_an_earlier_push_halves_what_the_next_one_may_err(gate: Gate) -> None:
    gate.show(FISHER, FISHER, "opened")
    for of, alpha in ((11, 0.01), (12, 0.005), (13, 0.0025), (14, 0.00125)):
        assert gate.alpha() == alpha
        gate.raced()
        gate.push(of)
    assert gate.alpha() == 0.00125, "and never falls below the floor"
    page = gate.client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{FISHER}").json()
    assert [row["summary"].partition(":")[0] for row in page["evidence"]] == [
        "An earlier push, which counts against the budget of races"
    ] * 4
    assert [race["state"] for race in page["races"]] == ["waiting"], "theirs are not shown as if they were this head's"


def test_closing_opening_again_renaming_and_a_new_title_change_nothing(gate: Gate) -> None:
    gate.show(FISHER, FISHER, "opened")
    gate.raced()
    gate.push(11)
    gate.show(FISHER, 11, "closed", state="closed")
    gate.show(FISHER, 11, "reopened", title="Something else entirely")
    assert gate.alpha() == 0.005
    gate.raced()
    with gate.service.ctx.store.begin() as uow:  # the repository is renamed, and back with the next event
        uow.remember_repository(RepositoryRef(id=delivery.REPOSITORY_ID, full_name="sample/renamed"))
    gate.push(12)
    assert gate.alpha() == 0.0025


def test_another_pull_request_has_a_budget_of_its_own_and_pays_for_a_tree_that_it_takes_over(gate: Gate) -> None:
    gate.show(FISHER, 11, "opened")
    gate.raced()
    gate.push(12)
    gate.show(OTHER, OTHER, "opened")
    assert (gate.alpha(FISHER), gate.alpha(OTHER)) == (0.005, 0.01)
    gate.show(OTHER, 11)
    with gate.service.ctx.store.read() as uow:
        current = uow.latest_snapshot(delivery.REPOSITORY_ID, OTHER)
        latest = uow.latest_verdict(current[0]) if current else None
        assert latest is not None
        kinds = [uow.evidence(digest).body.kind for digest in latest[1].evidence]
    assert kinds == ["race"], "evidence is about a tree: the same tree is not raced twice"
    gate.show(OTHER, 13)
    assert gate.alpha(OTHER) == 0.005, "but it has had its race"


def test_a_reset_by_a_maintainer_counts_from_then_on_and_at_later_heads(gate: Gate) -> None:
    gate.show(FISHER, FISHER, "opened")
    for of in (11, 12):
        gate.raced()
        gate.push(of)
    assert gate.alpha() == 0.0025
    head = gate.upstream.heads[12]
    decisions.reset_budget(
        gate.service.ctx, delivery.REPOSITORY, FISHER, head=head, by="mira", reason="the noise was ours"
    )
    gate.work_off()
    assert gate.alpha() == 0.01
    gate.push(13)
    assert gate.alpha() == 0.01


def test_a_race_that_stayed_void_costs_nothing_and_can_be_asked_for_again(gate: Gate) -> None:
    gate.show(FISHER, FISHER, "opened")
    need = gate.needed(FISHER)
    key = need.request.digest()
    with gate.service.ctx.store.begin() as uow:
        uow.put_document("race_request", need.request)
        claim = uow.claim(uow.enqueue(JobKind.RACE, key, payload={"alpha": 0.01}), timedelta(minutes=5))
        assert claim is not None
        uow.finish(claim, JobState.SUCCEEDED)
    void = race_samples.result(race_samples.record(errors=()), outcome=RaceOutcome.VOID)
    gate.raced(result=void)
    assert decisions.retry(gate.service.ctx, delivery.REPOSITORY, FISHER) == [], "this verdict has not seen it yet"
    gate.show(FISHER, FISHER, "edited")
    page = gate.client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{FISHER}").json()
    check = next(check for check in page["checks"] if check["check"] == "benchmarks")
    assert check["outcome"] == "error"
    assert "BENCH_VOID" in str(check["policies"])
    assert decisions.retry(gate.service.ctx, delivery.REPOSITORY, FISHER) == [f"race {key[7:19]}"]
    with gate.service.ctx.store.read() as uow:
        job = uow.job_named(JobKind.RACE, key)
    assert job is not None and (job.state, job.payload, job.voids) == (JobState.QUEUED, {"alpha": 0.01}, 0)
    gate.push(11)
    assert gate.alpha() == 0.01
