"""A right signature is not enough: whoever knows one tenant's secret cannot speak for another, nor for anybody not served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog

from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import JobKind
from gatekeeper.github.tenants import make_keyring
from gatekeeper.store import tables

Payload = Callable[..., dict[str, Any]]
A, B, OWNER, APP, REST = (letter * 40 for letter in (b"a", b"b", b"o", b"i", b"r"))
SCOPED = {"demo/vllm": (A,), "demo/other": (B,), "acme/*": (OWNER,), "installation:8": (APP,)}


def repository(name: str, id: int = 99, installation: int | None = 3) -> dict[str, Any]:
    """Return the fields of a payload that say which repository it is about."""
    fields: dict[str, Any] = {"repository": {"id": id, "full_name": name}}
    return fields | {"installation": None if installation is None else {"id": installation}}


def left_nothing(web: Any) -> bool:
    """Whether no table holds anything."""
    return web.nothing_happened() and web.count(tables.repositories) == 0


@pytest.mark.parametrize(
    ("secret", "fields"),
    [
        (A, repository("demo/other")),
        (B, repository("demo/vllm")),
        (A, repository("acme/kernels")),
        (OWNER, repository("acmes/kernels")),
        (OWNER, repository("demo/vllm")),
        (APP, repository("demo/third")),
        (APP, repository("demo/third", installation=None)),
        (A, repository("demo/vllm.git")),
        (REST, repository("demo/vllm")),
        (A, repository("nobody/knows")),
    ],
)
@pytest.mark.parametrize("event", ["pull_request", "push"])
def test_hook_cross_tenant(make_web: Any, payload: Payload, secret: bytes, fields: dict[str, Any], event: str) -> None:
    web = make_web(webhook_secrets=(REST,), scoped_secrets=SCOPED)
    body = payload(**fields) if event == "pull_request" else {"ref": "refs/heads/main", "after": "2" * 40, **fields}
    with structlog.testing.capture_logs() as logs:
        answer = web.deliver(event, body, secret=secret)
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "HOOK_REPO"
    assert fields["repository"]["full_name"] in answer.json()["error"]["found"]
    assert left_nothing(web) and web.notified == []
    refused = [log for log in logs if log["event"] == "delivery refused"]
    assert [(log["code"], log["log_level"]) for log in refused] == [("HOOK_REPO", "warning")]
    assert secret.decode() not in repr(logs) + answer.text


@pytest.mark.parametrize(
    ("secret", "fields"),
    [
        (A, repository("demo/vllm")),
        (A, repository("Demo/VLLM")),
        (B, repository("demo/other")),
        (OWNER, repository("acme/kernels")),
        (APP, repository("somebody/else", installation=8)),
        (APP, repository("demo/vllm", installation=8)),
        (REST, repository("nobody/knows")),
    ],
)
def test_hook_cross_tenant_honest_twin(make_web: Any, payload: Payload, secret: bytes, fields: dict[str, Any]) -> None:
    web = make_web(webhook_secrets=(REST,), scoped_secrets=SCOPED)
    assert web.deliver("pull_request", payload(**fields), secret=secret).json()["status"] == "accepted"
    with web.store.read() as uow:
        assert uow.job_named(JobKind.INTAKE, "99:7") is not None


def test_a_body_cannot_give_somebody_elses_repository_another_name(make_web: Any, payload: Payload) -> None:
    web = make_web(webhook_secrets=(REST,), scoped_secrets=SCOPED)
    for secret, name, id in ((B, "demo/other", 100), (REST, "nobody/knows", 101)):
        assert web.deliver("pull_request", payload(**repository(name, id)), secret=secret).status_code == 202
        stolen = web.deliver("pull_request", payload(number=8, **repository("demo/vllm", id)), secret=A)
        assert stolen.status_code == 403 and stolen.json()["error"]["code"] == "HOOK_REPO"
        with web.store.read() as uow:
            kept = uow.repository(id)
            assert kept is not None and kept.full_name == name and uow.pull(id, 8) is None
    assert web.deliver("pull_request", payload(**repository("demo/vllm", 99)), secret=A).status_code == 202


def test_a_repository_that_was_renamed_keeps_its_id(make_web: Any, payload: Payload) -> None:
    web = make_web(webhook_secrets=(), scoped_secrets={"demo/vllm": (A,)})
    assert web.deliver("pull_request", payload(**repository("demo/vllm")), secret=A).status_code == 202
    renamed = payload(**repository("demo/new-name"))
    assert web.deliver("pull_request", renamed, secret=A).status_code == 403, "before the settings follow"
    both = make_keyring((), {"demo/vllm": (A,), "demo/new-name": (A,)})
    only_new = make_keyring((), {"demo/new-name": (A,)})
    for number, keyring in enumerate((both, only_new)):
        web = make_web(keyring=keyring)
        with web.store.begin() as uow:
            uow.remember_repository(seen("demo/vllm"))
        assert web.deliver("pull_request", renamed, secret=A).status_code == 202, number


def seen(name: str) -> Any:
    """Return a repository as an event would name it."""
    return RepositoryRef(id=99, full_name=name)


def test_only_allowed_installations_are_taken(make_web: Any, payload: Payload) -> None:
    web = make_web(allowed_installations=frozenset({3}))
    for installation in (4, None):
        answer = web.deliver("pull_request", payload(**repository("demo/vllm", installation=installation)))
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "HOOK_REPO"
    assert left_nothing(web)
    assert web.deliver("pull_request", payload()).status_code == 202


def test_a_secret_of_a_scope_is_rotated_by_itself(make_web: Any, payload: Payload) -> None:
    new, old = b"n" * 40, b"p" * 40
    web = make_web(webhook_secrets=(REST,), scoped_secrets={"demo/vllm": (new, old), "demo/other": (B,)})
    for secret in (new, old):
        assert web.deliver("pull_request", payload(), secret=secret).status_code == 202
        stranger = web.deliver("pull_request", payload(**repository("demo/other")), secret=secret)
        assert stranger.status_code == 403
    assert web.deliver("pull_request", payload(), secret=b"z" * 40).status_code == 401


def test_two_scopes_may_share_a_secret(make_web: Any, payload: Payload) -> None:
    web = make_web(webhook_secrets=(), scoped_secrets={"demo/vllm": (A,), "demo/other": (A,)})
    for name, id in (("demo/vllm", 99), ("demo/other", 100)):
        assert web.deliver("pull_request", payload(**repository(name, id)), secret=A).status_code == 202
    assert web.deliver("pull_request", payload(**repository("demo/third", 101)), secret=A).status_code == 403


def test_what_nothing_acts_on_is_ignored_whoever_sends_it(make_web: Any) -> None:
    web = make_web(webhook_secrets=(REST,), scoped_secrets=SCOPED)
    assert web.deliver("star", repository("demo/other"), secret=A).json()["status"] == "ignored"
    assert left_nothing(web)


@pytest.mark.parametrize(
    "scope",
    ["demo", "demo/", "/vllm", "*/*", "*", "", "demo/vllm/x", "installation:", "installation:0", "installation:x"],
)
def test_a_scope_of_another_form_stops_the_start(scope: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make_keyring((REST,), {scope: (A,)})
    assert refused.value.code == "CONFIG_WEBHOOK_SECRETS" and "OWNER/NAME" in refused.value.expected


@pytest.mark.parametrize("secrets", [(), (b"short",), (A, B, REST)])
def test_each_scope_needs_one_good_secret_or_two(secrets: tuple[bytes, ...]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make_keyring((REST,), {"demo/vllm": secrets})
    assert refused.value.code == "CONFIG_WEBHOOK_SECRET"
    assert make_keyring((REST,), {"demo/vllm": (A, B)}).secrets["demo/vllm"] == (A, B)


def test_scopes_differ_by_more_than_case() -> None:
    with pytest.raises(ConfigurationError):
        make_keyring((REST,), {"demo/vllm": (A,), "Demo/vllm": (B,)})
