"""A pull request that git refuses, or that cannot be reached, gets an answer that says so; a good push replaces it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from gatekeeper import bootstrap
from gatekeeper.cli.evaluate import decide_again, read_bundle
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.demo import delivery
from gatekeeper.demo.upstream import Upstream, build
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.refusals import ENGINE, INTAKE
from gatekeeper.git import plumbing
from gatekeeper.services.intake import LOOK_AGAIN
from gatekeeper.store.tables import deliveries, jobs

SECRET = "s" * 40
NUMBER = 5
AUTHOR = (7, "ada")
WHERE = f"/api/v1/pulls/{delivery.REPOSITORY}/{NUMBER}"


@dataclass
class Scene:
    """A service over an upstream of its own, and what GitHub would do."""

    service: bootstrap.Service
    upstream: Upstream
    client: TestClient

    def announce(self, head: str, **changes: Any) -> None:
        """Deliver an event that names a head."""
        content = delivery.payload(NUMBER, "A change", AUTHOR, head, self.upstream.base_sha)
        content["pull_request"] |= changes
        body = json.dumps(content).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "pull_request",
            "X-GitHub-Delivery": str(uuid4()),
            "X-Hub-Signature-256": delivery.sign(SECRET, body),
        }
        assert self.client.post("/webhooks/github", content=body, headers=headers).status_code == 202

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git in the upstream."""
        return plumbing.run(self.upstream.path, *arguments, stdin=stdin).text

    def commit(self, tree: str, ref: str = f"refs/pull/{NUMBER}/head", parent: str | None = None) -> str:
        """Commit a tree on the base and point a ref at it."""
        lines = f"tree {tree}\nparent {parent or self.upstream.base_sha}\nauthor A <a@b.c> 1790000000 +0000\n"
        body = f"{lines}committer A <a@b.c> 1790000000 +0000\n\nchange\n".encode()
        head = self.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body)
        self.git("update-ref", ref, head)
        return head

    def tree(self, *entries: tuple[str, str, str]) -> str:
        """Write a tree from mode, name and id, whatever git thinks of it."""
        body = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(id) for mode, name, id in entries)
        return self.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=body)

    def bad_tree(self) -> str:
        """Write a tree with two entries of one name."""
        blobs = [self.git("hash-object", "-w", "--stdin", stdin=text) for text in (b"x\n", b"y\n")]
        return self.tree(("100644", "k.py", blobs[0]), ("100644", "k.py", blobs[1]))

    def work_off(self) -> None:
        """Run what is due, races and probes apart, until nothing is left; what waits for its next try is let run now."""
        kinds = [JobKind.INTAKE, JobKind.EVALUATE, JobKind.PUBLISH]
        for _ in range(60):
            with self.service.ctx.store.read() as uow:
                due = uow.due_jobs(20, kinds)
            if not due:
                return
            for job_id in due:
                self.service.run_job(job_id)
        raise AssertionError("the jobs never end")

    def exhaust(self) -> None:
        """Run the intake, whenever it is due, until it has succeeded or failed for good; then everything else."""
        for _ in range(10):
            with self.service.ctx.store.read() as uow:
                job = uow.job_named(JobKind.INTAKE, f"{delivery.REPOSITORY_ID}:{NUMBER}")
            assert job is not None
            if job.state.value != "queued":
                break
            self._make_due(job.id)
            self.service.run_job(job.id)
        self.work_off()

    def _make_due(self, job_id: str) -> None:
        with self.service.ctx.store.begin() as uow:
            uow.connection.execute(update(jobs).where(jobs.c.id == UUID(job_id)).values(run_after=uow.now))

    def page(self) -> dict[str, Any]:
        """Return the pull request as the API shows it."""
        answer = self.client.get(WHERE)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def finding(self) -> dict[str, Any]:
        """Return the only finding of the verdict."""
        found = [item for check in self.page()["checks"] for policy in check["policies"] for item in policy["findings"]]
        assert len(found) == 1, found
        return dict(found[0])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    place = tmp_path / "remote" / delivery.OWNER / f"{delivery.NAME}.git"
    place.parent.mkdir(parents=True)
    upstream = build(place, {NUMBER: ("A change", {"docs/a.md": b"fine\n"})})
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}",
        data_dir=tmp_path / "data",
        webhook_secret=SECRET,
        git_base_url=f"file://{tmp_path / 'remote'}",
        policy_set="demo",
        trusted_authors=frozenset({"ada"}),
    )
    service = bootstrap.build(settings)
    yield Scene(service, upstream, TestClient(web_app(service), base_url="http://127.0.0.1"))
    service.close()


def test_refused_objects_are_a_failed_verdict_of_the_head_that_was_announced(scene: Scene, tmp_path: Path) -> None:
    head = scene.commit(scene.bad_tree())
    with structlog.testing.capture_logs() as logs:
        scene.announce(head)
        scene.work_off()
    page = scene.page()
    assert (page["outcome"], page["head_sha"], page["base_sha"]) == ("failed", head, scene.upstream.base_sha)
    assert page["changed_files"] is None, "nobody has counted them"
    assert page["headline"] == "failed: isolation, 1 finding" and page["jobs"] == []
    assert {check["check"]: check["outcome"] for check in page["checks"]} == {
        "isolation": "failed", "scope": "pending", "benchmarks": "pending", "contributor-log": "pending",
    }  # fmt: skip
    finding = scene.finding()
    assert (finding["code"], finding["policy"]) == ("ISO_MALFORMED_TREE", INTAKE)
    assert finding["expected"] == "objects that git fsck accepts" and "duplicateEntries" in finding["found"]
    assert "push them" in finding["message"]
    text = scene.client.get(WHERE.removeprefix("/api/v1")).text
    assert "ISO_MALFORMED_TREE" in text and "duplicateEntries" in text and "It has to be changed" in text
    assert [log["outcome"] for log in logs if log["event"] == "verdict"] == ["failed"]
    assert any("ISO_MALFORMED_TREE" in log.get("text", "") for log in logs)
    assert {row["publisher"] for row in page["published"]} == {"log", "page"}
    assert scene.client.get("/api/v1/pulls?outcome=failed").json()["total"] == 1
    with scene.service.ctx.store.read() as uow:
        job = uow.job_named(JobKind.INTAKE, f"{delivery.REPOSITORY_ID}:{NUMBER}")
    assert job is not None and job.state.value == "succeeded"
    bundle = tmp_path / "bundle.json"
    bundle.write_bytes(scene.client.get(f"{WHERE}/bundle").content)
    assert decide_again(read_bundle(bundle), scene.upstream.path).digest() == page["verdict"]


def test_a_good_push_replaces_a_refusal_and_a_bad_one_a_good_verdict(scene: Scene) -> None:
    good = scene.upstream.heads[NUMBER]
    scene.announce(good)
    scene.work_off()
    assert scene.page()["outcome"] == "passed"
    bad = scene.commit(scene.bad_tree())
    scene.announce(bad)
    assert (scene.page()["outcome"], scene.page()["verdict"]) == ("pending", None)
    scene.work_off()
    assert (scene.page()["outcome"], scene.page()["head_sha"]) == ("failed", bad)
    scene.git("update-ref", f"refs/pull/{NUMBER}/head", good)
    scene.announce(good)
    scene.work_off()
    page = scene.page()
    assert (page["outcome"], page["head_sha"]) == ("passed", good)
    assert "ISO_MALFORMED_TREE" not in scene.client.get(WHERE.removeprefix("/api/v1")).text


def test_a_refusal_is_bound_to_the_head_that_git_names(scene: Scene) -> None:
    scene.announce("1" * 40)  # an event that is older than what lies there now
    head = scene.commit(scene.bad_tree())
    scene.work_off()
    assert (scene.page()["outcome"], scene.page()["head_sha"]) == ("failed", head)


def test_a_base_that_git_refuses_is_not_the_heads_fault(scene: Scene) -> None:
    base = scene.commit(scene.bad_tree(), ref="refs/heads/main")
    tree = scene.git("rev-parse", f"{scene.upstream.base_sha}^{{tree}}")
    head = scene.commit(tree, parent=base)
    scene.announce(head)
    scene.work_off()
    page, finding = scene.page(), scene.finding()
    assert (page["outcome"], page["head_sha"], page["base_sha"]) == ("error", head, None)
    assert (finding["code"], finding["policy"]) == ("ISO_MALFORMED_TREE", ENGINE)
    assert "base branch" in finding["message"]
    text = scene.client.get(WHERE.removeprefix("/api/v1")).text
    assert "Nothing in the pull request has to be changed" in text and "It has to be changed" not in text


def test_a_base_branch_that_cannot_be_a_name_fails(scene: Scene) -> None:
    scene.announce(scene.upstream.heads[NUMBER], base={"ref": "a..b"})
    scene.work_off()
    assert (scene.page()["outcome"], scene.finding()["code"]) == ("failed", "CI_REF")
    assert scene.finding()["found"] == "'a..b'"


def test_a_ref_that_never_comes_is_an_error_and_a_later_push_replaces_it(scene: Scene) -> None:
    good = scene.upstream.heads[NUMBER]
    scene.git("update-ref", "-d", f"refs/pull/{NUMBER}/head")
    scene.announce(good)
    scene.exhaust()
    page, finding = scene.page(), scene.finding()
    assert (page["outcome"], page["head_sha"], finding["code"]) == ("error", good, "REF_GONE")
    assert finding["expected"] == "its head and its base branch" and "pull/5/head" in finding["found"]
    assert page["jobs"][0]["kind"] == "intake" and page["jobs"][0]["state"] == "failed"
    scene.git("update-ref", f"refs/pull/{NUMBER}/head", good)
    scene.announce(good, title="edited")
    scene.work_off()
    assert scene.page()["outcome"] == "passed"


def test_a_closed_pull_request_without_refs_is_left_as_it_is(scene: Scene) -> None:
    scene.git("update-ref", "-d", f"refs/pull/{NUMBER}/head")
    scene.announce(scene.upstream.heads[NUMBER], state="closed")
    scene.exhaust()
    page = scene.page()
    assert (page["outcome"], page["verdict"], page["jobs"]) == ("pending", None, [])


def test_an_unreachable_remote_is_an_error_and_the_timer_looks_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = scene.upstream.path.with_suffix(".away")
    shutil.move(scene.upstream.path, away)
    head = scene.upstream.heads[NUMBER]
    scene.announce(head)
    scene.exhaust()
    page = scene.page()
    assert (page["outcome"], page["head_sha"], scene.finding()["code"]) == ("error", head, "GIT_FETCH")
    assert "tried again" in scene.finding()["message"]
    assert {row["publisher"] for row in page["published"]} == {"log", "page"}
    shutil.move(away, scene.upstream.path)
    scene.service.reconcile()
    scene.work_off()
    assert scene.page()["outcome"] == "error", "not looked at again before the pause is over"
    monkeypatch.setattr(scene.service.ctx.store, "_now", lambda: datetime.now(UTC) + timedelta(hours=1))
    scene.service.reconcile()
    scene.work_off()
    assert scene.page()["outcome"] == "passed"


def test_a_verdict_stays_while_its_head_stays_and_the_remote_is_away(scene: Scene) -> None:
    head = scene.upstream.heads[NUMBER]
    scene.announce(head)
    scene.work_off()
    before = scene.page()["verdict"]
    shutil.move(scene.upstream.path, scene.upstream.path.with_suffix(".away"))
    scene.announce(head, title="edited")
    scene.exhaust()
    page = scene.page()
    assert (page["outcome"], page["verdict"]) == ("passed", before)
    assert [(job["kind"], job["state"]) for job in page["jobs"]] == [("intake", "failed")]
    scene.announce("2" * 40)  # for a head that nobody has seen the old verdict says nothing
    scene.exhaust()
    assert (scene.page()["outcome"], scene.page()["head_sha"]) == ("error", "2" * 40)


def test_a_head_that_git_does_not_have_yet_is_looked_for_again(scene: Scene) -> None:
    tree = scene.git("rev-parse", f"{scene.upstream.base_sha}^{{tree}}")
    late = scene.commit(tree, ref="refs/heads/unseen")
    scene.announce(late)
    scene.work_off()
    with scene.service.ctx.store.read() as uow:
        job = uow.job_named(JobKind.INTAKE, f"{delivery.REPOSITORY_ID}:{NUMBER}")
        assert job is not None and job.state.value == "queued"
        assert timedelta(seconds=30) < job.run_after - uow.now <= LOOK_AGAIN
    scene.git("update-ref", f"refs/pull/{NUMBER}/head", late)
    scene.exhaust()
    assert scene.page()["head_sha"] == late
    scene.announce(scene.upstream.heads[NUMBER])  # a head that was seen before: the event is late, git is right
    scene.work_off()
    with scene.service.ctx.store.read() as uow:
        seen = uow.head_was_seen(delivery.REPOSITORY_ID, scene.upstream.heads[NUMBER])
    assert scene.page()["head_sha"] == late and seen


def test_many_deliveries_that_end_in_one_look_are_all_done(scene: Scene) -> None:
    for head in ("1" * 40, "2" * 40, scene.upstream.heads[NUMBER]):
        scene.announce(head)
    with scene.service.ctx.store.read() as uow:
        assert [row.done_at for row in uow.connection.execute(select(deliveries))] == [None] * 3
    scene.work_off()
    with scene.service.ctx.store.read() as uow:
        kept = uow.connection.execute(select(deliveries)).all()
    assert len(kept) == 3 and all(row.done_at is not None for row in kept)
