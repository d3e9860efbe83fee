"""Evaluate: all facts that are present now, through the policies, to a verdict and to what it still needs.

Level-triggered: it does not matter what woke it. A push, a race result, a waiver, a new policy set and a request to look again
all end here, for the same snapshot, and the same facts give the same verdict.

1. Skip a snapshot that is no longer the current one of its pull request.
2. Gather the trees, the configuration and the evidence; run every policy; decide.
3. Store the verdict if it says something new.
4. Ask for what is missing: probes, and races on targets that we own; take back what is not wanted any more.
5. Ask every publisher to show the latest verdict.
"""

from __future__ import annotations

from dataclasses import replace

from gatekeeper.context import Context
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.jobs import Claim, JobKind, JobState
from gatekeeper.domain.policy import Check, Effect, Finding, Outcome, PolicyInput, PolicyResult, Severity
from gatekeeper.domain.refusals import ENGINE, results_of
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict, decide
from gatekeeper.domain.zones import fast_track
from gatekeeper.engine import PolicyBook
from gatekeeper.engine import run as run_policies
from gatekeeper.services import needs
from gatekeeper.store.unit_of_work import UnitOfWork

CONFIGURATION = "configuration"
RACE_REQUEST = needs.RACE_REQUEST
PROBE_REQUEST = needs.PROBE_REQUEST


def run(ctx: Context, claim: Claim) -> None:
    """Evaluate the snapshot whose digest is ``claim.key``.

    Raises:
        Retryable: if the mirror or the database is busy; nothing is decided then.
    """
    evaluate(ctx, claim.key, delivery_id=claim.delivery_id)


def evaluate(ctx: Context, digest: str, *, delivery_id: str | None = None) -> Verdict | None:
    """Evaluate one snapshot and store what follows. Returns the verdict, or None if the snapshot has been superseded."""
    with ctx.store.read() as uow:
        snapshot = uow.snapshot(digest)
        current = uow.latest_snapshot(snapshot.key.repository_id, snapshot.key.number)
        rules = uow.document(CONFIGURATION, snapshot.configuration, RepositoryConfiguration)
    if current is None or current[0] != digest:
        return None
    book = _book(ctx, snapshot, rules)
    if snapshot.refusal is not None:
        with ctx.store.begin() as uow:
            refused = results_of(snapshot.refusal, book.digest)
            return _conclude(ctx, uow, digest, snapshot, book, rules, (), refused, delivery_id)
    subject = _gather(ctx, snapshot, rules)
    trees = _specialised_trees(subject)
    with ctx.store.read() as uow:
        evidence = uow.evidence_for(snapshot, trees)
    subject = replace(subject, evidence=tuple(item for _, item in evidence))
    results = run_policies(book, subject)
    names = tuple(name for name, _ in evidence)
    with ctx.store.begin() as uow:
        uow.note_trees(digest, trees)
        return _conclude(ctx, uow, digest, snapshot, book, rules, names, results, delivery_id)


def record_error(ctx: Context, digest: str, error: BaseException) -> None:
    """Make the verdict of a snapshot ``error`` because gatekeeper itself failed: doubt blocks, and says so."""
    code = error.code if isinstance(error, GatekeeperError) else "INTERNAL_ERROR"
    finding = Finding(code=code, message="gatekeeper could not decide", found=f"{type(error).__name__}: {error}"[:500])
    with ctx.store.begin() as uow:
        snapshot = uow.snapshot(digest)
        rules = uow.document(CONFIGURATION, snapshot.configuration, RepositoryConfiguration)
        book = _book(ctx, snapshot, rules)
        _conclude(ctx, uow, digest, snapshot, book, rules, (), (_own_fault(Check.SCOPE, [finding], book),), None)


def _own_fault(check: Check, findings: list[Finding], book: PolicyBook) -> PolicyResult:
    """A result that says that gatekeeper or its machines failed, not the candidate."""
    return PolicyResult(
        policy=ENGINE,
        check=check,
        severity=Severity.BLOCKING,
        title="gatekeeper itself",
        outcome=Outcome.ERROR,
        summary=findings[0].message,
        findings=tuple(finding.model_copy(update={"policy": ENGINE, "effect": Effect.FAIL}) for finding in findings),
        parameters=book.digest,
    )


def _failed_work(uow: UnitOfWork, results: tuple[PolicyResult, ...], book: PolicyBook) -> tuple[PolicyResult, ...]:
    """Races and probes that were asked for and given up: the result is ``error`` until somebody asks again."""
    faults: dict[Check, dict[str, Finding]] = {}
    for result in results:
        for requirement in result.requirements:
            if requirement.kind not in ("race", "probe"):
                continue
            job = uow.job_named(JobKind(requirement.kind), requirement.request.digest())
            if job is not None and job.state is JobState.FAILED and not needs.was_cancelled(job):
                message = f"the {requirement.kind} could not be run"
                finding = Finding(
                    code="RUN_INFRASTRUCTURE", message=message, found=(job.error or "no reason known")[:500]
                )
                faults.setdefault(result.check, {})[job.id] = finding  # two policies may rest on one race
    return tuple(_own_fault(check, list(findings.values()), book) for check, findings in faults.items())


def _book(ctx: Context, snapshot: Snapshot, rules: RepositoryConfiguration) -> PolicyBook:
    """The policy set that the snapshot was taken under; if it has changed since, today's set of the same name judges."""
    for book in ctx.books.values():
        if book.digest == snapshot.key.policy_set:
            return book
    return ctx.books.get(rules.policy_set) or ctx.books[ctx.default_policy_set]


def _gather(ctx: Context, snapshot: Snapshot, rules: RepositoryConfiguration) -> PolicyInput:
    mirror = ctx.mirrors.open(RepositoryRef(id=snapshot.key.repository_id, full_name=snapshot.repository))
    return PolicyInput(
        snapshot=snapshot,
        configuration=rules,
        catalog=ctx.catalog,
        base=mirror.tree(snapshot.base_tree),
        head=mirror.tree(snapshot.head_tree),
        merged=mirror.tree(snapshot.merge_tree) if snapshot.merge_tree is not None else None,
        evidence=(),
        now=ctx.clock.now(),
    )


def _specialised_trees(subject: PolicyInput) -> tuple[str, ...]:
    """Object ids of the specialised directories in the merge result: what races and probes are evidence about."""
    if subject.merged is None or subject.configuration.fault is not None:
        return ()
    touched = fast_track(subject)
    entries = [subject.merged.entry(directory) for directory in (touched.directories if touched else ())]
    return tuple(entry.id for entry in entries if entry is not None and entry.kind == "tree")


def _conclude(
    ctx: Context,
    uow: UnitOfWork,
    digest: str,
    snapshot: Snapshot,
    book: PolicyBook,
    rules: RepositoryConfiguration,
    evidence: tuple[str, ...],
    results: tuple[PolicyResult, ...],
    delivery_id: str | None,
) -> Verdict:
    results += _failed_work(uow, results, book)
    latest = uow.latest_verdict(digest)
    verdict = decide(
        snapshot=digest,
        policy_set=book.digest,
        policy_set_name=book.name,
        evidence=evidence,
        results=results,
        supersedes=latest[0] if latest else None,
        now=ctx.clock.now(),
        mode=rules.mode,
    )
    if latest is not None and latest[1].says_the_same_as(verdict):
        verdict = latest[1]
    else:
        uow.put_verdict(verdict)
    pull = uow.pull(snapshot.key.repository_id, snapshot.key.number)
    if pull is not None and (pull.snapshot, pull.head_sha) == (digest, snapshot.key.head_sha):
        # Else something newer came while the policies ran: nobody would take back what was asked for now.
        needs.ask(uow, digest, snapshot, latest[1] if latest else None, verdict, delivery_id)
    for publisher in ctx.publishers:
        key = f"{publisher.name}:{snapshot.key.repository_id}:{snapshot.key.number}"
        uow.enqueue(JobKind.PUBLISH, key, delivery_id=delivery_id)
    return verdict
