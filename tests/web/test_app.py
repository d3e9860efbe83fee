"""What holds for every answer: hosts, headers, errors, health, documentation, logs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from gatekeeper import logs
from gatekeeper.domain.errors import ConfigurationError, Conflict, Rejected, Retryable
from gatekeeper.store import tables
from gatekeeper.web.errors import add_error_handlers
from gatekeeper.web.health import alive_check, directory_check, schema_check


@pytest.mark.parametrize(
    "host", ["evil.example", "testserver.evil.example", "testserver/x", "testserver@evil", "", "a b", "x" * 300]
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/pulls", "/webhooks/github"])
def test_web_host_header(web: Any, host: str, path: str) -> None:
    answer = web.client.get(path, headers={"Host": host})
    assert answer.status_code == 400 and "HOST" in answer.text
    if host and len(host) > 3:
        assert host not in answer.text
    assert web.client.get("/healthz", headers={"Host": "TestServer:8080"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/healthz", "/api/v1/pulls", "/api/v1/nothing", "/static/gatekeeper.css", "/docs"]
)
def test_every_answer_carries_the_security_headers(web: Any, path: str) -> None:
    headers = web.client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers and "set-cookie" not in headers


def test_pages_load_nothing_from_elsewhere(web: Any) -> None:
    for path in ("/", "/docs", "/nothing"):
        text = web.client.get(path).text
        assert "http://" not in text and "https://" not in text and "<script" not in text


def test_healthz_needs_nothing(make_web: Any) -> None:
    web = make_web(readiness={"database": lambda: "gone"})
    assert web.client.get("/healthz").json() == {"status": "ok"}


def test_readyz_says_what_is_wrong(make_web: Any, tmp_path: Path) -> None:
    alive = [True]
    revision: list[str | None] = ["0001"]
    mirrors = tmp_path / "mirrors"
    mirrors.mkdir()
    web = make_web(
        readiness={
            "database": schema_check(lambda: revision[0], "0001"),
            "queue": alive_check(lambda: alive[0], "the queue thread"),
            "mirrors": directory_check(mirrors),
        }
    )
    ready = web.client.get("/readyz")
    assert ready.status_code == 200 and set(ready.json()["checks"].values()) == {"ok"}
    alive[0], revision[0] = False, None
    mirrors.rmdir()
    broken = web.client.get("/readyz")
    assert broken.status_code == 503
    assert broken.json()["checks"] == {
        "database": "the database is at migration none, this version needs 0001",
        "queue": "the queue thread has stopped",
        "mirrors": "the directory does not exist",
    }


def test_a_readiness_check_that_raises_is_not_ready(make_web: Any) -> None:
    def gone() -> str | None:
        raise OSError("secret://user:password@database")

    answer = make_web(readiness={"database": gone}).client.get("/readyz")
    assert answer.status_code == 503 and answer.json()["checks"]["database"] == "cannot be reached (OSError)"
    assert "password" not in answer.text


def test_the_api_is_documented(web: Any) -> None:
    paths = web.client.get("/openapi.json").json()["paths"]
    for path in ("/webhooks/github", "/api/v1/pulls", "/api/v1/pulls/{owner}/{repo}/{number}", "/healthz", "/readyz"):
        assert path in paths and path in web.client.get("/docs").text
    text = web.client.get("/docs").text
    assert "headers, length or JSON are not as GitHub sends them" in text
    for part in ("uccessful Response", "alidation Error", "`", "<td></td>"):
        assert part not in text, f"the framework's own words, or none at all: {part}"
    assert "<code>gatekeeper evaluate</code> decides them again" in text


def test_web_unauth_surface(make_web: Any) -> None:
    closed = make_web(documentation=False).client
    assert [closed.get(path).status_code for path in ("/docs", "/openapi.json", "/redoc")] == [404, 404, 404]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Rejected("no", code="SOME_CODE", expected="a", found="b"), 422, "SOME_CODE"),
        (Rejected("no", code="HOOK_REPO"), 403, "HOOK_REPO"),
        (Conflict("later", code="BUSY"), 409, "BUSY"),
        (Retryable("down", code="STORE_BUSY"), 503, "STORE_BUSY"),
        (ConfigurationError("operator's secret", code="CONFIG"), 500, "ERROR"),
        (RuntimeError("our secret"), 500, "ERROR"),
    ],
)
def test_error_families(error: Exception, status: int, code: str) -> None:
    app = FastAPI()
    add_error_handlers(app)

    @app.get("/api/fail")
    @app.get("/fail")
    def fail() -> None:
        raise error

    client = TestClient(app, raise_server_exceptions=False)
    machine, page = client.get("/api/fail"), client.get("/fail")
    assert (machine.status_code, machine.json()["error"]["code"]) == (status, code)
    assert page.status_code == status and code in page.text and page.headers["content-type"].startswith("text/html")
    assert "secret" not in machine.text + page.text
    assert ("retry-after" in machine.headers) == (status == 503)


def _captured(as_json: bool) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(stream, as_json=as_json)
    return stream


@pytest.fixture(autouse=True)
def _logging_as_before() -> Any:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


@pytest.mark.parametrize("as_json", [True, False])
def test_web_log_injection(as_json: bool) -> None:
    stream = _captured(as_json)
    attack = "x\nERROR ok\r\n::add-mask::secret\x1b[2J\u2028forged"
    structlog.get_logger("a").info("pull request", title=attack)
    structlog.get_logger("a").info(attack)
    logging.getLogger("library").warning("said %s", attack)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 and all(line.startswith(("{", "20")) for line in lines)
    assert "\x1b" not in stream.getvalue() and "\u2028" not in stream.getvalue()
    if as_json:
        assert json.loads(lines[0])["title"] == attack


def test_the_delivery_id_is_carried_through(web: Any, payload: Callable[..., Any]) -> None:
    stream = _captured(as_json=True)
    guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    web.deliver("pull_request", payload(), guid=guid)
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    accepted = [record for record in records if record["event"] == "delivery accepted"]
    assert accepted and accepted[0]["delivery"] == guid and accepted[0]["event_name"] == "pull_request"
    with web.store.read() as uow:
        assert uow.delivery(42, guid) is not None
    with logs.carrying(delivery=guid, job=None):
        structlog.get_logger("worker").info("job started")
    assert json.loads(stream.getvalue().splitlines()[-1])["delivery"] == guid


def test_a_database_that_is_gone_is_503_and_stores_nothing(web: Any, payload: Callable[..., Any]) -> None:
    with web.store.begin() as uow:
        tables.METADATA.drop_all(uow.connection)
    assert web.deliver("pull_request", payload()).status_code >= 500
    with web.store.begin() as uow:
        tables.METADATA.create_all(uow.connection)
    assert web.nothing_happened()
    assert web.deliver("pull_request", payload()).status_code == 202
