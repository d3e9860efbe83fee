"""Intake: a hint about a pull request becomes a snapshot.

1. Ask the forge what the pull request is now; the webhook's payload was only a hint.
2. Fetch its head and its base into the bare mirror, by full object ids, checked on the way in.
3. Read the repository's configuration from the base branch and choose the policy set that it names.
4. Compare the trees, store the snapshot as the current one, stop what was asked for an older head, ask for an evaluation.
"""

from __future__ import annotations

from gatekeeper.context import Context
from gatekeeper.domain import repository
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import Claim, JobKind
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.git.snapshots import build
from gatekeeper.services.evaluate import CONFIGURATION
from gatekeeper.store.unit_of_work import UnitOfWork


def key_of(repository_id: int, number: int) -> str:
    """Return the key of the intake job of a pull request."""
    return f"{repository_id}:{number}"


def run(ctx: Context, claim: Claim) -> None:
    """Take a new snapshot of the pull request that ``claim.key`` names as ``<repository id>:<number>``.

    Raises:
        Rejected: if git refuses the objects; the pull request then shows why.
        Conflict: if a ref has vanished or moved while it was looked at; the next event looks again.
        Retryable: if the forge or the remote cannot be reached.
    """
    repository_id, number = (int(part) for part in claim.key.split(":"))
    with ctx.store.read() as uow:
        known = uow.repository(repository_id)
    if known is None:
        raise Rejected("no such repository was ever announced", code="INTAKE_REPOSITORY", found=str(repository_id))
    where = RepositoryRef(id=known.id, full_name=known.full_name)
    facts = ctx.forge.pull(where, number)
    mirror = ctx.mirrors.open(where)
    fetched = mirror.fetch_pull(number, facts.base_ref)
    rules = repository.read(mirror.tree(mirror.commit_tree(fetched.base_sha)))
    book = ctx.books.get(rules.policy_set)
    if book is None:
        rules = _without_policy_set(rules.policy_set, sorted(ctx.books))
        book = ctx.books[ctx.default_policy_set]
    snapshot = build(
        repository_id,
        known.full_name,
        facts,
        mirror,
        head_sha=fetched.head_sha,
        base_sha=fetched.base_sha,
        policy_set=book.digest,
        configuration=rules.digest(),
    )
    if snapshot.merge_tree is not None:
        mirror.pin(snapshot.merge_tree)
    with ctx.store.begin() as uow:
        _supersede(uow, snapshot)
        uow.put_document(CONFIGURATION, rules)
        digest = uow.put_snapshot(snapshot)
        uow.enqueue(JobKind.EVALUATE, digest, delivery_id=claim.delivery_id)


def _supersede(uow: UnitOfWork, snapshot: Snapshot) -> None:
    """Drop queued races and probes that only an older snapshot of this pull request asked for."""
    key = snapshot.key
    older = uow.latest_snapshot(key.repository_id, key.number)
    if older is None or older[1].key == key:
        return
    verdict = uow.latest_verdict(older[0])
    for result in verdict[1].results if verdict else ():
        for requirement in result.requirements:
            if requirement.kind not in ("race", "probe"):
                continue
            others = set(uow.snapshots_with_tree(_tree_of(requirement.request))) - {older[0]}
            if not others:
                uow.cancel(JobKind(requirement.kind), requirement.request.digest())


def _tree_of(request: object) -> str:
    source = getattr(request, "candidate", None) or getattr(request, "source", None)
    return str(getattr(source, "tree", ""))


def _without_policy_set(named: str, installed: list[str]) -> repository.RepositoryConfiguration:
    """A configuration that decides nothing, because the policy set that it names is not installed here."""
    fault = repository.Fault(
        code="CONFIG_POLICY_SET",
        message=f"{repository.CONFIGURATION_PATH} names a policy set that is not installed",
        expected=", ".join(installed),
        found=named,
    )
    return repository.RepositoryConfiguration(fault=fault)
