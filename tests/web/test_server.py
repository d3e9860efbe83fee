"""The real server over real sockets: whoever sends headers or a body drop by drop loses the connection, and nobody else does."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from gatekeeper.github.signatures import sign
from gatekeeper.web.server import make_server
from tests.web.conftest import SECRET

Payload = Callable[..., dict[str, Any]]
HEADER_SECONDS, CHUNK_SECONDS, DELIVERY_SECONDS = 0.6, 0.5, 1.5
PATIENCE = 10.0
"""Longest wait of a test: far above the limits, because the machine may be busy."""


@dataclass
class Served:
    """A running server and the application's store."""

    port: int
    web: Any

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@pytest.fixture
def served(make_web: Any) -> Iterator[Served]:
    web = make_web(hosts=("127.0.0.1",), slowest_chunk=CHUNK_SECONDS, slowest_delivery=DELIVERY_SECONDS)
    server = make_server(web.client.app, "127.0.0.1", 0, header_seconds=HEADER_SECONDS)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.started
    yield Served(listener.getsockname()[1], web)
    server.should_exit = True
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the server stops although connections are open"


def request(body: bytes, length: int | None = None) -> bytes:
    """Return the head of a signed delivery that says how long its body is."""
    lines = [
        "POST /webhooks/github HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "X-GitHub-Event: pull_request",
        f"X-GitHub-Delivery: {uuid4()}", f"X-Hub-Signature-256: {sign(SECRET, body)}",
        f"Content-Length: {len(body) if length is None else length}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def answer(connection: socket.socket) -> bytes:
    """Read until the other side closes or the answer is complete."""
    got = b""
    while not (b"\r\n\r\n" in got and got.endswith(b"}")):
        part = connection.recv(65536)
        if not part:
            break
        got += part
    return got


def is_closed(connection: socket.socket) -> bool:
    """Wait for the other side to close the connection."""
    connection.settimeout(PATIENCE)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def drip(connection: socket.socket, data: bytes, pause: float) -> float:
    """Send byte by byte until the other side closes; return the seconds that took."""
    started = time.monotonic()
    connection.settimeout(0.01)
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
            if connection.recv(1, socket.MSG_PEEK) == b"":
                break
        except TimeoutError:
            pass
        except OSError:
            break
        else:
            break
        if time.monotonic() - started > PATIENCE:
            raise AssertionError("the connection is still open")
        time.sleep(pause)
    return time.monotonic() - started


def healthy(served: Served) -> bool:
    """Whether an honest delivery still gets its answer."""
    body = json.dumps({"zen": "x", "hook_id": 4, "hook": {}}).encode()
    with served.connect() as connection:
        connection.sendall(request(body).replace(b"pull_request", b"ping") + body)
        return answer(connection).startswith(b"HTTP/1.1 202")


def test_an_honest_delivery_over_a_socket(served: Served, payload: Payload) -> None:
    body = json.dumps(payload()).encode()
    with served.connect() as connection:
        head = request(body)
        connection.sendall(head[:40])
        time.sleep(HEADER_SECONDS / 4)  # slow, but within the limits
        connection.sendall(head[40:] + body[:10])
        time.sleep(CHUNK_SECONDS / 4)
        connection.sendall(body[10:])
        got = answer(connection)
    assert got.startswith(b"HTTP/1.1 202") and b"accepted" in got
    with served.web.store.read() as uow:
        assert uow.pull(99, 7) is not None


def test_a_connection_that_says_nothing_is_closed(served: Served) -> None:
    with served.connect() as silent:
        started = time.monotonic()
        assert is_closed(silent)
        assert HEADER_SECONDS * 0.5 < time.monotonic() - started < PATIENCE
    assert healthy(served)


def test_headers_that_drip_end_the_connection(served: Served, payload: Payload) -> None:
    endless = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-A: b\r\n" * 1000
    with served.connect() as slow:
        assert drip(slow, endless, pause=HEADER_SECONDS / 20) < PATIENCE
    assert served.web.nothing_happened() and healthy(served)


def test_the_second_request_of_a_connection_has_the_same_limit(served: Served) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served.connect() as connection:
        for _ in range(3):  # the clock starts anew with every answer
            connection.sendall(ask)
            assert answer(connection).startswith(b"HTTP/1.1 200")
            time.sleep(HEADER_SECONDS / 2)
        connection.sendall(ask[:10])
        assert is_closed(connection)
    assert healthy(served)


def test_hook_slow_body_that_stops(served: Served, payload: Payload) -> None:
    body = json.dumps(payload()).encode()
    with served.connect() as connection:
        connection.sendall(request(body) + body[:-1])
        got = answer(connection)
        assert got.startswith(b"HTTP/1.1 408") and b"HOOK_SLOW" in got
        assert is_closed(connection), "what is left of the body is waited for no longer than for headers"
    assert served.web.nothing_happened() and healthy(served)


def test_hook_slow_body_that_drips(served: Served, payload: Payload) -> None:
    body = json.dumps(payload(filler="x" * 5000)).encode()
    with served.connect() as connection:
        connection.sendall(request(body))
        took = drip(connection, body, pause=CHUNK_SECONDS / 10)
        connection.settimeout(PATIENCE)
        got = answer(connection)
    assert got.startswith(b"HTTP/1.1 408") and b"HOOK_SLOW" in got
    assert DELIVERY_SECONDS * 0.9 < took < PATIENCE, "no chunk was late, but all of them together were"
    assert served.web.nothing_happened() and healthy(served)


def test_hook_body_size_is_refused_before_it_is_sent(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(request(b"", length=1 << 40))
        got = answer(connection)
        assert got.startswith(b"HTTP/1.1 413") and b"HOOK_SIZE" in got
        assert is_closed(connection)
    assert healthy(served)


def test_many_slow_connections_do_not_keep_an_honest_one_out(served: Served, payload: Payload) -> None:
    slow = [served.connect() for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(b"POST /webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
        assert healthy(served)
        assert all(is_closed(connection) for connection in slow)
    finally:
        for connection in slow:
            connection.close()
