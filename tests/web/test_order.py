"""Events come late, twice and in any order: an older one moves neither state nor head back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatekeeper.domain.jobs import JobKind
from tests.conftest import TestClock
from tests.web import seed

Payload = Callable[..., dict[str, Any]]
OLD, NEW = "1" * 40, "2" * 40
START = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def at(minute: int) -> str:
    """Return a time as GitHub writes it."""
    return (START + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%SZ")


def known(web: Any) -> Any:
    """Return the pull request's row."""
    with web.store.read() as uow:
        pull = uow.pull(99, 7)
    assert pull is not None
    return pull


def event(payload: Payload, minute: int | None, **changes: Any) -> dict[str, Any]:
    """Return a payload of that minute; without one, of a sender that names no time."""
    body = payload(**changes)
    if minute is not None:
        body["pull_request"]["updated_at"] = at(minute)
    return body


STORY = {
    "opened": (0, {"action": "opened", "state": "open", "head": {"sha": OLD}}),
    "pushed": (1, {"action": "synchronize", "state": "open", "head": {"sha": NEW}, "title": "Second"}),
    "closed": (2, {"action": "closed", "state": "closed", "head": {"sha": NEW}, "title": "Third"}),
}


@pytest.mark.parametrize("order", list(itertools.permutations(STORY)), ids="-".join)
def test_hook_stale_order(web: Any, payload: Payload, order: tuple[str, ...]) -> None:
    for name in order:
        minute, changes = STORY[name]
        answer = web.deliver("pull_request", event(payload, minute, **changes))
        assert answer.json()["status"] == "accepted"
    pull = known(web)
    assert (pull.open, pull.head_sha, pull.title) == (False, NEW, "Third")
    with web.store.read() as uow:
        job = uow.job_named(JobKind.INTAKE, "99:7")
    assert job is not None and job.asked == 3, "each of them asks for one look, and git says what is true"


def test_hook_stale_order_honest_twin(web: Any, payload: Payload) -> None:
    for minute, changes in (*STORY.values(), (3, {"action": "reopened", "state": "open", "head": {"sha": NEW}})):
        web.deliver("pull_request", event(payload, minute, **changes))
    assert (known(web).open, known(web).head_sha) == (True, NEW)
    web.deliver("pull_request", event(payload, 4, action="synchronize", head={"sha": OLD}))
    assert known(web).head_sha == OLD, "a forced push back to an older commit is a newer event"


def test_a_redelivered_event_yields_to_what_came_since(web: Any, payload: Payload) -> None:
    closed = event(payload, 2, action="closed", state="closed")
    guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    web.deliver("pull_request", closed, guid=guid)
    web.deliver("pull_request", event(payload, 2, action="reopened", state="open"))  # within the same second
    assert known(web).open
    assert web.deliver("pull_request", closed, guid=guid).json()["status"] == "accepted", "it was never finished"
    assert known(web).open, "sent again, it is not news"


def test_two_events_of_one_second_count_in_the_order_in_which_they_came(web: Any, payload: Payload) -> None:
    for state, expected in (("closed", False), ("open", True), ("closed", False)):
        web.deliver("pull_request", event(payload, 2, action="edited", state=state))
        assert known(web).open is expected


def test_an_event_without_a_time_never_beats_one_with_a_time(web: Any, payload: Payload) -> None:
    web.deliver("pull_request", event(payload, None, state="open"))
    web.deliver("pull_request", event(payload, None, state="closed"))
    assert not known(web).open, "among events without a time the last one counts"
    web.deliver("pull_request", event(payload, 1, state="closed"))
    web.deliver("pull_request", event(payload, None, state="open"))
    assert not known(web).open


def test_a_time_from_the_future_does_not_freeze_a_pull_request(make_web: Any, payload: Payload) -> None:
    clock = TestClock(START)
    web = make_web(clock=clock)
    web.deliver("pull_request", event(payload, 60 * 24 * 365, state="closed"))
    assert not known(web).open and known(web).event_at == START
    clock.move(minutes=5)
    web.deliver("pull_request", event(payload, 5, state="open"))
    assert known(web).open


def test_a_late_event_leaves_the_verdict_of_the_head_alone(web: Any, payload: Payload) -> None:
    seed.seed(web.store)
    with web.store.read() as uow:
        judged = uow.pull(99, 2)
    assert judged is not None
    head = {"sha": judged.head_sha}
    web.deliver("pull_request", event(payload, 5, number=2, head=head))
    web.deliver("pull_request", event(payload, 1, number=2, head={"sha": OLD}))
    with web.store.read() as uow:
        after = uow.pull(99, 2)
    assert after is not None and (after.head_sha, after.verdict) == (judged.head_sha, judged.verdict)
    web.deliver("pull_request", event(payload, 6, number=2, head={"sha": NEW}))
    with web.store.read() as uow:
        pushed = uow.pull(99, 2)
    assert pushed is not None and (pushed.head_sha, pushed.verdict) == (NEW, None)


@pytest.mark.parametrize(
    "value", ["yesterday", "2026-11-30T10:00:00", "2026-11-30", "9999-12-31T23:59:59-14:00", 5, "٢٠٢٦"]
)
def test_a_time_of_another_form_is_refused(web: Any, payload: Payload, value: Any) -> None:
    body = payload()
    body["pull_request"]["updated_at"] = value
    answer = web.deliver("pull_request", body)
    assert answer.status_code == 422 and "updated_at" in answer.json()["error"]["found"]
    assert web.nothing_happened()


@pytest.mark.parametrize("name", ["../..", "./vllm", "demo/..", "demo/."])
def test_a_repository_name_that_climbs_is_refused(web: Any, payload: Payload, name: str) -> None:
    answer = web.deliver("pull_request", payload(repository={"id": 99, "full_name": name}))
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "HOOK_PAYLOAD"
    assert web.nothing_happened()
    honest = payload(repository={"id": 99, "full_name": ".github/.dotted"})
    assert web.deliver("pull_request", honest).status_code == 202
