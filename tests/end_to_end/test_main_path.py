"""From a signed webhook over HTTP to a stored, published verdict: the embedded service as it is put together for real."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gatekeeper import bootstrap
from gatekeeper.cli.evaluate import decide_again, read_bundle
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import SamplePull, sample_pulls
from gatekeeper.demo.upstream import Upstream, build
from gatekeeper.domain.evidence import Approval, Evidence, PullSubject
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.policy import Outcome
from gatekeeper.services.evaluate import evaluate

SECRET = "s" * 40
STATIC = tuple(pull for pull in sample_pulls() if not pull.races)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    place = tmp_path_factory.mktemp("remote") / delivery.OWNER / f"{delivery.NAME}.git"
    place.parent.mkdir()
    return build(place, {pull.number: (pull.title, pull.changes) for pull in sample_pulls()})


@pytest.fixture
def trusted() -> frozenset[str]:
    return frozenset({"ada", "ben"})


@pytest.fixture
def service(tmp_path: Path, upstream: Upstream, trusted: frozenset[str]) -> Iterator[bootstrap.Service]:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}",
        data_dir=tmp_path / "data",
        webhook_secret=SECRET,
        git_base_url=f"file://{upstream.path.parent.parent}",
        policy_set="demo",
        trusted_authors=trusted,
    )
    made = bootstrap.build(settings)
    yield made
    made.close()


def work_off(service: bootstrap.Service) -> None:
    """Run every due job but races and probes, which need a worker, until none is left."""
    kinds = [JobKind.INTAKE, JobKind.EVALUATE, JobKind.PUBLISH]
    for _ in range(50):
        with service.ctx.store.read() as uow:
            due = uow.due_jobs(20, kinds)
        if not due:
            return
        for job_id in due:
            service.run_job(job_id)
    raise AssertionError("the jobs never end")


def announce(client: TestClient, upstream: Upstream, pull: SamplePull) -> None:
    content = delivery.payload(pull.number, pull.title, pull.author, upstream.heads[pull.number], upstream.base_sha)
    delivery.deliver(client, SECRET, content)


@pytest.mark.parametrize("pull", STATIC, ids=lambda pull: f"{pull.number}-{pull.expected}")
def test_a_webhook_becomes_the_expected_verdict(
    service: bootstrap.Service, upstream: Upstream, pull: SamplePull
) -> None:
    client = TestClient(web_app(service), base_url="http://127.0.0.1")
    announce(client, upstream, pull)
    work_off(service)
    page = client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{pull.number}").json()
    codes = {
        finding["code"] for check in page["checks"] for policy in check["policies"] for finding in policy["findings"]
    }
    assert page["outcome"] == pull.expected
    assert pull.codes <= codes
    assert {row["publisher"] for row in page["published"]} == {"log", "page"}


def test_an_honest_change_waits_for_its_probe_and_does_not_race_before(
    service: bootstrap.Service, upstream: Upstream
) -> None:
    pull = sample_pulls()[0]
    announce(TestClient(web_app(service), base_url="http://127.0.0.1"), upstream, pull)
    work_off(service)
    with service.ctx.store.read() as uow:
        current = uow.latest_snapshot(delivery.REPOSITORY_ID, pull.number)
        assert current is not None
        verdict = uow.latest_verdict(current[0])
        waiting = {uow.job(job_id).kind for job_id in uow.due_jobs(20)}
    assert verdict is not None
    assert verdict[1].outcome is Outcome.PENDING
    assert waiting == {JobKind.PROBE}


def test_the_same_facts_give_the_same_verdict_and_no_new_link(service: bootstrap.Service, upstream: Upstream) -> None:
    client = TestClient(web_app(service), base_url="http://127.0.0.1")
    pull = STATIC[0]
    announce(client, upstream, pull)
    work_off(service)
    with service.ctx.store.begin() as uow:
        uow.enqueue(JobKind.INTAKE, f"{delivery.REPOSITORY_ID}:{pull.number}")
    work_off(service)
    with service.ctx.store.read() as uow:
        current = uow.latest_snapshot(delivery.REPOSITORY_ID, pull.number)
        assert current is not None
        assert len(uow.verdicts(current[0])) == 1


def test_a_verdict_is_decided_again_offline_from_its_bundle(
    service: bootstrap.Service, upstream: Upstream, tmp_path: Path
) -> None:
    pull = STATIC[0]
    client = TestClient(web_app(service), base_url="http://127.0.0.1")
    announce(client, upstream, pull)
    work_off(service)
    file = tmp_path / "bundle.json"
    file.write_bytes(client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{pull.number}/bundle").content)
    again = decide_again(read_bundle(file), upstream.path)
    stored = client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{pull.number}").json()
    assert again.digest() == stored["verdict"]
    assert client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/999/bundle").status_code == 404


def approve(service: bootstrap.Service, upstream: Upstream, number: int, by: str) -> None:
    subject = PullSubject(repository_id=delivery.REPOSITORY_ID, number=number, head_sha=upstream.heads[number])
    approval = Evidence(subject=subject, recorded_at=service.ctx.clock.now(), body=Approval(by=by))
    with service.ctx.store.begin() as uow:
        current = uow.latest_snapshot(delivery.REPOSITORY_ID, number)
        assert current is not None
        uow.put_evidence(approval)
        uow.enqueue(JobKind.EVALUATE, current[0])
    work_off(service)


def waiting_kinds(service: bootstrap.Service) -> set[JobKind]:
    with service.ctx.store.read() as uow:
        rows = [uow.job(job_id) for job_id in uow.due_jobs(20)]
    return {row.kind for row in rows if row is not None}


@pytest.mark.parametrize("trusted", [frozenset()])
def test_no_code_of_an_unknown_author_is_run_before_a_maintainer_approves(
    service: bootstrap.Service, upstream: Upstream
) -> None:
    pull = sample_pulls()[0]
    client = TestClient(web_app(service), base_url="http://127.0.0.1")
    announce(client, upstream, pull)
    work_off(service)
    assert client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/{pull.number}").json()["outcome"] == "pending"
    assert waiting_kinds(service) == set()
    for nobody in (pull.author[1], "stranger"):
        approve(service, upstream, pull.number, nobody)
        assert waiting_kinds(service) == set()
    approve(service, upstream, pull.number, "mira")
    assert waiting_kinds(service) == {JobKind.PROBE}


def test_a_new_head_never_stands_beside_the_verdict_of_an_old_one(
    service: bootstrap.Service, upstream: Upstream
) -> None:
    honest, broken = STATIC[-1], STATIC[0]
    client = TestClient(web_app(service), base_url="http://127.0.0.1")
    announce(client, upstream, honest)
    work_off(service)
    where = f"/api/v1/pulls/{delivery.REPOSITORY}/{honest.number}"
    assert client.get(where).json()["outcome"] == "passed"
    content = delivery.payload(
        honest.number, honest.title, honest.author, upstream.heads[broken.number], upstream.base_sha
    )
    delivery.deliver(client, SECRET, content | {"action": "synchronize"})
    page = client.get(where).json()
    assert (page["head_sha"], page["outcome"], page["verdict"]) == (upstream.heads[broken.number], "pending", None)
    with service.ctx.store.read() as uow:
        old = uow.latest_snapshot(delivery.REPOSITORY_ID, honest.number)
    assert old is not None
    evaluate(service.ctx, old[0])
    assert client.get(where).json()["verdict"] is None
    work_off(service)  # git says that the head is still the honest one: the event was late, and its verdict is back
    page = client.get(where).json()
    assert (page["head_sha"], page["outcome"]) == (upstream.heads[honest.number], "passed")


def test_a_changed_policy_set_is_replaced_by_todays_of_the_name_that_the_repository_chose(
    service: bootstrap.Service, upstream: Upstream
) -> None:
    pull = STATIC[0]
    announce(TestClient(web_app(service), base_url="http://127.0.0.1"), upstream, pull)
    work_off(service)
    with service.ctx.store.read() as uow:
        current = uow.latest_snapshot(delivery.REPOSITORY_ID, pull.number)
    assert current is not None
    changed = dataclasses.replace(service.ctx.books["demo"], digest="sha256:" + "e" * 64)
    books = {**service.ctx.books, "demo": changed}
    verdict = evaluate(dataclasses.replace(service.ctx, books=books, default_policy_set="default"), current[0])
    assert verdict is not None
    assert (verdict.policy_set_name, verdict.policy_set) == ("demo", changed.digest)
