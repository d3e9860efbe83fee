"""The HTTP server: uvicorn, with a limit on the time that a connection may take to say what it wants.

uvicorn waits for ever for the end of a request's headers, so a few hundred silent connections would hold every file descriptor
of the process. Bodies have their own limits, in ``webhooks.read_body``: no other route reads one.
"""

from __future__ import annotations

import asyncio
import signal
from typing import ClassVar, cast

import uvicorn
from fastapi import FastAPI
from structlog import get_logger
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 5
STOP_SECONDS = 5
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


def run(app: FastAPI, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT, and return then, so that the caller can put away what it has opened."""
    # uvicorn raises the signal once more after its own shutdown: with the default handler that would end the process here.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        make_server(app, host, port).run()
    except KeyboardInterrupt:
        log.info("interrupted")
    finally:
        signal.signal(signal.SIGTERM, before)
