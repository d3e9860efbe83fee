"""Take a delivery whose signature is right: who may send it, whether it was there before, whether it is too much, what follows.

All of it is one transaction: a delivery that is refused leaves nothing behind but a log record, and one that is accepted is
stored with the work that it asks for before GitHub gets its answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.events import BaseMoved, Event, Ping, PullRequestAction, PullRequestChanged
from gatekeeper.domain.jobs import JobKind
from gatekeeper.domain.verdict import Verdict
from gatekeeper.github.payloads import parse_object
from gatekeeper.github.tenants import Keyring, Tenant
from gatekeeper.github.webhooks import Ignored, read_event
from gatekeeper.services.intake import key_of
from gatekeeper.store.deliveries import Received
from gatekeeper.store.unit_of_work import ReadUnit, Store, UnitOfWork

ALWAYS_APPLIES = "applicability"
WINDOW = timedelta(minutes=1)
"""Span of time over which deliveries are counted."""
CLOCKS_APART = timedelta(days=1)
"""A time of the forge that lies further ahead of ours than this is no time to order events by."""
PENDING_PAUSE = 60
"""Seconds to come back after when too many pull requests wait to be read."""
log = structlog.get_logger(__name__)


class Surroundings(Protocol):
    """The part of the context that is needed here."""

    @property
    def store(self) -> Store:
        """The database."""
        ...

    @property
    def coalesce(self) -> timedelta:
        """How long an intake waits for further pushes to the same pull request."""
        ...


@dataclass(frozen=True)
class Quotas:
    """How much one repository, and one sender or author in it, may ask for. Other repositories are not counted with it.

    ``repository_deliveries``, ``sender_deliveries``: deliveries in a minute. ``repository_bytes``: bytes of bodies in a minute.
    ``repository_intakes``, ``author_intakes``: pull requests that may wait to be read at the same time.
    """

    repository_deliveries: int = 300
    sender_deliveries: int = 120
    repository_bytes: int = 128 * 1024 * 1024
    repository_intakes: int = 500
    author_intakes: int = 50


@dataclass(frozen=True)
class Delivery:
    """The headers of a delivery, checked for form. ``signature`` is the claimed digest in hexadecimal."""

    event: str
    guid: str
    hook_id: int
    signature: bytes


class OverQuota(Rejected):
    """Too much at once: 429 ``HOOK_QUOTA``. ``retry_after`` is the number of seconds after which there is room again."""

    def __init__(self, message: str, *, expected: str, found: str, retry_after: int) -> None:
        super().__init__(message, code="HOOK_QUOTA", expected=expected, found=found)
        self.retry_after = retry_after


def take(
    ctx: Surroundings, keyring: Keyring, quotas: Quotas, delivery: Delivery, body: bytes, signers: frozenset[str]
) -> dict[str, str]:
    """Parse a delivery and store what follows from it; return the status for the sender.

    Args:
        ctx: the database and how long intakes wait.
        keyring: who may speak for which repository.
        quotas: how much is too much.
        delivery: its headers.
        body: its raw bytes.
        signers: scopes whose secret signed them.

    Raises:
        Rejected: ``HOOK_JSON``, ``HOOK_MEDIA``, ``HOOK_PAYLOAD`` or ``HOOK_TEXT`` for a malformed body, ``HOOK_REPO`` for a
            repository that the signer may not speak for, ``HOOK_QUOTA`` (:class:`OverQuota`). Nothing is stored then.
    """
    event = read_event(delivery.event, parse_object(body))
    if isinstance(event, Ignored):
        log.info("delivery ignored", reason=event.reason, known=event.known)
        return {"status": "ignored", "reason": event.reason}
    try:
        with ctx.store.begin() as uow:
            fresh = _store(ctx, uow, keyring, quotas, delivery, body, signers, event)
    except Rejected as error:
        log.warning("delivery refused", code=error.code, reason=error.message, found=error.found, hook=delivery.hook_id)
        raise
    log.info("delivery accepted" if fresh else "delivery already done", event_type=type(event).__name__)
    return {"status": "accepted" if fresh else "duplicate"}


def _store(
    ctx: Surroundings,
    uow: UnitOfWork,
    keyring: Keyring,
    quotas: Quotas,
    delivery: Delivery,
    body: bytes,
    signers: frozenset[str],
    event: Event,
) -> bool:
    """Store a delivery and what it asks for. Returns False if it was done before."""
    action = event.action.value if isinstance(event, PullRequestChanged) else None
    if isinstance(event, Ping):
        fresh = uow.record_delivery(delivery.hook_id, delivery.guid, delivery.event, action, body, uow.now)
        uow.delivery_done(delivery.hook_id, delivery.guid, note="nothing to do")
        return fresh
    _authorise(uow, keyring, signers, event)
    # The row of the repository is written first: deliveries of one repository are then counted one after the other.
    uow.remember_repository(event.repository, event.installation_id)
    before = uow.delivery(delivery.hook_id, delivery.guid)
    keys = intake_keys(uow, event)
    if before is None or before.body != body:  # an id that is used again for something else earns no exemption
        _demand_room(uow, quotas, event, len(body), keys)
    if not uow.record_delivery(
        delivery.hook_id, delivery.guid, delivery.event, action, body, uow.now, repository_id=event.repository.id,
        number=event.number if isinstance(event, PullRequestChanged) else None, sender_id=event.sender_id,
    ):  # fmt: skip
        return False
    if isinstance(event, PullRequestChanged) and not _remember(uow, event, again=before is not None):
        log.info("hint is older than what is known", number=event.number, head=event.head_sha)
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


def _authorise(uow: ReadUnit, keyring: Keyring, signers: frozenset[str], event: PullRequestChanged | BaseMoved) -> None:
    row = uow.repository(event.repository.id)
    named = Tenant(event.repository.full_name, event.installation_id)
    keyring.demand(signers, named, Tenant(row.full_name, row.installation_id) if row else None)


def _remember(uow: UnitOfWork, event: PullRequestChanged, *, again: bool) -> bool:
    """Keep what the event says: hints for people, and all there is to know where no API can be asked."""
    event_at = event.updated_at
    if event_at is not None and event_at > uow.now + CLOCKS_APART:
        event_at = uow.now  # kept, it would make every later event look old
    return uow.remember_pull(
        event.repository.id, event.number, title=event.title, author_id=event.author_id,
        author_login=event.author_login, base_ref=event.base_ref, draft=event.draft, open=event.open,
        head_sha=event.head_sha, event_at=event_at, again=again,
    )  # fmt: skip


def intake_keys(uow: ReadUnit, event: Event) -> list[str]:
    """Return the keys of the intake jobs that an event asks for; intake then reads the state of each as it is now.

    A moved base asks only for open pull requests that are judged at all: the verdict of any other does not depend on it.
    """
    match event:
        case PullRequestChanged(action=PullRequestAction.UNKNOWN) | Ping():
            return []
        case PullRequestChanged():
            return [key_of(event.repository.id, event.number)]
        case BaseMoved():
            return [
                key_of(pull.repository_id, pull.number)
                for pull in uow.open_pulls(event.repository.id, event.ref)
                if pull.verdict is None or is_judged(uow.verdict(pull.verdict))
            ]


def is_judged(verdict: Verdict) -> bool:
    """Return whether more than the policy that always applies had something to say in this verdict."""
    return any(result.outcome is not None for result in verdict.results if result.policy != ALWAYS_APPLIES)


def _demand_room(
    uow: ReadUnit, quotas: Quotas, event: PullRequestChanged | BaseMoved, size: int, keys: Sequence[str]
) -> None:
    """Refuse what is too much. A pull request that already waits to be read costs no further job and is not counted again."""
    since, repository = uow.now - WINDOW, event.repository.id
    came = uow.received(since, repository_id=repository)
    _demand_rate(uow, came, "deliveries of this repository", came.deliveries, quotas.repository_deliveries)
    if came.deliveries:  # one body by itself is bounded by its own limit
        _demand_rate(uow, came, "bytes of this repository", came.bytes + size - 1, quotas.repository_bytes)
    if event.sender_id is not None:
        sent = uow.received(since, repository_id=repository, sender_id=event.sender_id)
        _demand_rate(uow, sent, "deliveries of this sender", sent.deliveries, quotas.sender_deliveries)
    if not isinstance(event, PullRequestChanged) or not keys:
        return
    waiting = uow.waiting_intakes(repository)
    if event.number in waiting:
        return
    _demand_place("pull requests of this repository", len(waiting), quotas.repository_intakes)
    if len(waiting) >= quotas.author_intakes:
        own = uow.pulls_of_author(repository, event.author_id, waiting)
        _demand_place("pull requests of this author", own, quotas.author_intakes)


def _demand_rate(uow: ReadUnit, came: Received, what: str, found: int, most: int) -> None:
    if found >= most:
        first = came.first or uow.now
        raise OverQuota(
            f"too many {what} in a minute",
            expected=f"at most {most}",
            found=str(found),
            retry_after=max(1, math.ceil((first + WINDOW - uow.now).total_seconds())),
        )


def _demand_place(what: str, found: int, most: int) -> None:
    if found >= most:
        raise OverQuota(
            f"too many {what} wait to be read",
            expected=f"at most {most}",
            found=str(found),
            retry_after=PENDING_PAUSE,
        )
