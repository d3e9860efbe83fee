"""What a request may be, before any route sees it: its host, its size; and the headers that every answer carries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import perf_counter
from typing import Annotated

from fastapi import Query, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog import get_logger

from gatekeeper.domain.errors import Rejected
from gatekeeper.web.errors import answer
from gatekeeper.web.pages import DOCUMENTED

log = get_logger(__name__)

PAGE_SIZE = 50
LARGEST_PAGE = 200
DEEPEST_OFFSET = 10_000

Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="rows in one page")]
Offset = Annotated[int, Query(ge=0, le=DEEPEST_OFFSET, description="rows to leave out")]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_HOST = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]{2,45}\])(:[0-9]{1,5})?")


class SecurityHeaders:
    """Adds the security headers to every answer, errors included, and forbids caching of what may change.

    ``documented`` tells the pages whether there is one about the API to link to.
    """

    def __init__(self, app: ASGIApp, documented: bool = False) -> None:
        self.app = app
        self.documented = documented

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        DOCUMENTED.set(self.documented)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, with_headers)


class TrustedHosts:
    """Refuses a request whose ``Host`` is absent, repeated, malformed or not one of ours: 400 ``HOST``."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not self.trusts(Headers(scope=scope).getlist("host")):
            # The forged name stays out of the answer: rendering reads the path only from the scope.
            safe = {**scope, "headers": [(b"host", b"localhost")]}
            reply = answer(Request(safe), 400, "HOST", "This service does not answer under that name.")
            await reply(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def trusts(self, values: list[str]) -> bool:
        """Return whether exactly one well-formed host is named and it is one of ours, whatever its port."""
        match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        return match is not None and match.group(1).lower() in self.hosts


class RequestLog:
    """Logs each request once: method, path, status, milliseconds. Health checks are left out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in ("/healthz", "/readyz"):
            await self.app(scope, receive, send)
            return
        started = perf_counter()
        status = 500

        async def watching(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watching)
        finally:
            milliseconds = round((perf_counter() - started) * 1000, 1)
            log.info(
                "request", method=scope["method"], path=scope["path"][:300], status=status, milliseconds=milliseconds
            )


def clean_text(name: str, value: str, *, longest: int) -> str:
    """Return a text from a query, or reject what no database should see.

    Raises:
        Rejected: ``TEXT`` for a text that is too long or holds control characters or half of a surrogate pair.
    """
    bad = any(
        ord(character) < 0x20 or ord(character) == 0x7F or 0xD800 <= ord(character) <= 0xDFFF for character in value
    )
    if bad or len(value) > longest:
        raise Rejected(
            f"{name} is not a text that can be looked for",
            code="TEXT", expected=f"at most {longest} characters, none of them control characters",
        )  # fmt: skip
    return value
