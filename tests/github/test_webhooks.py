"""Payloads to events: what is read, what is left alone, and what becomes of an account that is gone."""

from __future__ import annotations

import pytest

from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.events import PullRequestChanged
from gatekeeper.github.payloads import MAXIMUM_DEPTH, parse_object
from gatekeeper.github.webhooks import IGNORED_EVENTS, Ignored, read_event

PULL = {
    "action": "opened",
    "number": 3,
    "pull_request": {
        "head": {"sha": "a" * 40},
        "base": {"ref": "main"},
        "user": None,
        "title": "t",
        "draft": True,
        "state": "closed",
    },
    "repository": {"id": 1, "full_name": "o/r", "clone_url": "https://elsewhere.example/x.git"},
}


def test_a_deleted_account_is_a_ghost() -> None:
    event = read_event("pull_request", PULL)
    assert isinstance(event, PullRequestChanged)
    assert (event.author_login, event.author_id, event.draft, event.open) == ("ghost", 0, True, False)
    assert event.installation_id is None and "elsewhere" not in event.model_dump_json()


def test_ignored_events_have_reasons_and_are_not_typed_ones() -> None:
    assert all(reason.strip() for reason in IGNORED_EVENTS.values())
    assert not set(IGNORED_EVENTS) & {"pull_request", "push", "ping"}
    assert read_event("star", {}) == Ignored(IGNORED_EVENTS["star"])
    assert read_event("no_such_event", {}) == Ignored("an event that is not known here", known=False)


def test_an_error_names_the_field_and_not_its_value() -> None:
    with pytest.raises(Rejected) as refused:
        read_event("pull_request", {**PULL, "number": "attacker's text"})
    assert refused.value.found == "field number" and "attacker" not in str(refused.value)


def test_depth_is_counted_exactly() -> None:
    levels = MAXIMUM_DEPTH
    assert parse_object(b'{"a":' * levels + b"1" + b"}" * levels)
    with pytest.raises(Rejected):
        parse_object(b'{"a":' * (levels + 1) + b"1" + b"}" * (levels + 1))
