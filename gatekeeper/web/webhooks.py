"""``POST /webhooks/github``: raw bytes in, everything durable, then 202.

Order: headers (401, 415, 400), size (413), signature over the raw bytes (401), and only then is anything parsed (400, 422).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from structlog import get_logger

from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.events import BaseMoved, Event, Ping, PullRequestAction, PullRequestChanged
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.verdict import Verdict
from gatekeeper.github.payloads import parse_object
from gatekeeper.github.signatures import read_signature, verify_signature
from gatekeeper.github.webhooks import DELIVERY_ID, EVENT_NAME, HOOK_ID, Ignored, read_event
from gatekeeper.logs import carrying
from gatekeeper.store.unit_of_work import UnitOfWork
from gatekeeper.web.options import WebContext, WebOptions

log = get_logger(__name__)

ALWAYS_APPLIES = "applicability"
MEDIA_TYPES = frozenset({"application/json", "application/json;charset=utf-8"})


@dataclass(frozen=True)
class Delivery:
    """The headers of a delivery, checked for form. ``signature`` is the claimed digest in hexadecimal."""

    event: str
    guid: str
    hook_id: int
    signature: bytes


def router(ctx: WebContext, options: WebOptions) -> APIRouter:
    """Return the intake route."""
    routes = APIRouter(tags=["intake"])

    @routes.post("/webhooks/github", status_code=202, summary="Take a delivery of GitHub")
    async def receive(request: Request) -> JSONResponse:
        """Answer 202 once the delivery is stored. 401: signature; 400, 422: malformed; 413: too large; 415: not JSON."""
        delivery = read_headers(request)
        with carrying(delivery=delivery.guid, event_name=delivery.event):
            body = await read_body(request, options)
            verify_signature(delivery.signature, body, options.webhook_secrets)
            status = await run_in_threadpool(take, ctx, delivery, body)
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


def take(ctx: WebContext, delivery: Delivery, body: bytes) -> dict[str, str]:
    """Parse a delivery whose signature is right and store what follows from it; return the status for the sender.

    Raises:
        Rejected: if the payload is malformed; nothing is stored then.
    """
    event = read_event(delivery.event, parse_object(body))
    if isinstance(event, PullRequestChanged | BaseMoved) and not _taken(event.repository.full_name, ctx):
        event = Ignored("this installation takes no deliveries from that repository")
    if isinstance(event, Ignored):
        log.info("delivery ignored", reason=event.reason, known=event.known)
        return {"status": "ignored", "reason": event.reason}
    fresh = _store(ctx, delivery, body, event)
    log.info("delivery accepted" if fresh else "delivery already done", event_type=type(event).__name__)
    return {"status": "accepted" if fresh else "duplicate"}


def _taken(full_name: str, ctx: WebContext) -> bool:
    allowed = ctx.allowed_repositories
    return not allowed or full_name.lower() in {name.lower() for name in allowed}


def _store(ctx: WebContext, delivery: Delivery, body: bytes, event: Event) -> bool:
    action = event.action.value if isinstance(event, PullRequestChanged) else None
    keys = intake_keys(ctx, event)
    with ctx.store.begin() as uow:
        if not uow.record_delivery(delivery.hook_id, delivery.guid, delivery.event, action, body, uow.now):
            return False
        if not isinstance(event, Ping):
            uow.remember_repository(event.repository, event.installation_id)
        if isinstance(event, PullRequestChanged):
            _remember(uow, event)
        for key in keys:
            uow.enqueue(
                JobKind.INTAKE,
                key,
                payload={"hook_id": delivery.hook_id},
                run_after=uow.now + ctx.coalesce,
                delivery_id=delivery.guid,
            )
        if not keys:
            uow.delivery_done(delivery.hook_id, delivery.guid, note="nothing to do")
        return True


def _remember(uow: UnitOfWork, event: PullRequestChanged) -> None:
    """Keep what the event says: hints for people, and all there is to know where no API can be asked."""
    uow.remember_pull(
        event.repository.id, event.number, title=event.title, author_id=event.author_id,
        author_login=event.author_login, base_ref=event.base_ref, draft=event.draft, open=event.open,
        head_sha=event.head_sha,
    )  # fmt: skip


def intake_keys(ctx: WebContext, event: Event) -> list[str]:
    """Return the keys of the intake jobs that an event asks for; intake then reads the state of each as it is now.

    A moved base asks only for open pull requests that are judged at all: the verdict of any other does not depend on it.
    """
    match event:
        case PullRequestChanged(action=PullRequestAction.UNKNOWN) | Ping():
            return []
        case PullRequestChanged():
            return [f"{event.repository.id}:{event.number}"]
        case BaseMoved():
            with ctx.store.read() as uow:
                return [
                    f"{pull.repository_id}:{pull.number}"
                    for pull in uow.open_pulls(event.repository.id, event.ref)
                    if pull.verdict is None or is_judged(uow.verdict(pull.verdict))
                ]


def is_judged(verdict: Verdict) -> bool:
    """Return whether more than the policy that always applies had something to say in this verdict."""
    return any(result.outcome is not None for result in verdict.results if result.policy != ALWAYS_APPLIES)
