"""Every request that is sent, and every answer of our in-memory GitHub, is valid by GitHub's own description (served by Prism)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.context import Judged
from gatekeeper.domain.errors import Retryable
from gatekeeper.domain.policy import Check, Effect, Finding, Outcome
from gatekeeper.domain.verdict import Verdict
from gatekeeper.github import app, forge, runs
from gatekeeper.github.app import PERMISSIONS, GithubApp, Identity
from gatekeeper.github.faults import Refused
from gatekeeper.github.forge import GithubForge
from gatekeeper.github.pace import Limits
from gatekeeper.github.runs import CheckRuns
from gatekeeper.publishers.checks import ChecksPublisher
from tests.github import shapes
from tests.github.sample_app import BASE, HEAD, REPOSITORY, Clock, keys
from tests.github.serving import served
from tests.github.world import CLIENT_ID, OTHER_APP, Pull, World
from tests.node.description import DESCRIPTION, USED, prism
from tests.publishers.test_checks import APPROVAL, CONFIGURATION, findings, result, shot, verdict

PREFIX = f"/repos/{REPOSITORY.full_name}"


@dataclass
class Checked:
    """Both sides with Prism between them."""

    world: World
    app: GithubApp
    url: str
    log: Path

    def refusals(self) -> list[str]:
        """What Prism found wrong, as its log tells it; that the description names no 304 or 401 is not counted."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "iolation" in line and "Unable to match the returned status code" not in line]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    folder = tmp_path_factory.mktemp("prism")
    private, public = keys()
    clock = Clock()
    world = World(public, clock.now)
    repository = world.repository(REPOSITORY.id, REPOSITORY.full_name)
    repository.commits |= {HEAD, BASE, *(digit * 40 for digit in "0123456789")}
    with served(world) as upstream, prism(folder, upstream=upstream) as url:
        made = GithubApp(
            Identity(CLIENT_ID, private, url), folder, limits=Limits(between_writes=0), now=clock.now, sleep=clock.sleep
        )
        yield Checked(world, made, url, folder / "prism.log")


def publisher(made: GithubApp) -> ChecksPublisher:
    return ChecksPublisher(
        lambda repository: CheckRuns(made, repository),
        lambda name, number: f"https://gate.example/pulls/{name}/{number}",
    )


def test_identity_and_pull_requests_of_every_kind(checked: Checked) -> None:
    assert checked.app.number() == 4242
    asked = GithubForge(checked.app)
    kinds = [
        Pull(HEAD),
        Pull(HEAD, draft=True),
        Pull(HEAD, state="closed"),
        Pull(HEAD, fork=True),
    ]  # a deleted fork's null is not here: GitHub sends it, its description forbids it
    for number, kind in enumerate(kinds, 1):
        checked.world.repositories[7].pulls[number] = kind
        facts = asked.pull(REPOSITORY, number)
        assert (facts.number, facts.draft, facts.open) == (number, kind.draft, kind.state == "open")
        assert asked.pull(REPOSITORY, number) == facts, "answered with 304"
    assert checked.refusals() == []


SHOWN: dict[str, list[Verdict]] = {
    "0": [verdict()],
    "1": [verdict(result(Check.ISOLATION, Outcome.FAILED, findings=findings(130)))],
    "2": [verdict(result(Check.BENCHMARKS, Outcome.PENDING, APPROVAL)), verdict()],
    "3": [verdict(result(Check.SCOPE, Outcome.ERROR)), verdict()],
    "4": [verdict(result(Check.SCOPE, Outcome.FAILED), mode="warn")],
    "5": [verdict(mode="shadow")],
    "6": [
        verdict(
            result(
                Check.SCOPE,
                Outcome.FAILED,
                findings=[
                    Finding(code="TX", message="\u2603\x00`|" * 9000, path="a.py", line=10**12),
                    Finding(code="TY", message="", path="caf\\xc3\\xa9", effect=Effect.NOTE),
                ],
            )
        )
    ],
}


@pytest.mark.parametrize("head", SHOWN)
def test_checks_of_every_kind(checked: Checked, head: str) -> None:
    shows, sha = publisher(checked.app), head * 40
    shows.announce(REPOSITORY, 1, sha, "main")
    for each in SHOWN[head]:
        shows.show(REPOSITORY, sha, [Judged(shot(1), "d", each)])
        shows.show(REPOSITORY, sha, [Judged(shot(1), "d", each)])
    shown = checked.world.shown(sha)
    assert shown["gatekeeper/verdict"]["status"] == "completed"
    assert not [run for run in shown.values() if run["external_id"].endswith("bare")], "a full text was refused"
    assert checked.refusals() == []


def test_what_is_left_closed_or_foreign(checked: Checked) -> None:
    shows, sha = publisher(checked.app), "7" * 40
    files = checked.world.repositories[7].files
    files["main", ".github/gatekeeper.toml"] = CONFIGURATION.format(mode="warn").encode()
    shows.announce(REPOSITORY, 1, sha, "main")
    foreign = dict(checked.world.shown(sha)["gatekeeper/verdict"], id=9000, app=OTHER_APP)
    checked.world.runs[9000] = foreign
    shows.leave(REPOSITORY, 1, sha, HEAD)
    assert checked.world.shown(sha)["gatekeeper/verdict"]["conclusion"] == "cancelled"
    shows.announce(REPOSITORY, 2, "8" * 40, "main")
    shows.show(REPOSITORY, "8" * 40, [Judged(shot(2, closed=True), "d", verdict(result(Check.SCOPE, Outcome.PENDING)))])
    assert checked.world.shown("8" * 40)["gatekeeper/verdict"]["conclusion"] == "cancelled"
    assert checked.refusals() == []


def test_every_path_of_ours_was_asked_for(checked: Checked) -> None:
    """A list that is longer than what is used would prove less than it says."""
    asked = {(each.verb, each.path) for each in checked.world.requests}
    shapes_of = [path.replace("{owner}/{repo}", REPOSITORY.full_name).split("{")[0] for path in USED]
    for begin in shapes_of:
        assert any(path.startswith(begin) for _, path in asked), begin
    assert {verb for verb, _ in asked} == {"GET", "POST", "PATCH"}


def test_what_is_asked_for_in_a_token_and_granted_by_the_manifest_are_permissions_that_github_knows() -> None:
    known = json.loads(DESCRIPTION.read_text(encoding="utf-8"))["components"]["schemas"]["app-permissions"][
        "properties"
    ]
    page = (DESCRIPTION.parents[6] / "docs" / "install.md").read_text(encoding="utf-8")
    manifest = json.loads(page.split("```json\n")[1].split("```")[0])
    assert manifest["default_permissions"] == PERMISSIONS
    for name, level in PERMISSIONS.items():
        assert level in known[name]["enum"]
    assert set(manifest["default_events"]) == {"pull_request", "push"}, "what webhooks.py acts on"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "gatekeeper/verdict"},
        {"name": "x", "head_sha": HEAD, "status": "finished"},
        {"name": "x", "head_sha": HEAD, "output": {"title": "t"}},
        {"name": "x", "head_sha": HEAD, "output": {"title": "t", "summary": "s" * 65_536}},
    ],
    ids=["no head", "no such status", "no summary", "too long"],
)
def test_prism_refuses_what_github_would(checked: Checked, body: dict[str, Any]) -> None:
    before = len(checked.world.requests)
    with pytest.raises(Refused):
        checked.app.client(REPOSITORY).send("POST", f"{PREFIX}/check-runs", body)
    assert len(checked.world.requests) == before, "it never arrived"


def test_an_answer_of_the_world_that_github_would_not_give_is_noticed(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = shapes.pull
    monkeypatch.setattr(shapes, "pull", lambda *args, **more: right(*args, **more) | {"state": "ajar"})
    checked.world.repositories[7].pulls[1] = Pull(HEAD)
    with pytest.raises(Retryable):
        GithubForge(checked.app).pull(REPOSITORY, 1)


def examples(path: str, verb: str, status: str) -> list[Any]:
    """Return GitHub's example answers of an operation."""
    description = json.loads(DESCRIPTION.read_text(encoding="utf-8"))
    content = description["paths"][path][verb]["responses"][status]["content"]["application/json"]
    named = [each.get("$ref", "").rsplit("/", 1)[-1] for each in content["examples"].values()]
    return [description["components"]["examples"][name]["value"] for name in named]


def test_githubs_own_examples_are_read() -> None:
    (told,) = examples("/repos/{owner}/{repo}/pulls/{pull_number}", "get", "200")
    assert forge._read(told, "x").head.sha == told["head"]["sha"]
    for verb, path, status in (("post", USED[2], "201"), ("patch", USED[3], "200")):
        for told in examples(path, verb, status):
            run = runs._run(told)
            assert (run.id, run.name, run.annotations) == (
                told["id"],
                told["name"],
                told["output"]["annotations_count"],
            )
    (told,) = examples(USED[4], "get", "200")
    assert [runs._run(each).name for each in told["check_runs"]] == ["mighty_readme"]
    (told,) = examples(USED[1], "post", "201")
    assert app._moment(told["expires_at"]) is not None and told["token"].startswith("ghs_")
