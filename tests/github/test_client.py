"""Requests: what GitHub says, in every way that it can say it, becomes data or the right kind of error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.errors import Conflict, GatekeeperError, Postponed, Rejected, Retryable
from gatekeeper.github.app import GithubApp, Identity
from gatekeeper.github.faults import Answer, Throttled, fault_of, is_limit
from tests.github.sample_app import REPOSITORY, Clock, installed, keys
from tests.github.world import CLIENT_ID, INSTALLATION, Pull, World

PULL = f"/repos/{REPOSITORY.full_name}/pulls/1"
Sides = tuple[World, GithubApp, Clock]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    with installed(tmp_path) as made:
        made[0].repositories[7].pulls[1] = Pull("a" * 40)
        yield made


def test_what_has_not_changed_costs_nothing_and_what_has_is_seen(sides: Sides) -> None:
    world, app, _ = sides
    client = app.client(REPOSITORY)
    first = client.get(PULL)
    left = world.remaining
    first["title"] = "changed by the caller"
    assert client.get(PULL)["title"] == "a change" and world.remaining == left
    world.repositories[7].pulls[1].title = "another title"
    assert client.get(PULL)["title"] == "another title" and world.remaining == left - 1
    assert [each.status for each in world.requests if each.path == PULL] == [200, 304, 200]


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, Rejected, "GITHUB_REFUSED"),
        (403, Retryable, "GITHUB_PERMISSION"),
        (404, Conflict, "GITHUB_MISSING"),
        (410, Conflict, "GITHUB_MISSING"),
        (422, Rejected, "GITHUB_REFUSED"),
        (307, Retryable, "GITHUB_MOVED"),
        (500, Retryable, "GITHUB_UNREACHABLE"),
        (502, Retryable, "GITHUB_UNREACHABLE"),
        (503, Retryable, "GITHUB_UNREACHABLE"),
        (0, Retryable, "GITHUB_UNREACHABLE"),
    ],
)
def test_what_an_answer_means(sides: Sides, status: int, kind: type[GatekeeperError], code: str) -> None:
    world, app, _ = sides
    client = app.client(REPOSITORY)
    world.fail(status, on=PULL)
    with pytest.raises(kind) as caught:
        client.get(PULL)
    assert caught.value.code == code and not isinstance(caught.value, Postponed)
    assert PULL in caught.value.found
    if status >= 400:
        assert "request id 0" in caught.value.found
    assert client.get(PULL)["number"] == 1


@pytest.mark.parametrize(
    ("status", "headers", "body", "pause"),
    [
        (429, {"retry_after": "120"}, None, 120),
        (403, {"retry_after": "90"}, None, 90),
        (403, {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1796000600"}, None, 601),
        (403, {}, {"message": "You have exceeded a secondary rate limit. Please wait."}, 60),
        (429, {"retry_after": "no number"}, None, 60),
    ],
)
def test_a_limit_is_kept_to_by_everybody(
    sides: Sides, status: int, headers: dict[str, str], body: Any, pause: float
) -> None:
    world, app, clock = sides
    client = app.client(REPOSITORY)
    world.fail(status, on=PULL, body=body, **headers)
    with pytest.raises(Throttled) as caught:
        client.get(PULL)
    assert caught.value.retry_after == pause
    sent = len(world.requests)
    with pytest.raises(Throttled) as caught:
        client.send("POST", f"/repos/{REPOSITORY.full_name}/check-runs", {})
    assert caught.value.retry_after == pause and len(world.requests) == sent, (
        "nothing is sent while GitHub wants silence"
    )
    clock.moment += pause + 1
    assert client.get(PULL)["number"] == 1
    assert app.meter.read()[str(INSTALLATION)]["limited"] == 1


def test_a_plain_403_is_no_limit() -> None:
    assert not is_limit(Answer(403, {}, {"message": "Resource not accessible by integration"}))
    assert is_limit(Answer(403, {}, {"message": "API rate limit exceeded for installation ID 8."}))
    assert fault_of(Answer(200, {}), "GET /") is fault_of(Answer(304, {}), "GET /") is None


def test_threads_get_their_own_answers(sides: Sides) -> None:
    world, app, _ = sides
    for number in range(1, 33):
        world.repositories[7].pulls[number] = Pull("a" * 40, title=f"change {number}")
    client = app.client(REPOSITORY)
    world.delay = 0.005
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda n: client.get(f"/repos/{REPOSITORY.full_name}/pulls/{n % 32 + 1}"), range(96)))
    assert [(each["number"], each["title"]) for each in told] == [
        (n % 32 + 1, f"change {n % 32 + 1}") for n in range(96)
    ]
    assert world.most_at_once == 1, "PyGithub keeps the request of the moment where the next thread would overwrite it"


class _Odd(BaseHTTPRequestHandler):
    """Answers that are no JSON, and redirects to other places."""

    def do_GET(self) -> None:
        moved = self.path.startswith("/away")
        self.send_response(301 if moved else 200)
        if moved:
            self.send_header("Location", "http://another-host.invalid/x")
        body = b"<html>a proxy's page</html>" if not moved else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("path", "code"), [("/page", "GITHUB_ANSWER"), ("/away", "GITHUB_UNREACHABLE")])
def test_a_page_or_a_redirect_to_another_host_is_no_answer(tmp_path: Path, path: str, code: str) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Odd)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        app = GithubApp(Identity(CLIENT_ID, keys()[0], f"http://127.0.0.1:{server.server_port}"), tmp_path)
        with pytest.raises(Retryable) as caught:
            app._own.get(path)
        assert caught.value.code == code
    finally:
        server.shutdown()
        server.server_close()


def test_headers_that_are_no_numbers_fail_one_try_and_not_the_work(sides: Sides) -> None:
    world, app, _ = sides
    world.fail(200, on=PULL, x_ratelimit_remaining="4997, 0")
    with pytest.raises(Retryable, match=r"GITHUB_UNREACHABLE.*ValueError"):
        app.client(REPOSITORY).get(PULL)
    assert app.client(REPOSITORY).get(PULL)["number"] == 1


def test_a_repository_that_was_renamed_is_followed_on_the_same_host(sides: Sides) -> None:
    world, app, _ = sides
    client = app.client(REPOSITORY)
    world.repositories[7].full_name = "acme/renamed"
    world.fail(301, on=PULL, location="/repos/acme/renamed/pulls/1")
    assert client.get(PULL)["base"]["repo"]["full_name"] == "acme/renamed"
    assert [(each.path, each.status) for each in world.requests[-2:]] == [
        (PULL, 301), ("/repos/acme/renamed/pulls/1", 200),
    ]  # fmt: skip
