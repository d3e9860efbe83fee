"""The whole way with an App: a signed webhook, git, the policies, and checks on GitHub, over HTTP to the in-memory GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from gatekeeper import bootstrap
from gatekeeper.cli.serve import web_app
from gatekeeper.config import Settings
from gatekeeper.demo import delivery
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.upstream import Upstream, build
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.jobs import JobKind
from gatekeeper.git import plumbing
from gatekeeper.github.pace import Limits
from gatekeeper.github.recorded import RecordedForge
from gatekeeper.publishers.checks import VERDICT_NAME
from gatekeeper.services import publish
from tests.github.sample_app import keys
from tests.github.serving import served
from tests.github.world import CLIENT_ID, Pull, Repository, World

SECRET = "s" * 40
KINDS = [JobKind.INTAKE, JobKind.EVALUATE, JobKind.PUBLISH]
FINE = {"docs/a.md": b"fine\n"}


@dataclass
class Scene:
    """A service with an App, an upstream, and GitHub."""

    service: bootstrap.Service
    upstream: Upstream
    client: TestClient
    world: World
    repository: Repository

    def event(self, number: int = 1, **changes: Any) -> None:
        """Deliver what a webhook would say; it is only a hint."""
        content = delivery.payload(number, "what the webhook says", (7, "mallory"), "f" * 40, self.upstream.base_sha)
        content["pull_request"] |= changes
        body = json.dumps(content).encode()
        headers = {
            "Content-Type": "application/json", "X-GitHub-Event": "pull_request", "X-GitHub-Delivery": str(uuid4()),
            "X-Hub-Signature-256": delivery.sign(SECRET, body),
        }  # fmt: skip
        assert self.client.post("/webhooks/github", content=body, headers=headers).status_code == 202

    def push(self, number: int, changes: dict[str, bytes]) -> str:
        """Move a pull request's head to a commit with these files on the base. Returns its id."""
        entries = []
        for path, data in changes.items():
            blob = plumbing.run(self.upstream.path, "hash-object", "-w", "--stdin", stdin=data).text
            entries.append(f"100644 blob {blob}\t{path}")
        tree = plumbing.run(self.upstream.path, "mktree", stdin="\n".join(entries).encode()).text
        body = f"tree {tree}\nparent {self.upstream.base_sha}\nauthor A <a@b.c> 1790000000 +0000\n"
        body += "committer A <a@b.c> 1790000000 +0000\n\nchange\n"
        head = plumbing.run(
            self.upstream.path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=body.encode()
        ).text
        plumbing.run(self.upstream.path, "update-ref", f"refs/pull/{number}/head", head)
        self.repository.commits.add(head)
        self.repository.pulls[number] = Pull(head)
        return head

    def work_off(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run what is due, without races and probes, until nothing is left or ``until`` holds."""
        for _ in range(60):
            with self.service.ctx.store.read() as uow:
                due = uow.due_jobs(20, KINDS)
            if not due:
                return
            for job_id in due:
                self.service.run_job(job_id)
                if until():
                    return
        raise AssertionError("the jobs never end")

    def seen(self, head: str) -> dict[str, str]:
        """What a person reads in the list of checks of a commit."""
        shown = self.world.shown(head)
        return {name.removeprefix("gatekeeper/"): run.get("conclusion") or run["status"] for name, run in shown.items()}

    def job(self, number: int = 1) -> Any:
        with self.service.ctx.store.read() as uow:
            return uow.job_named(JobKind.PUBLISH, f"checks:{delivery.REPOSITORY_ID}:{number}")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    place = tmp_path / "remote" / delivery.OWNER / f"{delivery.NAME}.git"
    place.parent.mkdir(parents=True)
    upstream = build(place, {1: ("A change", FINE), 2: ("Another", sample_pulls()[1].changes)})
    private, public = keys()
    world = World(public)
    repository = world.repository(delivery.REPOSITORY_ID, delivery.REPOSITORY)
    repository.commits |= {upstream.base_sha, *upstream.heads.values()}
    repository.pulls |= {number: Pull(head) for number, head in upstream.heads.items()}
    key = tmp_path / "app.pem"
    key.write_text(private)
    with served(world) as url:
        settings = Settings(
            database_url=f"sqlite:///{tmp_path / 'gatekeeper.db'}",
            data_dir=tmp_path / "data",
            webhook_secret=SecretStr(SECRET),
            git_base_url=f"file://{tmp_path / 'remote'}",
            policy_set="demo",
            github_app=CLIENT_ID,
            github_private_key_file=key,
            github_api_url=url,
        )
        service = bootstrap.build(settings)
        assert service.github is not None
        service.github._limits = Limits(between_writes=0)  # the second between two writes is looked at in test_pace.py
        yield Scene(service, upstream, TestClient(web_app(service), base_url="http://127.0.0.1"), world, repository)
        service.close()


def test_from_a_webhook_to_five_checks_in_six_writes(scene: Scene) -> None:
    head = scene.upstream.heads[1]
    scene.event()
    scene.work_off(until=lambda: bool(scene.world.runs))
    assert scene.seen(head) == {"verdict": "in_progress"}, "the first thing that is said"
    scene.work_off()
    assert scene.seen(head) == dict.fromkeys(
        ("isolation", "scope", "benchmarks", "contributor-log", "verdict"), "success"
    )
    assert len(scene.world.writes()) == 6
    assert len(scene.world.requests) <= 13, "3 for the identity, 4 reads, 6 writes"
    page = scene.client.get(f"/api/v1/pulls/{delivery.REPOSITORY}/1").json()
    assert (page["title"], page["author"]["login"]) == ("a change", "ada"), (
        "asked of GitHub, not taken from the webhook"
    )
    scene.event()
    scene.work_off()
    assert len(scene.world.writes()) == 6, "the same again says nothing new"


def test_a_failure_stands_beside_its_line(scene: Scene) -> None:
    scene.event(2)
    scene.work_off()
    runs = scene.world.shown(scene.upstream.heads[2])
    assert runs[VERDICT_NAME]["conclusion"] == runs["gatekeeper/isolation"]["conclusion"] == "failure"
    beside = runs["gatekeeper/isolation"]["annotations"]
    assert [(each["path"], each["annotation_level"], each["title"]) for each in beside if each["annotation_level"] == "failure"] == [
        ("vllm/core/scheduler.py", "failure", "ISO_PATH_OUTSIDE (isolation)")
    ]  # fmt: skip


def test_a_newer_push_finishes_the_older_head_and_old_work_does_not_come_back(scene: Scene) -> None:
    old = scene.upstream.heads[1]
    scene.event()
    scene.work_off(until=lambda: bool(scene.world.runs))
    new = scene.push(1, {"b.md": b"newer\n"})
    scene.event()
    scene.work_off()
    assert scene.seen(old) == {"verdict": "cancelled"} and scene.seen(new)["verdict"] in ("success", "failure")
    before = len(scene.world.writes())
    for _ in range(2):
        scene.event()
        scene.work_off()
    assert len(scene.world.writes()) == before and scene.seen(old) == {"verdict": "cancelled"}


def test_a_head_that_comes_back_is_judged_again(scene: Scene) -> None:
    first = scene.upstream.heads[1]
    scene.event()
    scene.work_off(until=lambda: bool(scene.world.runs))
    scene.push(1, {"b.md": b"newer\n"})
    scene.event()
    scene.work_off()
    scene.repository.pulls[1] = Pull(first)
    plumbing.run(scene.upstream.path, "update-ref", "refs/pull/1/head", first)
    scene.event()
    scene.work_off()
    assert scene.seen(first)["verdict"] == "success"


def test_a_closed_pull_request_is_not_left_unfinished(scene: Scene) -> None:
    head = scene.upstream.heads[1]
    scene.event()
    scene.work_off(until=lambda: bool(scene.world.runs))
    scene.repository.pulls[1].state = "closed"
    scene.event(state="closed")
    scene.work_off()
    assert scene.seen(head)["verdict"] not in ("in_progress", "queued")


def test_a_head_that_cannot_be_read_ends_its_check(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    head = scene.upstream.heads[1]
    scene.event(head={"sha": head})
    monkeypatch.setattr("gatekeeper.services.jobs.pause", lambda _: timedelta(0))
    monkeypatch.setattr("gatekeeper.services.intake._look", _breaks)
    scene.work_off()
    assert scene.seen(head)["verdict"] == "failure"
    assert scene.world.shown(head)[VERDICT_NAME]["output"]["title"] == "gatekeeper could not decide"


def _breaks(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a fault of ours")


def test_a_limit_puts_the_work_off_for_as_long_as_github_asks(scene: Scene) -> None:
    scene.event()
    scene.work_off(until=lambda: bool(scene.world.runs))
    scene.world.fail(403, on="check-runs", retry_after="600")
    scene.work_off()
    job = scene.job()
    assert job.state.value == "queued" and job.attempt == 0
    wait = (job.run_after - scene.service.ctx.clock.now()).total_seconds()
    assert 500 < wait <= 600
    assert scene.seen(scene.upstream.heads[1]) == {"verdict": "in_progress"}


def test_an_older_answer_that_came_late_is_put_right(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loses its claim while it writes has the state looked at once more."""
    scene.event()
    monkeypatch.setattr("gatekeeper.store.jobs.JobReads.owns", lambda *_: False)
    scene.work_off(until=lambda: len(scene.world.runs) == 5)
    monkeypatch.undo()
    job = scene.job()
    assert job.state.value == "queued"
    scene.world.runs[max(scene.world.runs)] |= {"conclusion": "failure", "external_id": "gatekeeper1 1 late"}
    scene.work_off()
    assert set(scene.seen(scene.upstream.heads[1]).values()) == {"success"}


def test_heads_are_remembered_until_they_are_left(scene: Scene) -> None:
    store, where = scene.service.ctx.store, publish.RepositoryRef(id=9, full_name="a/b")
    for digit in "1232":
        publish.announce(store, "checks", where, 1, digit * 40, "main")
    with store.read() as uow:
        job = uow.job_named(JobKind.PUBLISH, "checks:9:1")
    assert job is not None
    assert job.payload == {"head": "2" * 40, "base_ref": "main", "left": f"{'1' * 40} {'3' * 40}"}


def test_the_quota_can_be_read(scene: Scene) -> None:
    scene.event()
    scene.work_off()
    assert scene.service.github is not None
    told = scene.service.github.meter.read()
    assert told["8"]["writes"] == 6 and told["8"]["remaining"] is not None


def test_without_an_app_everything_is_as_before(tmp_path: Path) -> None:
    service = bootstrap.build(Settings(database_url=f"sqlite:///{tmp_path / 'a.db'}", data_dir=tmp_path / "data"))
    assert isinstance(service.ctx.forge, RecordedForge) and service.github is None
    assert [each.name for each in service.ctx.publishers] == ["log", "page"]
    service.close()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"github_app": CLIENT_ID}, "CONFIG_GITHUB_PRIVATE_KEY"),
        (
            {"github_app": CLIENT_ID, "github_private_key": "x", "github_private_key_file": "y"},
            "CONFIG_GITHUB_PRIVATE_KEY",
        ),
        ({"github_app": CLIENT_ID, "github_private_key": "hush"}, "CONFIG_GITHUB_PRIVATE_KEY"),
        ({"github_app": CLIENT_ID, "github_private_key_file": "/no/such/file"}, "CONFIG_GITHUB_PRIVATE_KEY_FILE"),
        ({"github_private_key": "x"}, "CONFIG_GITHUB_APP"),
    ],
)
def test_settings_that_do_not_fit_stop_the_start(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        bootstrap.github_app(Settings(**settings))
    assert caught.value.code == code and "hush" not in str(caught.value)


def test_a_pull_request_onto_another_base_is_not_shown_the_old_verdict(scene: Scene) -> None:
    head = scene.upstream.heads[1]
    scene.event()
    scene.work_off()
    assert scene.seen(head)["verdict"] == "success"
    where = publish.RepositoryRef(id=delivery.REPOSITORY_ID, full_name=delivery.REPOSITORY)
    publish.announce(scene.service.ctx.store, "checks", where, 1, head, "release")
    scene.work_off()  # before git has been read again
    assert scene.seen(head)["verdict"] == "in_progress", "what was decided for one base says nothing about another"
    plumbing.run(scene.upstream.path, "update-ref", "refs/heads/release", scene.upstream.base_sha)
    scene.repository.pulls[1].base_ref = "release"
    scene.event()
    scene.work_off()
    assert scene.seen(head)["verdict"] == "success"


def test_one_that_is_pushed_to_and_closed_at_once_leaves_nothing_unfinished(scene: Scene) -> None:
    old = scene.upstream.heads[1]
    scene.event()
    scene.work_off(until=lambda: bool(scene.world.runs))
    new = scene.push(1, {"b.md": b"newer\n"})
    scene.repository.pulls[1].state = "closed"
    scene.event(state="closed")
    scene.work_off()
    assert scene.seen(old) == {"verdict": "cancelled"} and scene.seen(new) == {}


def test_a_key_may_stand_on_one_line(tmp_path: Path) -> None:
    key = SecretStr(keys()[0].replace("\n", "\\n"))
    assert bootstrap.github_app(Settings(github_app=CLIENT_ID, github_private_key=key, data_dir=tmp_path)) is not None
