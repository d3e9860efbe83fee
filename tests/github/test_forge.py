"""What a pull request is now: forks, drafts, closed ones, accounts that are gone, names that moved on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.errors import Conflict, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.github.app import GithubApp
from gatekeeper.github.forge import GithubForge
from tests.github.sample_app import HEAD, REPOSITORY, Clock, installed
from tests.github.world import Pull, World

Sides = tuple[World, GithubApp, Clock]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    with installed(tmp_path) as made:
        yield made


def test_an_open_pull_request(sides: Sides) -> None:
    world, app, _ = sides
    world.repositories[7].pulls[1] = Pull(HEAD, "Faster\x00 decode \ud800", base_ref="release/1")
    seen: list[tuple[Any, ...]] = []
    facts = GithubForge(app, ["ada"], lambda *told: seen.append(told)).pull(REPOSITORY, 1)
    assert (facts.number, facts.title, facts.base_ref) == (1, "Faster\ufffd decode \ufffd", "release/1")
    assert (facts.author.login, facts.author.trusted, facts.open, facts.draft) == ("ada", True, True, False)
    assert seen == [(REPOSITORY, 1, HEAD, "release/1")]


@pytest.mark.parametrize(
    ("pull", "expected"),
    [
        (Pull(HEAD, draft=True), {"draft": True, "open": True}),
        (Pull(HEAD, state="closed"), {"draft": False, "open": False}),
        (Pull(HEAD, fork=True), {"open": True}),
        (Pull(HEAD, fork_deleted=True), {"open": True}),
    ],
    ids=["draft", "closed", "fork", "deleted fork"],
)
def test_kinds_of_pull_requests(sides: Sides, pull: Pull, expected: dict[str, bool]) -> None:
    world, app, _ = sides
    world.repositories[7].pulls[1] = pull
    seen: list[int] = []
    facts = GithubForge(app, seen=lambda _, number, *rest: seen.append(number)).pull(REPOSITORY, 1)
    assert {name: getattr(facts, name) for name in expected} == expected
    assert seen == ([1] if pull.state == "open" else []), "a closed one is not announced"
    assert not facts.author.trusted


def test_an_account_that_was_deleted_is_nobody(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    world, app, _ = sides
    world.repositories[7].pulls[1] = Pull(HEAD)
    monkeypatch.setattr("tests.github.shapes.user", lambda *_: None)
    author = GithubForge(app, ["ada"]).pull(REPOSITORY, 1).author
    assert (author.id, author.login, author.trusted) == (0, "ghost", False)


def test_what_is_not_there_is_a_conflict(sides: Sides) -> None:
    _, app, _ = sides
    with pytest.raises(Conflict) as caught:
        GithubForge(app).pull(REPOSITORY, 99)
    assert (caught.value.code, caught.value.found) == ("PULL_UNKNOWN", "acme/kernels#99")


def test_a_pull_request_of_another_repository_is_not_taken_for_ours(sides: Sides) -> None:
    world, app, _ = sides
    world.repositories[7].pulls[1] = Pull(HEAD)
    forge = GithubForge(app)
    forge.pull(REPOSITORY, 1)
    world.fail(200, on="pulls/1", body={
        "number": 1, "title": "t", "state": "open", "user": None, "head": {"sha": HEAD},
        "base": {"ref": "main", "repo": {"id": 8}},
    })  # fmt: skip
    with pytest.raises(Conflict, match="another repository has that name"):
        forge.pull(REPOSITORY, 1)


def test_an_answer_of_another_form_is_tried_again(sides: Sides) -> None:
    world, app, _ = sides
    world.fail(200, on="pulls/1", body={"number": "1"})
    with pytest.raises(Retryable, match="GITHUB_ANSWER"):
        GithubForge(app).pull(REPOSITORY, 1)


def test_a_repository_without_the_app_is_a_conflict(sides: Sides) -> None:
    _, app, _ = sides
    with pytest.raises(Conflict, match="GITHUB_NOT_INSTALLED"):
        GithubForge(app).pull(RepositoryRef(id=99, full_name="else/where"), 1)


def test_a_second_look_is_free_where_nothing_changed(sides: Sides) -> None:
    world, app, _ = sides
    world.repositories[7].pulls[1] = Pull(HEAD)
    forge = GithubForge(app)
    forge.pull(REPOSITORY, 1)
    left = world.remaining
    assert forge.pull(REPOSITORY, 1).open and world.remaining == left
