"""Deliveries, repositories, pull requests and publications."""

from __future__ import annotations

from gatekeeper.domain.events import RepositoryRef
from gatekeeper.store.unit_of_work import Store
from tests.builders import sha, snapshot, verdict
from tests.conftest import TestClock


def test_a_redelivery_is_work_until_the_first_one_was_finished(store: Store, clock: TestClock) -> None:
    for expected in (True, True):
        with store.begin() as uow:
            assert uow.record_delivery(1, "guid", "pull_request", "opened", b"{}", clock.now()) is expected
    with store.begin() as uow:
        uow.delivery_done(1, "guid", "snapshot taken")
    with store.begin() as uow:
        assert not uow.record_delivery(1, "guid", "pull_request", "opened", b"{}", clock.now())
        assert uow.record_delivery(2, "guid", "pull_request", "opened", b"{}", clock.now()), "another hook's delivery"
        kept = uow.delivery(1, "guid")
    assert kept is not None and (kept.times, kept.body, kept.note) == (3, b"{}", "snapshot taken")


def test_a_repository_keeps_its_id_through_a_rename(store: Store, clock: TestClock) -> None:
    with store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=7, full_name="old/name"), installation_id=5)
    clock.move(seconds=1)
    with store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=7, full_name="new/name"))
        uow.remember_repository(RepositoryRef(id=8, full_name="old/name"))
        seven, named = uow.repository(7), uow.repository_named("old/name")
    assert seven is not None and (seven.full_name, seven.installation_id) == ("new/name", 5)
    assert named is not None and named.id == 8


def test_open_pulls_are_listed_by_branch(store: Store) -> None:
    with store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=7, full_name="sample/upstream"))
        for number, base_ref, is_open in (
            (3, "main", True),
            (1, "main", True),
            (2, "release", True),
            (4, "main", False),
        ):
            uow.remember_pull(
                7, number, title="t" * 2000, author_id=1, author_login="ada", base_ref=base_ref, draft=False,
                open=is_open, head_sha=sha("a"),
            )  # fmt: skip
        assert [pull.number for pull in uow.open_pulls(7)] == [1, 2, 3]
        assert [pull.number for pull in uow.open_pulls(7, "main")] == [1, 3]
        assert uow.open_pulls(8) == []


def test_a_publication_is_replaced_by_the_next_one(store: Store) -> None:
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot())
        decided = uow.put_verdict(verdict(digest))
        assert uow.published("log", 7, 1) is None
        for run in (1, 2):
            uow.mark_published(
                "log", 7, 1, snapshot=digest, verdict=decided, head_sha=sha("a"), external={"check": run}
            )
        shown = uow.published("log", 7, 1)
    assert shown is not None and shown.external == {"check": 2} and shown.at == uow.now
