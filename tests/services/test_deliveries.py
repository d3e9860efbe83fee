"""Deliveries that come at the same time, on each database: each is counted, none is lost, none is done twice."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select

from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.jobs import JobKind
from gatekeeper.github.tenants import EVERYWHERE, make_keyring
from gatekeeper.services.deliveries import Delivery, OverQuota, Quotas, take
from gatekeeper.store import tables
from gatekeeper.store.unit_of_work import Store
from tests.conftest import TestClock
from tests.web.conftest import pull_request

KEYRING = make_keyring((b"s" * 40,))
THREADS = 16


def send(store: Store, quotas: Quotas, *, number: int = 7, guid: str | None = None, repository: int = 99) -> str:
    """Take one delivery; return its status, or the code of its refusal."""
    name = f"demo/repo-{repository}"
    body = json.dumps(pull_request(number, repository={"id": repository, "full_name": name})).encode()
    delivery = Delivery(event="pull_request", guid=guid or str(uuid4()), hook_id=1, signature=b"")
    ctx: Any = SimpleNamespace(store=store, coalesce=timedelta(0))
    try:
        return take(ctx, KEYRING, quotas, delivery, body, frozenset({EVERYWHERE}))["status"]
    except OverQuota as refused:
        assert refused.retry_after >= 1
        return refused.code


def at_once(store: Store, quotas: Quotas, arguments: list[dict[str, Any]]) -> Counter[str]:
    """Take many deliveries from many threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return Counter(pool.map(lambda one: send(store, quotas, **one), arguments))


def rows(store: Store, table: Any) -> int:
    """Count the rows of a table."""
    with store.read() as uow:
        return uow.connection.scalar(select(func.count()).select_from(table)) or 0


def test_a_quota_is_exact_however_many_come_at_once(store: Store) -> None:
    quotas = Quotas(repository_deliveries=5)
    asked = [{"number": number, "repository": repository} for number in range(1, 13) for repository in (99, 100)]
    assert at_once(store, quotas, asked) == {"accepted": 10, "HOOK_QUOTA": 14}
    assert (rows(store, tables.deliveries), rows(store, tables.jobs), rows(store, tables.pulls)) == (10, 10, 10)


def test_places_to_wait_are_exact_too(store: Store) -> None:
    assert at_once(store, Quotas(repository_intakes=4), [{"number": number} for number in range(1, 17)]) == {
        "accepted": 4, "HOOK_QUOTA": 12,
    }  # fmt: skip
    assert at_once(store, Quotas(author_intakes=6), [{"number": number} for number in range(20, 36)])["accepted"] == 2


def test_one_delivery_sent_many_times_at_once_is_one(store: Store) -> None:
    guid = str(uuid4())
    assert at_once(store, Quotas(), [{"guid": guid}] * 24) == {"accepted": 24}
    assert (rows(store, tables.deliveries), rows(store, tables.jobs)) == (1, 1)
    with store.read() as uow:
        kept, job = uow.delivery(1, guid), uow.job_named(JobKind.INTAKE, "99:7")
    assert kept is not None and kept.times == 24 and job is not None and job.asked == 24


def test_after_the_window_there_is_room_again(store: Store, clock: TestClock) -> None:
    quotas = Quotas(repository_deliveries=1)
    assert [send(store, quotas), send(store, quotas)] == ["accepted", "HOOK_QUOTA"]
    clock.move(seconds=60)
    assert send(store, quotas) == "accepted"


def test_what_is_refused_leaves_no_row_at_all(store: Store) -> None:
    delivery = Delivery(event="pull_request", guid=str(uuid4()), hook_id=1, signature=b"")
    ctx: Any = SimpleNamespace(store=store, coalesce=timedelta(0))
    with pytest.raises(Rejected, match="HOOK_REPO"):
        take(ctx, make_keyring((), {"a/b": (b"s" * 40,)}), Quotas(), delivery, body(), frozenset({"a/b"}))
    assert [rows(store, table) for table in tables.METADATA.sorted_tables] == [0] * len(tables.METADATA.sorted_tables)


def body() -> bytes:
    """Return an honest body."""
    return json.dumps(pull_request()).encode()
