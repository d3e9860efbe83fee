"""GitHub's own published payloads, and signatures made by its own code, against the real application."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from gatekeeper.domain.events import BaseMoved, Ping, PullRequestAction, PullRequestChanged
from gatekeeper.domain.jobs import JobKind
from gatekeeper.github.payloads import parse_object
from gatekeeper.github.signatures import read_signature, sign, verify_signature
from gatekeeper.github.tenants import make_keyring
from gatekeeper.github.webhooks import IGNORED_EVENTS, Ignored, read_event
from gatekeeper.store import tables
from gatekeeper.store.engine import make_engine
from gatekeeper.store.unit_of_work import Store
from gatekeeper.web.app import create_app
from gatekeeper.web.options import WebOptions

HERE = Path(__file__).parent
INDEX = HERE / "node_modules" / "@octokit" / "webhooks-examples" / "api.github.com" / "index.json"
SECRET = "a secret that both sides know, long enough"
EVENTS: dict[str, list[dict[str, Any]]] = {
    item["name"]: item["examples"] for item in json.loads(INDEX.read_text(encoding="utf-8"))
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    engine = make_engine(f"sqlite:///{tmp_path}/real.db")
    tables.METADATA.create_all(engine)
    made = Store(engine, lambda _: None)
    yield made
    made.close()


@pytest.fixture
def client(store: Store) -> TestClient:
    context = SimpleNamespace(store=store, coalesce=timedelta(0))
    return TestClient(create_app(context, WebOptions(make_keyring((SECRET.encode(),)), hosts=("testserver",))))


def deliver(client: TestClient, event: str, body: bytes, signature: str) -> Any:
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": str(uuid4()),
        "X-GitHub-Hook-ID": "1",
        "X-Hub-Signature-256": signature,
    }
    return client.post("/webhooks/github", content=body, headers=headers)


def node(action: str, body: bytes, *arguments: str) -> str:
    command = ["node", str(HERE / "sign.mjs"), action, SECRET, *arguments]
    return subprocess.run(command, input=body, capture_output=True, check=True, timeout=30).stdout.decode()


def test_the_examples_are_all_there() -> None:
    assert len(EVENTS) >= 50 and len(EVENTS["pull_request"]) >= 25


def test_every_pull_request_example_is_typed() -> None:
    for example in EVENTS["pull_request"]:
        event = read_event("pull_request", parse_object(json.dumps(example).encode()))
        assert isinstance(event, PullRequestChanged)
        assert event.action.value == example["action"] and event.action is not PullRequestAction.UNKNOWN
        assert event.number == example["number"] and event.head_sha == example["pull_request"]["head"]["sha"]
        assert event.repository.model_dump() == {
            "id": example["repository"]["id"], "full_name": example["repository"]["full_name"],
        }  # fmt: skip
        pull = example["pull_request"]
        assert (event.title, event.base_ref, event.draft) == (pull["title"], pull["base"]["ref"], pull["draft"])
        assert (event.author_id, event.author_login) == (pull["user"]["id"], pull["user"]["login"])
        assert event.open is (pull["state"] == "open")
        assert event.updated_at is not None and event.updated_at.strftime("%Y-%m-%dT%H:%M:%SZ") == pull["updated_at"]
        assert event.sender_id == example["sender"]["id"]
        assert event.installation_id == example.get("installation", {}).get("id")


def test_the_examples_hold_open_and_closed_drafts_and_installations() -> None:
    events = [
        read_event("pull_request", parse_object(json.dumps(example).encode())) for example in EVENTS["pull_request"]
    ]
    typed = [event for event in events if isinstance(event, PullRequestChanged)]
    assert {event.open for event in typed} == {True, False}
    assert any(event.installation_id for event in typed) and any(event.installation_id is None for event in typed)


def test_every_pull_request_example_is_accepted_and_asks_for_a_look(client: TestClient, store: Store) -> None:
    asked: dict[str, int] = {}
    for example in EVENTS["pull_request"]:
        body = json.dumps(example).encode()
        answer = deliver(client, "pull_request", body, sign(SECRET.encode(), body))
        assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
        key = f"{example['repository']['id']}:{example['number']}"
        asked[key] = asked.get(key, 0) + 1
        with store.read() as uow:
            kept = uow.delivery(1, answer.json()["delivery"])
            job = uow.job_named(JobKind.INTAKE, key)
        assert kept is not None and kept.body == body and kept.action == example["action"]
        assert (kept.repository_id, kept.number) == (example["repository"]["id"], example["number"])
        assert job is not None and job.asked == asked[key] and job.delivery_id == kept.guid


def test_an_altered_example_is_refused_whatever_it_is(client: TestClient, store: Store) -> None:
    for name, examples in EVENTS.items():
        body = json.dumps(examples[0]).encode()
        signature = sign(SECRET.encode(), body)
        changed = body.replace(b":", b": ", 1) if b": " not in body[:40] else body.replace(b": ", b":", 1)
        assert changed != body and json.loads(changed) == json.loads(body)
        assert deliver(client, name, changed, signature).status_code == 401, name
    with store.read() as uow:
        assert uow.connection.execute(select(tables.deliveries)).first() is None


@pytest.mark.parametrize("name", sorted(set(EVENTS) - {"pull_request"}))
def test_every_other_example_is_answered_on_purpose(name: str) -> None:
    for example in EVENTS[name]:
        event = read_event(name, parse_object(json.dumps(example).encode()))
        if name == "ping":
            assert event == Ping(hook_id=example["hook_id"])
        elif name == "push" and example["ref"].startswith("refs/heads/") and not example["deleted"]:
            assert isinstance(event, BaseMoved)
        elif name == "push":
            assert isinstance(event, Ignored)
        else:
            assert event == Ignored(IGNORED_EVENTS[name]), f"{name} must be listed with a reason"


def test_one_example_of_every_event_gets_202(client: TestClient) -> None:
    for name, examples in EVENTS.items():
        body = json.dumps(examples[0]).encode()
        assert deliver(client, name, body, sign(SECRET.encode(), body)).status_code == 202, name


def test_a_signature_of_their_code_is_accepted(client: TestClient) -> None:
    body = json.dumps(EVENTS["pull_request"][0], ensure_ascii=False).encode()
    theirs = node("sign", body)
    verify_signature(read_signature([theirs.encode()]), body, [SECRET.encode()])
    assert deliver(client, "pull_request", body, theirs).status_code == 202
    assert deliver(client, "pull_request", body + b" ", theirs).status_code == 401


def test_our_signature_is_accepted_by_their_code() -> None:
    body = '{"title": "größer 🚀"}'.encode()
    assert node("verify", body, sign(SECRET.encode(), body)) == "true"
    assert node("verify", body + b" ", sign(SECRET.encode(), body)) == "false"
