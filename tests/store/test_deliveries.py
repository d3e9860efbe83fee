"""Deliveries are kept long enough for every redelivery, and no longer; a snapshot yields to what was announced meanwhile."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from gatekeeper.config import Settings
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.services.jobs import Handlers
from gatekeeper.services.reconcile import KEEP_DELIVERIES, LIMIT, reconcile
from gatekeeper.store.unit_of_work import Store
from tests.builders import sha, snapshot, verdict
from tests.conftest import Notices, TestClock

NOBODY = Handlers(by_kind={}, failed=lambda ctx, claim, error: None)


def record(store: Store, guid: str, **keywords: Any) -> bool:
    """Record a delivery of hook 1 now."""
    with store.begin() as uow:
        return uow.record_delivery(1, guid, "pull_request", "opened", b"{}", uow.now, **keywords)


def test_deliveries_are_kept_for_every_redelivery_and_then_cleared(
    store: Store, clock: TestClock, notices: Notices
) -> None:
    ctx: Any = SimpleNamespace(store=store, queue=notices, clock=clock)
    record(store, "first")
    with store.begin() as uow:
        uow.delivery_done(1, "first")
    clock.move(days=8)
    record(store, "second")
    reconcile(ctx, NOBODY)
    assert not record(store, "first"), "a redelivery of last week is still known as done"
    clock.move(days=23)
    reconcile(ctx, NOBODY)
    with store.read() as uow:
        assert uow.delivery(1, "first") is None and uow.delivery(1, "second") is not None
    reconcile(ctx, NOBODY, timedelta(days=20))
    with store.read() as uow:
        assert uow.delivery(1, "second") is None


def test_only_so_many_are_cleared_at_once_oldest_first(store: Store, clock: TestClock) -> None:
    for guid in ("a", "b", "c"):
        record(store, guid)
        clock.move(seconds=1)
    with store.begin() as uow:
        assert uow.purge_deliveries(uow.now, 2) == 2
        assert [uow.delivery(1, guid) is not None for guid in "abc"] == [False, False, True]
        assert (uow.purge_deliveries(uow.now, LIMIT), uow.purge_deliveries(uow.now, LIMIT)) == (1, 0)


def test_the_setting_cannot_undercut_githubs_redelivery_window() -> None:
    assert timedelta(days=Settings().delivery_days) == KEEP_DELIVERIES
    with pytest.raises(ValidationError):
        Settings(delivery_days=7)
    assert Settings(delivery_days=8).delivery_days == 8


def test_what_came_is_counted_by_repository_and_sender(store: Store, clock: TestClock) -> None:
    start = clock.now()
    for guid, repository, sender in (("a", 7, 1), ("b", 7, 2), ("c", 8, 1), ("d", None, None)):
        record(store, guid, repository_id=repository, sender_id=sender)
        clock.move(seconds=10)
    with store.read() as uow:
        seven = uow.received(start - timedelta(seconds=1), repository_id=7)
        assert tuple(seven) == (2, 4, start)
        assert uow.received(start - timedelta(seconds=1), repository_id=7, sender_id=1).deliveries == 1
        assert uow.received(start, repository_id=7).deliveries == 1, "the span is open at its start"
        assert tuple(uow.received(clock.now(), repository_id=7)) == (0, 0, None)


def test_looks_that_were_given_up_are_found_for_open_pull_requests_only(store: Store, clock: TestClock) -> None:
    with store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=7, full_name="sample/upstream"))
        for number in (1, 2, 3):
            uow.remember_pull(
                7, number, title="t", author_id=1, author_login="ada", base_ref="main", draft=False, open=number != 2,
                head_sha=sha("a"),
            )  # fmt: skip
        ids = {number: uow.enqueue(JobKind.INTAKE, f"7:{number}") for number in (1, 2, 3)}
        for number in (1, 2):
            claim = uow.claim(ids[number], timedelta(seconds=60))
            assert claim is not None
            uow.finish(claim, JobState.FAILED, "GIT_FETCH")
        assert uow.waiting_intakes(7) == {3}
    with store.read() as uow:
        assert uow.given_up_intakes(clock.now(), 10) == []
        assert uow.given_up_intakes(clock.now() + timedelta(seconds=1), 10) == [(7, 1)]
        assert uow.pulls_of_author(7, 1, frozenset({1, 3, 9})) == 2


def announce(store: Store, head: str, *, open: bool = True) -> None:
    """Note an event about pull request 7#1."""
    with store.begin() as uow:
        uow.remember_repository(RepositoryRef(id=7, full_name="sample/upstream"))
        uow.remember_pull(
            7, 1, title=f"title of {head}", author_id=3, author_login="ada", base_ref="main", draft=False, open=open,
            head_sha=sha(head), event_at=uow.now,
        )  # fmt: skip


def test_a_pull_request_closed_while_it_is_read_stays_closed(store: Store, clock: TestClock) -> None:
    announce(store, "a")
    with store.read() as uow:
        seen = uow.pull(7, 1)
    clock.move(seconds=1)
    announce(store, "a", open=False)
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot(), seen=seen)
        uow.put_verdict(verdict(digest))
        pull = uow.pull(7, 1)
    assert pull is not None and not pull.open and pull.title == "title of a"
    assert pull.snapshot == digest and pull.verdict is not None, "the head is the one that was announced"


def test_a_head_announced_while_another_is_read_has_no_verdict(store: Store, clock: TestClock) -> None:
    announce(store, "a")
    with store.read() as uow:
        seen = uow.pull(7, 1)
    clock.move(seconds=1)
    announce(store, "f")
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot(), seen=seen)
        uow.put_verdict(verdict(digest))
        pull = uow.pull(7, 1)
    assert pull is not None and (pull.head_sha, pull.verdict, pull.outcome) == (sha("f"), None, None)


def test_what_git_says_replaces_a_hint_that_nobody_has_renewed(store: Store) -> None:
    announce(store, "f")
    with store.read() as uow:
        seen = uow.pull(7, 1)
    with store.begin() as uow:
        digest = uow.put_snapshot(snapshot(), seen=seen)
        decided = uow.put_verdict(verdict(digest))
        pull = uow.pull(7, 1)
    assert pull is not None and (pull.head_sha, pull.verdict, pull.title) == (sha("a"), decided, "change 1")
