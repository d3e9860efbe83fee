"""``POST /webhooks/github``: raw bytes in, everything durable, then 202.

Order: headers (401, 415, 400), size and pace (413, 408), signature over the raw bytes (401), and only then is anything parsed
(400, 422), held against the secret that signed it (403) and against the quotas (429).
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from gatekeeper.domain.errors import Rejected
from gatekeeper.github.signatures import read_signature
from gatekeeper.github.webhooks import DELIVERY_ID, EVENT_NAME, HOOK_ID
from gatekeeper.logs import carrying
from gatekeeper.services.deliveries import Delivery, take
from gatekeeper.web.options import WebContext, WebOptions

MEDIA_TYPES = frozenset({"application/json", "application/json;charset=utf-8"})


ANSWERS: dict[int | str, dict[str, Any]] = {
    400: {"description": "headers, length or JSON are not as GitHub sends them"},
    401: {"description": "not signed with a secret of this service"},
    403: {"description": "the repository is not served here, or its secret is another one"},
    408: {"description": "the body came too slowly"},
    413: {"description": "the body is too large"},
    415: {"description": "not plain JSON in UTF-8"},
    422: {"description": "a field of the payload is missing or malformed"},
    429: {"description": "too much at once; Retry-After says when there is room again"},
    503: {"description": "the database cannot be reached; nothing was stored"},
}


def router(ctx: WebContext, options: WebOptions) -> APIRouter:
    """Return the intake route."""
    routes = APIRouter(tags=["intake"])

    @routes.post(
        "/webhooks/github",
        status_code=202,
        summary="Take a delivery of GitHub",
        response_description="stored, stored before, or nothing that is acted on",
        responses=ANSWERS,
    )
    async def receive(request: Request) -> JSONResponse:
        """Answer 202 once the delivery is stored, or was stored before, or is about something that nothing here acts on."""
        delivery = read_headers(request)
        with carrying(delivery=delivery.guid, event_name=delivery.event):
            body = await read_body(request, options)
            signers = options.keyring.signers(delivery.signature, body)
            status = await run_in_threadpool(take, ctx, options.keyring, options.quotas, delivery, body, signers)
            return JSONResponse({**status, "delivery": delivery.guid}, status_code=202)

    return routes


def read_headers(request: Request) -> Delivery:
    """Check the headers of a delivery.

    Raises:
        Rejected: ``HOOK_SIGNATURE``, ``HOOK_HEADERS`` (401), ``HOOK_MEDIA`` (415) or ``HOOK_EVENT`` (400).
    """
    signature = read_signature([value for name, value in request.headers.raw if name == b"x-hub-signature-256"])
    media = [value.replace(" ", "").lower() for value in request.headers.getlist("content-type")]
    encodings = [value.strip().lower() for value in request.headers.getlist("content-encoding")]
    if len(media) != 1 or media[0] not in MEDIA_TYPES or any(value not in ("", "identity") for value in encodings):
        raise Rejected(
            "the body is not plain JSON",
            code="HOOK_MEDIA",
            expected="application/json in UTF-8, without a content encoding",
        )
    return Delivery(
        event=_one(request, "X-GitHub-Event", EVENT_NAME.fullmatch),
        guid=_one(request, "X-GitHub-Delivery", DELIVERY_ID.fullmatch).lower(),
        hook_id=int(_one(request, "X-GitHub-Hook-ID", HOOK_ID.fullmatch, default="0")),
        signature=signature,
    )


def _one(request: Request, name: str, fits: Any, *, default: str | None = None) -> str:
    values = request.headers.getlist(name)
    if not values and default is not None:
        return default
    if len(values) != 1 or not fits(values[0]):
        found = f"{len(values)} of them" if len(values) != 1 else "another form"
        raise Rejected(
            f"the header {name} is not as GitHub sends it", code="HOOK_EVENT", expected="exactly one", found=found
        )
    return values[0]


async def read_body(request: Request, options: WebOptions) -> bytes:
    """Read the body, counting: what the sender says about its length is only taken as a reason to refuse earlier.

    Raises:
        Rejected: ``HOOK_LENGTH`` (400), ``HOOK_SIZE`` (413) or ``HOOK_SLOW`` (408).
    """
    declared = _declared_length(request)
    if declared is not None and declared > options.largest_delivery:
        raise _too_large(options)
    chunks: list[bytes] = []
    size = 0
    stream = request.stream()
    try:
        async with asyncio.timeout(options.slowest_delivery):
            while True:
                try:
                    chunk = await asyncio.wait_for(anext(stream), options.slowest_chunk)
                except StopAsyncIteration:
                    break
                size += len(chunk)
                if size > options.largest_delivery:
                    raise _too_large(options)
                chunks.append(chunk)
    except TimeoutError:
        raise Rejected("the body came too slowly", code="HOOK_SLOW") from None
    if declared is not None and declared != size:
        raise Rejected(
            "the body is not as long as it said", code="HOOK_LENGTH", expected=str(declared), found=str(size)
        )
    return b"".join(chunks)


def _declared_length(request: Request) -> int | None:
    values = request.headers.getlist("content-length")
    if not values:
        return None
    if len(values) != 1 or not (values[0].isascii() and values[0].isdigit()) or len(values[0]) > 18:
        raise Rejected("the content length is not a number", code="HOOK_LENGTH", expected="one whole number")
    return int(values[0])


def _too_large(options: WebOptions) -> Rejected:
    return Rejected("the body is too large", code="HOOK_SIZE", expected=f"at most {options.largest_delivery} bytes")
