"""A flood from one repository, one account or one author is told to wait; nobody else notices, and nothing accepted is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.services.deliveries import PENDING_PAUSE, Quotas
from gatekeeper.store import tables
from tests.conftest import TestClock

Payload = Callable[..., dict[str, Any]]
OTHER = {"repository": {"id": 100, "full_name": "demo/other"}}


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def make_small(make_web: Any, clock: TestClock) -> Callable[..., Any]:
    def make(**limits: int) -> Any:
        wide = {
            "repository_deliveries": 10_000, "sender_deliveries": 10_000, "repository_bytes": 1 << 40,
            "repository_intakes": 10_000, "author_intakes": 10_000,
        }  # fmt: skip
        return make_web(quotas=Quotas(**(wide | limits)), clock=clock)

    return make


def refused(answer: Any, what: str) -> int:
    """Assert a 429 that names what was too much; return the seconds of Retry-After."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "HOOK_QUOTA"), answer.text
    assert what in error["message"] and error["expected"].startswith("at most ") and error["found"].isdigit()
    return int(answer.headers["retry-after"])


def test_hook_flood_of_one_repository(make_small: Any, clock: TestClock, payload: Payload) -> None:
    web = make_small(repository_deliveries=5)
    taken = []
    for number in range(1, 6):
        taken.append(web.deliver("pull_request", payload(number=number)).json()["delivery"])
        clock.move(seconds=5)
    before = len(web.notified)
    assert refused(web.deliver("pull_request", payload(number=6)), "deliveries of this repository") == 35
    assert (web.count(tables.deliveries), web.count(tables.jobs), len(web.notified)) == (5, 5, before)
    with web.store.read() as uow:
        assert uow.pull(99, 6) is None
        assert all(uow.delivery(42, guid) is not None for guid in taken)
        assert all(uow.job_named(JobKind.INTAKE, f"99:{number}") is not None for number in range(1, 6))
    assert web.deliver("pull_request", payload(number=6, **OTHER)).status_code == 202, "another repository is untouched"
    clock.move(seconds=35)
    assert web.deliver("pull_request", payload(number=6)).status_code == 202, "there is room again when it was said"


def test_hook_flood_of_one_sender(make_small: Any, payload: Payload) -> None:
    web = make_small(sender_deliveries=3)
    toggling = {"action": "labeled", "sender": {"id": 66}}
    for _ in range(3):
        assert web.deliver("pull_request", payload(**toggling)).status_code == 202
    assert refused(web.deliver("pull_request", payload(**toggling)), "deliveries of this sender") == 60
    assert web.deliver("pull_request", payload(sender={"id": 67})).status_code == 202
    assert web.deliver("pull_request", payload(**toggling, **OTHER)).status_code == 202
    push = {"ref": "refs/heads/main", "after": "2" * 40, "repository": {"id": 99, "full_name": "demo/vllm"}}
    refused(web.deliver("push", push | {"sender": {"id": 66}}), "deliveries of this sender")
    assert web.deliver("push", push | {"sender": {"id": 67}}).status_code == 202


def test_hook_flood_of_bytes(make_small: Any, clock: TestClock, payload: Payload) -> None:
    web = make_small(repository_bytes=20_000)
    large = payload(filler="x" * 8_000)
    assert len(json.dumps(large)) > 8_000
    for _ in range(2):
        assert web.deliver("pull_request", large).status_code == 202
    refused(web.deliver("pull_request", large), "bytes of this repository")
    assert web.deliver("pull_request", payload()).status_code == 202, "a small one still fits"
    assert web.deliver("pull_request", payload(filler="x" * 8_000, **OTHER)).status_code == 202
    clock.move(seconds=61)
    alone = web.deliver("pull_request", payload(filler="x" * 30_000))
    assert alone.status_code == 202, "a body that is larger than the quota must get in one day"


def test_hook_flood_of_pull_requests(make_small: Any, payload: Payload) -> None:
    web = make_small(repository_intakes=4)
    for number in range(1, 5):
        assert web.deliver("pull_request", payload(number=number)).status_code == 202
    assert refused(web.deliver("pull_request", payload(number=5)), "pull requests of this repository") == PENDING_PAUSE
    for number in range(1, 5):  # whoever waits already may be pushed to: it costs no further job
        assert web.deliver("pull_request", payload(number=number, head={"sha": "3" * 40})).status_code == 202
    assert web.deliver("pull_request", payload(number=5, **OTHER)).status_code == 202
    done(web, "99:1")
    assert web.deliver("pull_request", payload(number=5)).status_code == 202


def test_hook_flood_of_one_author(make_small: Any, payload: Payload) -> None:
    web = make_small(author_intakes=2)
    ada, ben = ({"user": {"id": id, "login": login}} for id, login in ((5, "ada"), (6, "ben")))
    for number in (1, 2):
        assert web.deliver("pull_request", payload(number=number, **ada)).status_code == 202
    assert (
        refused(web.deliver("pull_request", payload(number=3, **ada)), "pull requests of this author") == PENDING_PAUSE
    )
    assert web.deliver("pull_request", payload(number=4, **ben)).status_code == 202
    assert web.deliver("pull_request", payload(number=3, **ada, **OTHER)).status_code == 202
    done(web, "99:1")
    assert web.deliver("pull_request", payload(number=3, **ada)).status_code == 202


def done(web: Any, key: str) -> None:
    """End an intake as a worker would."""
    with web.store.begin() as uow:
        job = uow.job_named(JobKind.INTAKE, key)
        claim = uow.claim(job.id, timedelta(seconds=60))
        uow.finish(claim, JobState.SUCCEEDED)


def test_a_redelivery_is_not_counted_again(make_small: Any, payload: Payload) -> None:
    web = make_small(repository_deliveries=1)
    guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    assert web.deliver("pull_request", payload(), guid=guid).status_code == 202
    refused(web.deliver("pull_request", payload()), "deliveries of this repository")
    assert web.deliver("pull_request", payload(), guid=guid).json()["status"] == "accepted"
    with web.store.begin() as uow:
        uow.delivery_done(42, guid)
    assert web.deliver("pull_request", payload(), guid=guid).json()["status"] == "duplicate"


def test_an_id_that_is_used_again_for_something_else_is_counted(make_small: Any, payload: Payload) -> None:
    web = make_small(repository_intakes=2)
    guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    for number in (1, 2):
        assert web.deliver("pull_request", payload(number=number), guid=guid).status_code == 202
    refused(web.deliver("pull_request", payload(number=3), guid=guid), "pull requests of this repository")
    assert web.count(tables.jobs) == 2


def test_a_refused_delivery_is_taken_when_it_is_sent_again(make_small: Any, clock: TestClock, payload: Payload) -> None:
    web = make_small(repository_deliveries=1)
    guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    web.deliver("pull_request", payload())
    wait = refused(web.deliver("pull_request", payload(number=8), guid=guid), "deliveries of this repository")
    clock.move(seconds=wait)
    assert web.deliver("pull_request", payload(number=8), guid=guid).json()["status"] == "accepted"


def test_the_standard_quotas_let_a_busy_day_through(make_web: Any, payload: Payload) -> None:
    web = make_web()
    for step in range(100):
        body = payload(head={"sha": f"{step:040x}"}, sender={"id": 66})
        assert web.deliver("pull_request", body).status_code == 202
    assert web.count(tables.jobs) == 1
    refusals: Iterator[int] = (web.deliver("pull_request", payload(sender={"id": 66})).status_code for _ in range(30))
    assert 429 in set(refusals)
