"""Race and probe: hand a request to a worker; what comes back becomes evidence, and every snapshot that it is about is woken.

The worker's answer is parsed into a result or discarded. A worker that dies says nothing about the candidate: the job is tried
again. A void race is tried again too, :data:`VOID_RETRIES` times whatever else went wrong; then its result is recorded as it
is. A run whose claim is lost (another worker has it, the pull request was closed, its head moved on) is killed.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from gatekeeper.context import Context, Exported, Progress
from gatekeeper.domain.errors import Disturbed, Rejected, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.evidence import Evidence, Origin, ProbeEvidence, RaceEvidence, TreeSubject
from gatekeeper.domain.jobs import Claim, JobKind
from gatekeeper.domain.race import CodeSource, ProbeRequest, RaceOrder, RaceOutcome, RaceRequest, TreeSource
from gatekeeper.git.export import write_directory
from gatekeeper.services.evaluate import PROBE_REQUEST, RACE_REQUEST

VOID_RETRIES = 2
log = structlog.get_logger(__name__)


def race(ctx: Context, claim: Claim) -> None:
    """Run the race whose request digest is ``claim.key``.

    Raises:
        Rejected: if the worker refuses the order.
        Retryable: if no worker answered; ``Disturbed`` if the race was void and may be tried again, ``Postponed`` if the
            machine is taken.
        Conflict: if nobody waits for the race any more.
    """
    with ctx.store.read() as uow:
        request = uow.document(RACE_REQUEST, claim.key, RaceRequest)
    source = _tree_source(request.candidate)
    order = RaceOrder(request=request, alpha=_alpha(claim))
    with wanted(ctx, claim) as stop:
        result = ctx.runner.race(order, _exporter(ctx, claim), _progress(claim), stop)
    if result.outcome is RaceOutcome.VOID and claim.voids < VOID_RETRIES:
        raise Disturbed("the race was void", code="RACE_VOID", found="; ".join(result.reasons)[:500])
    subject = TreeSubject(
        tree=source.tree,
        directory=source.directory,
        suite=request.suite,
        target=request.target.name,
        target_digest=request.target.digest(),
    )
    body = RaceEvidence(request=claim.key, purpose=request.purpose, result=result)
    _record(ctx, claim, Evidence(subject=subject, origin=Origin.OURS, recorded_at=ctx.clock.now(), body=body))


def probe(ctx: Context, claim: Claim) -> None:
    """Run the probe whose request digest is ``claim.key``.

    Raises:
        Rejected: if the worker refuses the order.
        Retryable: if no worker answered; ``Postponed`` if the machine is taken.
        Conflict: if nobody waits for the probe any more.
    """
    with ctx.store.read() as uow:
        request = uow.document(PROBE_REQUEST, claim.key, ProbeRequest)
    with wanted(ctx, claim) as stop:
        result = ctx.runner.probe(request, _exporter(ctx, claim), _progress(claim), stop)
    subject = TreeSubject(tree=request.source.tree, directory=request.source.directory)
    body = ProbeEvidence(request=claim.key, result=result)
    _record(ctx, claim, Evidence(subject=subject, origin=Origin.OURS, recorded_at=ctx.clock.now(), body=body))


@contextmanager
def wanted(ctx: Context, claim: Claim) -> Iterator[threading.Event]:
    """Yield an event that is set once the claim is lost, and look for that while the block runs."""
    stop, over = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(ctx.watch_seconds):
            try:
                with ctx.store.read() as uow:
                    ours = uow.owns(claim)
            except Retryable as error:
                log.warning("run.watch_missed", job=claim.job_id, reason=str(error))
                continue
            if not ours:
                log.warning("run.no_longer_wanted", job=claim.job_id, kind=claim.kind.value, key=claim.key)
                stop.set()
                return

    thread = threading.Thread(target=watch, name=f"watch-{claim.job_id[:8]}", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        over.set()
        thread.join()


def _alpha(claim: Claim) -> float:
    alpha = claim.payload.get("alpha")
    if not isinstance(alpha, float):
        raise Rejected("a race job says how sure it must be", code="RACE_ALPHA", expected="a number", found=repr(alpha))
    return alpha


def _tree_source(source: CodeSource) -> TreeSource:
    if not isinstance(source, TreeSource):
        raise Rejected(
            "a race for a verdict runs a pull request's tree", code="RACE_SOURCE", expected="tree", found=source.kind
        )
    return source


def _record(ctx: Context, claim: Claim, evidence: Evidence) -> None:
    """Store the evidence and wake every current snapshot that its tree belongs to.

    A race also wakes pull requests that have left this tree behind: it has cost them a part of their budget.

    Raises:
        Conflict: if the claim has been lost meanwhile: the first result wins, and this is not it.
    """
    assert isinstance(evidence.subject, TreeSubject)
    with ctx.store.begin() as uow:
        uow.hold(claim)
        uow.put_evidence(evidence)
        affected = set(uow.snapshots_with_tree(evidence.subject.tree))
        if isinstance(evidence.body, RaceEvidence):
            affected.update(uow.snapshots_of_pulls_with_tree(evidence.subject.tree))
        for digest in sorted(affected):
            uow.enqueue(JobKind.EVALUATE, digest, delivery_id=claim.delivery_id)


def _exporter(ctx: Context, claim: Claim) -> Exported:
    """Return a function that writes a directory of a pinned tree from its blobs and removes it afterwards.

    The runner asks for it once the machine is its own: a job that waited for that is then said to run.
    """

    @contextmanager
    def exported(source: TreeSource, place: Path) -> Iterator[Path]:
        if claim.waited_for_machine:
            with ctx.store.begin() as uow:
                uow.begun(claim)
            log.info("job.started", key=claim.key, attempt=claim.attempt)
        with ctx.store.read() as uow:
            known = uow.repository(source.repository_id)
        if known is None:
            raise Rejected("no such repository", code="RACE_SOURCE", found=str(source.repository_id))
        mirror = ctx.mirrors.open(RepositoryRef(id=known.id, full_name=known.full_name))
        with tempfile.TemporaryDirectory(prefix="tree-", dir=place) as folder:
            write_directory(mirror.tree(source.tree), source.directory, Path(folder))
            yield Path(folder)

    return exported


def _progress(claim: Claim) -> Progress:
    def note(event: Mapping[str, Any]) -> None:
        log.info(
            "worker_progress", job=claim.job_id, kind=claim.kind.value, **{f"worker_{k}": v for k, v in event.items()}
        )

    return note
