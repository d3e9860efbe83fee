"""The real application over a real store in a temporary SQLite file; every delivery is signed as GitHub signs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from httpx import Response
from sqlalchemy import func, select

from gatekeeper.github.signatures import sign
from gatekeeper.github.tenants import make_keyring
from gatekeeper.store import tables
from gatekeeper.store.engine import make_engine
from gatekeeper.store.unit_of_work import Store, utc_now
from gatekeeper.web.app import create_app
from gatekeeper.web.options import WebOptions
from tests.conftest import TestClock

SECRET = b"a secret that is long enough for a test"
OLD_SECRET = b"the secret that was in use before this one"


@dataclass(frozen=True)
class Holder:
    """The part of the context that the web side uses."""

    store: Store
    coalesce: timedelta = timedelta(0)


@dataclass
class Web:
    """A running application with helpers to deliver and to count."""

    client: TestClient
    store: Store
    notified: list[str] = field(default_factory=list)

    def deliver(
        self,
        event: str,
        body: dict[str, Any] | bytes,
        *,
        secret: bytes = SECRET,
        guid: str | None = None,
        signature: str | bytes | None = None,
        headers: dict[str, str] | None = None,
        without: tuple[str, ...] = (),
        more: tuple[tuple[str, str | bytes], ...] = (),
    ) -> Response:
        """Send a signed delivery; keywords say in what it differs from an honest one."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: dict[str, Any] = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/044aadd",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid or str(uuid4()),
            "X-GitHub-Hook-ID": "42",
            "X-Hub-Signature-256": sign(secret, raw) if signature is None else signature,
            **(headers or {}),
        }
        pairs = [(name, value) for name, value in sent.items() if name not in without] + list(more)
        encoded = [(_bytes(name), _bytes(value)) for name, value in pairs]
        return self.client.post("/webhooks/github", content=raw, headers=encoded)

    def count(self, table: Any) -> int:
        """Return the number of rows in a table."""
        with self.store.read() as uow:
            return uow.connection.scalar(select(func.count()).select_from(table)) or 0

    def nothing_happened(self) -> bool:
        """Whether no delivery, job or pull request was stored."""
        return not any(self.count(table) for table in (tables.deliveries, tables.jobs, tables.pulls))


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8")


@pytest.fixture
def make_web(tmp_path: Path) -> Iterator[Callable[..., Web]]:
    made: list[Store] = []

    def make(
        *,
        coalesce: timedelta = timedelta(0),
        webhook_secrets: tuple[bytes, ...] = (SECRET,),
        scoped_secrets: dict[str, tuple[bytes, ...]] | None = None,
        allowed_repositories: frozenset[str] = frozenset(),
        allowed_installations: frozenset[int] = frozenset(),
        clock: TestClock | None = None,
        **options: Any,
    ) -> Web:
        keyring = make_keyring(
            webhook_secrets, scoped_secrets, repositories=allowed_repositories, installations=allowed_installations
        )
        engine = make_engine(f"sqlite:///{tmp_path}/web-{len(made)}.db")
        tables.METADATA.create_all(engine)
        notified: list[str] = []
        store = Store(engine, notified.extend, clock.now if clock else utc_now)
        made.append(store)
        settings = WebOptions(**{"keyring": keyring, "hosts": ("testserver",), "documentation": True, **options})
        app = create_app(Holder(store, coalesce), settings)
        return Web(TestClient(app, raise_server_exceptions=False), store, notified)

    yield make
    for store in made:
        store.close()


@pytest.fixture
def web(make_web: Callable[..., Web]) -> Web:
    return make_web()


def pull_request(number: int = 7, **changes: Any) -> dict[str, Any]:
    """Return the payload of an honest ``pull_request`` event; keywords replace fields of ``pull_request`` or the top."""
    pull: dict[str, Any] = {
        "head": {"sha": "1" * 40},
        "base": {"ref": "main"},
        "user": {"id": 5, "login": "ada"},
        "title": "Specialised decode",
        "draft": False,
        "state": "open",
    }
    top: dict[str, Any] = {
        "action": "synchronize",
        "number": number,
        "pull_request": pull,
        "repository": {"id": 99, "full_name": "demo/vllm"},
        "installation": {"id": 3},
    }
    for name, value in changes.items():
        (pull if name in pull else top)[name] = value
    return top


@pytest.fixture
def payload() -> Callable[..., dict[str, Any]]:
    return pull_request
