"""Intake: what is signed by GitHub is stored before the answer; everything else leaves no trace and never gives a 500."""

from __future__ import annotations

import ast
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.jobs import JobKind
from gatekeeper.github import signatures
from gatekeeper.github.signatures import check_secrets, sign
from gatekeeper.github.webhooks import _pull_request, _PullRequestPayload
from gatekeeper.store import tables
from tests.web import seed

Payload = Callable[..., dict[str, Any]]
GUID = "72d3162e-cc78-11e3-81ab-4c9367dc0958"


def test_honest_delivery_is_stored_before_the_answer(web: Any, payload: Payload) -> None:
    answer = web.deliver("pull_request", payload(), guid=GUID)
    assert answer.status_code == 202
    assert answer.json() == {"status": "accepted", "delivery": GUID}
    with web.store.read() as uow:
        delivery = uow.delivery(42, GUID)
        job = uow.job_named(JobKind.INTAKE, "99:7")
        pull = uow.pull(99, 7)
        repository = uow.repository(99)
    assert delivery is not None and json.loads(delivery.body) == payload() and delivery.action == "synchronize"
    assert job is not None and job.delivery_id == GUID and web.notified == [job.id]
    assert pull is not None and (pull.title, pull.author_login, pull.head_sha) == (
        "Specialised decode",
        "ada",
        "1" * 40,
    )
    assert repository is not None and repository.full_name == "demo/vllm" and repository.installation_id == 3


def test_redelivery_is_one_delivery_and_one_job(web: Any, payload: Payload) -> None:
    web.deliver("pull_request", payload(), guid=GUID)
    again = web.deliver("pull_request", payload(), guid=GUID.upper())
    assert again.status_code == 202 and again.json()["status"] == "accepted"  # the first is not finished yet
    with web.store.begin() as uow:
        uow.delivery_done(42, GUID)
    assert web.deliver("pull_request", payload(), guid=GUID).json()["status"] == "duplicate"
    assert (web.count(tables.deliveries), web.count(tables.jobs)) == (1, 1)


def test_org_hook_and_repository_hook_meet_in_one_job(web: Any, payload: Payload) -> None:
    web.deliver("pull_request", payload())
    web.deliver("pull_request", payload(), headers={"X-GitHub-Hook-ID": "43"})
    assert (web.count(tables.deliveries), web.count(tables.jobs)) == (2, 1)


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha1=" + "0" * 40,
        "sha256=" + "0" * 63,
        "sha256=" + "G" * 64,
        "0" * 64,
        "sha256=" + "0" * 64,
    ],
    ids=["absent", "empty", "wrong-prefix", "short", "not-hex", "no-prefix", "wrong"],
)
def test_hook_no_signature(web: Any, payload: Payload, signature: str | None) -> None:
    without = ("X-Hub-Signature-256",) if signature is None else ()
    answer = web.deliver("pull_request", payload(), signature=signature, without=without)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "HOOK_SIGNATURE"
    assert "expected" not in answer.json()["error"]
    assert web.nothing_happened()


def test_hook_both_headers(web: Any, payload: Payload) -> None:
    body = json.dumps(payload()).encode()
    right = "sha1=" + hmac.new(b"a secret that is long enough for a test", body, hashlib.sha1).hexdigest()
    refused = web.deliver("pull_request", body, signature="sha256=" + "0" * 64, more=(("X-Hub-Signature", right),))
    assert refused.status_code == 401 and web.nothing_happened()
    only_sha1 = web.deliver("pull_request", body, without=("X-Hub-Signature-256",), more=(("X-Hub-Signature", right),))
    assert only_sha1.status_code == 401 and web.nothing_happened()
    taken = web.deliver("pull_request", body, more=(("X-Hub-Signature", "sha1=" + "0" * 40),))
    assert taken.status_code == 202


@pytest.mark.parametrize("valid_first", [True, False])
def test_hook_repeated_header(web: Any, payload: Payload, valid_first: bool) -> None:
    body = json.dumps(payload()).encode()
    right, wrong = sign(b"a secret that is long enough for a test", body), "sha256=" + "0" * 64
    first, second = (right, wrong) if valid_first else (wrong, right)
    answer = web.deliver("pull_request", body, signature=first, more=(("X-Hub-Signature-256", second),))
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "HOOK_HEADERS"
    assert web.nothing_happened()


def test_hook_nonascii_signature(web: Any, payload: Payload) -> None:
    answer = web.deliver("pull_request", payload(), signature=b"sha256=\xe9" + b"0" * 63)
    assert answer.status_code == 401 and web.nothing_happened()


def test_hook_timing_compares_in_constant_time() -> None:
    tree = ast.parse(Path(signatures.__file__).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    fits, scopes = functions["_fits"], functions["fitting_scopes"]
    assert "hmac.compare_digest" in {ast.unparse(node.func) for node in ast.walk(fits) if isinstance(node, ast.Call)}
    for function in (fits, scopes, functions["verify_signature"]):
        assert not [node for node in ast.walk(function) if isinstance(node, ast.Compare | ast.Break)]
    tried = [node for node in ast.walk(scopes) if isinstance(node, ast.ListComp)]
    assert len(tried) == 1, "every secret must be tried, whichever fits: a generator would stop at the first"


def test_hook_timing_tries_every_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    real = hmac.compare_digest
    monkeypatch.setattr(signatures.hmac, "compare_digest", lambda one, two: bool(asked.append(one)) or real(one, two))
    secrets = {"a/b": (b"1" * 32, b"2" * 32), "a/c": (b"3" * 32,)}
    claimed = signatures.read_signature([sign(b"1" * 32, b"body").encode()])
    assert signatures.fitting_scopes(claimed, b"body", secrets) == {"a/b"}
    assert len(asked) == 3


def test_hook_reserialised(web: Any, payload: Payload) -> None:
    body = json.dumps(payload(title="größer"), ensure_ascii=True).encode()
    signature = sign(b"a secret that is long enough for a test", body)
    altered = web.deliver("pull_request", body + b" ", signature=signature)
    assert altered.status_code == 401 and web.nothing_happened()
    assert web.deliver("pull_request", body, signature=signature).status_code == 202
    with web.store.read() as uow:
        assert uow.pull(99, 7).title == "größer"


@pytest.mark.parametrize("secrets", [(), (b"",), (b"short",), (b" " * 40,), (b"x" * 32, b"y"), (b"x" * 32,) * 3])
def test_hook_empty_secret(make_web: Any, secrets: tuple[bytes, ...]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make_web(webhook_secrets=secrets)
    assert refused.value.code == "CONFIG_WEBHOOK_SECRET"
    assert check_secrets((b"x" * 32,)) == (b"x" * 32,)


def test_both_secrets_hold_while_one_is_rotated(make_web: Any, payload: Payload) -> None:
    new, old = b"n" * 40, b"o" * 40
    web = make_web(webhook_secrets=(new, old))
    assert web.deliver("pull_request", payload(), secret=new).status_code == 202
    assert web.deliver("pull_request", payload(), secret=old).status_code == 202
    assert web.deliver("pull_request", payload(), secret=b"z" * 40).status_code == 401


def test_hook_body_size(make_web: Any, payload: Payload) -> None:
    web = make_web(largest_delivery=2000)
    large = payload(title="x" * 900, filler="y" * 3000)
    declared = web.deliver("pull_request", large)
    assert declared.status_code == 413 and declared.json()["error"]["code"] == "HOOK_SIZE"

    def drip() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": GUID,
        "X-Hub-Signature-256": "sha256=" + "0" * 64,
    }
    chunked = web.client.post("/webhooks/github", content=drip(), headers=headers)
    assert chunked.status_code == 413
    lying = web.client.post("/webhooks/github", content=drip(), headers={**headers, "Content-Length": "10"})
    assert lying.status_code in (400, 413)
    short = web.client.post("/webhooks/github", content=b"{}", headers={**headers, "Content-Length": "50"})
    assert short.status_code == 400 and short.json()["error"]["code"] == "HOOK_LENGTH"
    odd = web.client.post("/webhooks/github", content=b"{}", headers={**headers, "Content-Length": "-2"})
    assert odd.status_code == 400
    assert web.nothing_happened()
    assert web.deliver("pull_request", payload()).status_code == 202


@pytest.mark.parametrize(
    ("headers", "encode"),
    [
        ({"Content-Encoding": "gzip"}, "utf-8"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, "utf-8"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "utf-8"),
        ({"Content-Type": "application/json; charset=utf-16"}, "utf-16"),
        ({}, "utf-16"),
        ({}, "utf-16-le"),
        ({}, "utf-8-sig"),
    ],
    ids=["gzip", "multipart", "form", "utf-16-declared", "utf-16", "utf-16-le", "byte-order-mark"],
)
def test_hook_encoding(web: Any, payload: Payload, headers: dict[str, str], encode: str) -> None:
    answer = web.deliver("pull_request", json.dumps(payload()).encode(encode), headers=headers)
    assert answer.status_code == 415 and answer.json()["error"]["code"] == "HOOK_MEDIA"
    assert web.nothing_happened()


def test_hook_encoding_honest_twin(web: Any, payload: Payload) -> None:
    plain = {"Content-Type": "application/json; charset=UTF-8", "Content-Encoding": "identity"}
    assert web.deliver("pull_request", payload(), headers=plain).status_code == 202


def _bodies() -> list[Any]:
    honest = json.dumps({"number": 7})
    return [
        pytest.param(b"[" * 200_000 + b"]" * 200_000, 400, id="deep-arrays"),
        pytest.param(b'{"a":' * 100 + b"1" + b"}" * 100, 400, id="deep-objects"),
        pytest.param(b'{"number": ' + b"9" * 5000 + b"}", 400, id="long-integer"),
        pytest.param(b'{"number": 1' + b"0" * 25 + b"}", 400, id="integer-beyond-64-bits"),
        pytest.param(b'{"number": 1.' + b"0" * 5000 + b"}", 400, id="long-float"),
        pytest.param(b'{"number": 1e999}', 400, id="infinite-float"),
        pytest.param(b'{"number": NaN}', 400, id="nan"),
        pytest.param(b'{"number": -Infinity}', 400, id="infinity"),
        pytest.param(b'{"number": 1, "number": 2}', 400, id="duplicate-key"),
        pytest.param(b'{"a": {"number": 1, "number": 2}}', 400, id="duplicate-key-below"),
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"null", 400, id="null"),
        pytest.param(b"[]", 400, id="array"),
        pytest.param(honest.encode() + b"{}", 400, id="two-documents"),
        pytest.param(honest.encode(), 422, id="fields-missing"),
    ]


@pytest.mark.parametrize(("body", "status"), _bodies())
def test_hook_json_abuse(web: Any, body: bytes, status: int) -> None:
    web.client.get("/healthz")  # the first request pays for the start
    started = time.perf_counter()
    answer = web.deliver("pull_request", body)
    assert time.perf_counter() - started < 1.0  # 0.2 s alone; the machine may be busy
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == ("HOOK_JSON" if status == 400 else "HOOK_PAYLOAD")
    assert web.nothing_happened()


@pytest.mark.parametrize(
    "changes",
    [
        {"pull_request": []},
        {"pull_request": None},
        {"number": "7"},
        {"number": 7.0},
        {"number": True},
        {"number": 0},
        {"repository": {"id": "99", "full_name": "demo/vllm"}},
        {"repository": {"id": 99, "full_name": "../../etc/passwd"}},
        {"repository": {"id": 99, "full_name": "demo/vllm\n"}},
        {"head": {"sha": "1" * 39}},
        {"head": {"sha": "HEAD"}},
        {"base": {"ref": ""}},
        {"title": "x" * 1_000_000},
        {"title": 5},
        {"action": 5},
    ],
)
def test_hook_json_abuse_wrong_types(web: Any, payload: Payload, changes: dict[str, Any]) -> None:
    answer = web.deliver("pull_request", payload(**changes))
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "HOOK_PAYLOAD"
    assert web.nothing_happened()


@pytest.mark.parametrize(
    "text", ["a\x00b", "\ud800", "x\nERROR ok", "\x1b[31m"], ids=["nul", "surrogate", "newline", "escape"]
)
@pytest.mark.parametrize("field", ["title", "login", "ref"])
def test_web_bad_unicode(web: Any, payload: Payload, text: str, field: str) -> None:
    changes: dict[str, Any] = {
        "title": {"title": text},
        "login": {"user": {"id": 5, "login": text}},
        "ref": {"base": {"ref": text}},
    }[field]
    answer = web.deliver("pull_request", payload(**changes))
    if field == "title" and text in ("x\nERROR ok", "\x1b[31m"):
        assert answer.status_code == 202  # read as if a space stood there
        return
    assert answer.status_code == 422 and answer.json()["error"]["code"] in ("HOOK_TEXT", "HOOK_PAYLOAD")
    assert web.nothing_happened()


def test_a_tab_in_a_title_is_a_space_and_one_in_a_ref_is_refused(web: Any, payload: Payload) -> None:
    assert web.deliver("pull_request", payload(title="a\tb\x7fc")).status_code == 202
    assert _pull_request(_PullRequestPayload.model_validate(payload(title="a\tb\x7fc"))).title == "a b c"
    assert web.deliver("pull_request", payload(base={"ref": "a\tb"})).status_code == 422


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63), 10**19 - 1])
@pytest.mark.parametrize("field", ["repository", "sender", "user", "installation"])
def test_ids_that_no_database_holds_are_refused(web: Any, payload: Payload, field: str, number: int) -> None:
    body = payload()
    holder = body["pull_request"] if field == "user" else body
    holder[field] = {**(holder.get(field) or {}), "id": number}
    answer = web.deliver("pull_request", body)
    assert answer.status_code in (400, 422) and answer.json()["error"]["code"] in ("HOOK_JSON", "HOOK_PAYLOAD")
    assert web.nothing_happened()


def test_the_largest_id_that_a_database_holds_is_an_id(web: Any, payload: Payload) -> None:
    assert web.deliver("pull_request", payload(sender={"id": (1 << 63) - 1})).status_code == 202


def test_web_bad_unicode_honest_twin(web: Any, payload: Payload) -> None:
    assert web.deliver("pull_request", payload(title="größer, 速い, 🚀")).status_code == 202


def test_hook_ssrf_fields(web: Any, payload: Payload) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.git"
        body = payload()
        body["repository"] |= {"clone_url": url, "url": url}
        body["pull_request"] |= {
            "diff_url": url,
            "statuses_url": url,
            "head": {"sha": "1" * 40, "repo": {"clone_url": url}},
        }
        assert web.deliver("pull_request", body).status_code == 202
        with pytest.raises(TimeoutError):
            listener.accept()
    with web.store.read() as uow:
        assert url not in repr(uow.pull(99, 7)) and url not in repr(uow.job_named(JobKind.INTAKE, "99:7"))


def test_hook_flood(make_web: Any, payload: Payload) -> None:
    web = make_web(coalesce=timedelta(seconds=5))
    for step in range(100):
        assert web.deliver("pull_request", payload(head={"sha": f"{step:040x}"})).status_code == 202
    assert web.count(tables.jobs) == 1
    with web.store.read() as uow:
        job = uow.job_named(JobKind.INTAKE, "99:7")
        assert job is not None and job.asked == 100
        assert timedelta(seconds=4) < job.run_after - job.enqueued_at < timedelta(seconds=6)
    web.deliver("pull_request", payload(number=8))
    assert web.count(tables.jobs) == 2


@pytest.mark.parametrize(
    ("headers", "without"),
    [
        ({}, ("X-GitHub-Event",)),
        ({}, ("X-GitHub-Delivery",)),
        ({"X-GitHub-Event": "pull request"}, ()),
        ({"X-GitHub-Event": "p" * 100}, ()),
        ({"X-GitHub-Delivery": "not-a-guid"}, ()),
        ({"X-GitHub-Hook-ID": "four"}, ()),
    ],
)
def test_event_headers_must_be_sane(
    web: Any, payload: Payload, headers: dict[str, str], without: tuple[str, ...]
) -> None:
    answer = web.deliver("pull_request", payload(), headers=headers, without=without)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "HOOK_EVENT"
    assert web.nothing_happened()


def test_unknown_events_are_answered_and_dropped(web: Any) -> None:
    answer = web.deliver("event_of_next_year", {"anything": 1})
    assert answer.status_code == 202 and answer.json()["status"] == "ignored"
    assert web.nothing_happened()


def test_unknown_actions_are_noted_only(web: Any, payload: Payload) -> None:
    assert web.deliver("pull_request", payload(action="action_of_next_year"), guid=GUID).status_code == 202
    assert (web.count(tables.deliveries), web.count(tables.jobs)) == (1, 0)
    with web.store.read() as uow:
        assert uow.delivery(42, GUID).done_at is not None


def test_ping_is_answered(web: Any) -> None:
    assert web.deliver("ping", {"zen": "Keep it simple.", "hook_id": 42, "hook": {}}).json()["status"] == "accepted"
    assert web.count(tables.jobs) == 0


def test_only_allowed_repositories_are_taken(make_web: Any, payload: Payload) -> None:
    web = make_web(allowed_repositories=frozenset({"Demo/vLLM"}))
    assert web.deliver("pull_request", payload()).json()["status"] == "accepted"
    foreign = web.deliver("pull_request", payload(repository={"id": 100, "full_name": "demo/other"}))
    assert foreign.status_code == 403 and foreign.json()["error"]["code"] == "HOOK_REPO"
    assert (web.count(tables.jobs), web.count(tables.deliveries), web.count(tables.repositories)) == (1, 1, 1)


def test_a_moved_base_looks_again_at_open_pulls_on_it(web: Any, payload: Payload) -> None:
    for number, changes in {1: {}, 2: {"state": "closed"}, 3: {"base": {"ref": "release"}}}.items():
        web.deliver("pull_request", payload(number=number, action="labelled_in_an_unknown_way", **changes))
    push = {"ref": "refs/heads/main", "after": "2" * 40, "repository": {"id": 99, "full_name": "demo/vllm"}}
    assert web.deliver("push", push).json()["status"] == "accepted"
    with web.store.read() as uow:
        assert uow.job_named(JobKind.INTAKE, "99:1") is not None
    assert web.count(tables.jobs) == 1


@pytest.mark.parametrize("changes", [{"ref": "refs/tags/v1"}, {"deleted": True, "after": "0" * 40}])
def test_pushes_that_move_no_base_are_ignored(web: Any, changes: dict[str, Any]) -> None:
    push = {"ref": "refs/heads/main", "after": "2" * 40, "repository": {"id": 99, "full_name": "demo/vllm"}, **changes}
    assert web.deliver("push", push).json()["status"] == "ignored"
    assert web.nothing_happened()


def test_events_out_of_order_end_in_one_look_at_git(web: Any, payload: Payload) -> None:
    web.deliver("pull_request", payload(head={"sha": "2" * 40}))
    web.deliver("pull_request", payload(head={"sha": "1" * 40}))
    assert web.count(tables.jobs) == 1  # whichever came last, one look at git says what the head is


def test_a_closed_pull_request_is_noted_also_after_its_snapshot(web: Any, payload: Payload) -> None:
    seed.seed(web.store)
    with web.store.read() as uow:
        judged = uow.pull(99, 2)
    assert judged is not None
    web.deliver("pull_request", payload(number=2, action="closed", state="closed", head={"sha": judged.head_sha}))
    with web.store.read() as uow:
        pull = uow.pull(99, 2)
    assert pull is not None and not pull.open and pull.verdict is not None


def test_a_moved_base_leaves_pulls_alone_that_are_not_judged(web: Any) -> None:
    seed.seed(web.store)
    push = {"ref": "refs/heads/main", "after": "2" * 40, "repository": {"id": 99, "full_name": "demo/vllm"}}
    web.deliver("push", push)
    with web.store.read() as uow:
        asked = [number for number in range(1, 8) if uow.job_named(JobKind.INTAKE, f"99:{number}")]
    assert 6 not in asked and {1, 2, 3, 4, 5, 7} <= set(asked)
