"""Intake: a hint about a pull request becomes a snapshot.

1. Ask the forge what the pull request is now; the webhook's payload was only a hint.
2. Fetch its head and its base into the bare mirror, by full object ids, checked on the way in.
3. Read the repository's configuration from the base branch and choose the policy set that it names.
4. Compare the trees, store the snapshot as the current one, ask for an evaluation, which stops what nobody needs any more.

What git refuses ends in a snapshot too, one that says why: a pull request is never left without an answer.
"""

from __future__ import annotations

from datetime import timedelta

import structlog

from gatekeeper.context import Context
from gatekeeper.domain import repository
from gatekeeper.domain.errors import Conflict, GatekeeperError, Rejected, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import Claim, JobKind
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.snapshot import PullFacts, Snapshot
from gatekeeper.engine import PolicyBook
from gatekeeper.git.mirror import Mirror
from gatekeeper.git.snapshots import build
from gatekeeper.services import refusals
from gatekeeper.services.evaluate import CONFIGURATION
from gatekeeper.store.pulls import Pull
from gatekeeper.store.unit_of_work import UnitOfWork

LOOK_AGAIN = timedelta(seconds=60)
"""How long to wait for a head that an event has announced and git does not have yet."""
LOG = structlog.get_logger(__name__)


def key_of(repository_id: int, number: int) -> str:
    """Return the key of the intake job of a pull request."""
    return f"{repository_id}:{number}"


def run(ctx: Context, claim: Claim) -> None:
    """Take a new snapshot of the pull request that ``claim.key`` names as ``<repository id>:<number>``.

    What git refuses about the head becomes a snapshot that says so and fails. A head that was announced and that git does
    not have yet is looked for once more after :data:`LOOK_AGAIN`.

    Raises:
        Rejected: ``INTAKE_REPOSITORY`` if no event ever named the repository.
        Conflict: if the forge knows no such pull request, or it is closed and its refs are gone.
        Retryable: if the forge or the remote cannot be reached, or a ref is not there (yet); :func:`give_up` follows the last
            attempt.
    """
    repository_id, number = (int(part) for part in claim.key.split(":"))
    started = ctx.clock.now()
    with ctx.store.read() as uow:
        known, seen = uow.repository(repository_id), uow.pull(repository_id, number)
    if known is None:
        raise Rejected("no such repository was ever announced", code="INTAKE_REPOSITORY", found=str(repository_id))
    where = RepositoryRef(id=known.id, full_name=known.full_name)
    facts = ctx.forge.pull(where, number)
    mirror = ctx.mirrors.open(where)
    snapshot, rules = _look(ctx, mirror, where, facts, seen)
    with ctx.store.begin() as uow:
        uow.put_document(CONFIGURATION, rules)
        digest = uow.put_snapshot(snapshot, seen=seen)
        uow.enqueue(JobKind.EVALUATE, digest, delivery_id=claim.delivery_id)
        uow.deliveries_seen(repository_id, number, started, note="the pull request was looked at")
        if _is_awaited(uow, snapshot, seen):
            uow.enqueue(JobKind.INTAKE, claim.key, run_after=uow.now + LOOK_AGAIN)


def give_up(ctx: Context, claim: Claim, error: BaseException) -> None:
    """Let it show that a pull request could not be read after the last attempt: its verdict becomes ``error``.

    A verdict of the head that stands there keeps its place: it is still true of the head and the base that it names. The
    reconciler asks for another look later.
    """
    repository_id, number = (int(part) for part in claim.key.split(":"))
    with ctx.store.begin() as uow:
        known, pull = uow.repository(repository_id), uow.pull(repository_id, number)
        current = uow.latest_snapshot(repository_id, number)
        if known is None or pull is None or not pull.open:
            return
        if current is not None and current[1].key.head_sha == pull.head_sha and current[1].refusal is None:
            LOG.warning("intake.kept_verdict", key=claim.key, head=pull.head_sha, reason=str(error))
            return
        snapshot, rules = refusals.unreadable(ctx, known, pull, error)
        uow.put_document(CONFIGURATION, rules)
        uow.enqueue(JobKind.EVALUATE, uow.put_snapshot(snapshot, seen=pull), delivery_id=claim.delivery_id)


def _look(
    ctx: Context, mirror: Mirror, where: RepositoryRef, facts: PullFacts, seen: Pull | None
) -> tuple[Snapshot, RepositoryConfiguration]:
    """Return the snapshot of a pull request as git has it now, with the configuration of its base."""
    try:
        fetched = mirror.fetch_pull(facts.number, facts.base_ref)
        rules = repository.read(mirror.tree(mirror.commit_tree(fetched.base_sha)))
        book, rules = book_of(ctx, rules)
        snapshot = build(
            where.id,
            where.full_name,
            facts,
            mirror,
            head_sha=fetched.head_sha,
            base_sha=fetched.base_sha,
            policy_set=book.digest,
            configuration=rules.digest(),
        )
    except Conflict as error:
        if not facts.open:
            raise
        raise Retryable(
            "a ref of an open pull request is not there", code=error.code, expected="its head and its base branch",
            found=error.found,
        ) from error  # fmt: skip
    except GatekeeperError as error:
        if not refusals.is_of_the_objects(error):
            raise
        LOG.warning("intake.refused", repository=where.full_name, number=facts.number, reason=str(error))
        snapshot, rules = refusals.refused(ctx, mirror, where, facts, seen, error)
    else:
        if snapshot.merge_tree is not None:
            mirror.pin(snapshot.merge_tree)
    return snapshot, rules


def book_of(ctx: Context, rules: RepositoryConfiguration) -> tuple[PolicyBook, RepositoryConfiguration]:
    """Return the policy set that a configuration names; one that is not installed here becomes the configuration's fault."""
    book = ctx.books.get(rules.policy_set)
    if book is None:
        return ctx.books[ctx.default_policy_set], _without_policy_set(rules.policy_set, sorted(ctx.books))
    return book, rules


def _is_awaited(uow: UnitOfWork, snapshot: Snapshot, seen: Pull | None) -> bool:
    """Whether an event has announced a head that git has never shown: the forge's refs may lag behind its events."""
    if seen is None or not seen.open or seen.head_sha == snapshot.key.head_sha:
        return False
    return not uow.head_was_seen(snapshot.key.repository_id, seen.head_sha)


def _without_policy_set(named: str, installed: list[str]) -> repository.RepositoryConfiguration:
    """A configuration that decides nothing, because the policy set that it names is not installed here."""
    fault = repository.Fault(
        code="CONFIG_POLICY_SET",
        message=f"{repository.CONFIGURATION_PATH} names a policy set that is not installed",
        expected=", ".join(installed),
        found=named,
    )
    return repository.RepositoryConfiguration(fault=fault)
