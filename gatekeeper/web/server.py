"""The HTTP server: uvicorn, with a limit on the time that a connection may take to say what it wants.

uvicorn waits for ever for the end of a request's headers, so a few hundred silent connections would hold every file descriptor
of the process. Bodies have their own limits, in ``webhooks.read_body``: no other route reads one.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, cast

import uvicorn
from fastapi import FastAPI
from structlog import get_logger
from uvicorn.protocols.http.h11_impl import H11Protocol

from gatekeeper.domain.errors import ConfigurationError

HEADER_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 5
STOP_SECONDS = 5
BACKLOG = 2048
"""Connections that may wait to be taken; uvicorn's own default."""
log = get_logger(__name__)


class DeadlineProtocol(H11Protocol):
    """A connection that must have sent the headers of a request :attr:`header_seconds` after it came or last got an answer."""

    header_seconds: ClassVar[float] = HEADER_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock with the connection."""
        super().connection_made(transport)
        self._start_clock()

    def handle_events(self) -> None:
        """Stop the clock once headers have been read."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_clock()

    def on_response_complete(self) -> None:
        """Start the clock for the next request of this connection."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before and not self.transport.is_closing():
            self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock with the connection."""
        self._stop_clock()
        super().connection_lost(exc)

    def _start_clock(self) -> None:
        self._stop_clock()
        self._deadline = self.loop.call_later(self.header_seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        log.info("connection closed", reason="no request within the time limit", seconds=self.header_seconds)
        self.transport.close()


def make_server(app: FastAPI, host: str, port: int, *, header_seconds: float = HEADER_SECONDS) -> uvicorn.Server:
    """Return a server that is not running yet. A request's headers may take ``header_seconds``."""
    protocol = type("DeadlineProtocol", (DeadlineProtocol,), {"header_seconds": header_seconds})
    configuration = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=cast(type[asyncio.Protocol], protocol),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return uvicorn.Server(configuration)


@contextmanager
def listen(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Bind every address of ``host``, and yield the sockets; nobody is answered before :func:`run`.

    Raises:
        ConfigurationError: ``CONFIG_HOST`` for a name that has no address, ``CONFIG_PORT`` for one that cannot be had.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(
            "GATEKEEPER_HOST is no address of this machine", code="CONFIG_HOST", expected="127.0.0.1, 0.0.0.0, :: or a name",
            found=f"{host!r}: {error.strerror}",
        ) from None  # fmt: skip
    with ExitStack() as opened:
        sockets = []
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = opened.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                made.bind(address)
                # A bound socket that does not listen would let another process take the same port.
                made.listen(BACKLOG)
            except OSError as error:
                raise ConfigurationError(
                    "the address of GATEKEEPER_HOST and GATEKEEPER_PORT cannot be had", code="CONFIG_PORT",
                    expected="a port that is free; another one is set with GATEKEEPER_PORT",
                    found=f"{address[0]} port {port}: {error.strerror}",
                ) from None  # fmt: skip
            sockets.append(made)
        yield sockets


def run(app: FastAPI, sockets: list[socket.socket]) -> None:
    """Serve until SIGTERM or SIGINT, and return then, so that the caller can put away what it has opened."""
    # uvicorn raises the signal once more after its own shutdown: with the default handler that would end the process here.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        host, port = sockets[0].getsockname()[:2]
        make_server(app, host, port).run(sockets=sockets)
    except KeyboardInterrupt:
        log.info("interrupted")
    finally:
        signal.signal(signal.SIGTERM, before)
