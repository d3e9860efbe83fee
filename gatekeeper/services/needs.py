"""What a verdict still needs from workers: asked for once, taken back when nobody wants it any more.

Level-triggered like the evaluation that calls it: the verdict before and the verdict now say what has to run and what must not
run any more. A job that somebody else's open pull request needs too is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gatekeeper.domain.documents import Document
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import ProbeRequirement, RaceRequirement
from gatekeeper.domain.precedence import race_waits_for
from gatekeeper.domain.race import TreeSource
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.store.jobs import CANCELLED, JobRow
from gatekeeper.store.unit_of_work import ReadUnit, UnitOfWork

RACE_REQUEST = "race_request"
PROBE_REQUEST = "probe_request"
PROBES_FIRST = 1000
"""Priority of a probe: it takes seconds, and races wait for it. A race's is 0, less one for each of its author's that waits."""

EARLIER = 20
"""How many snapshots back a pull request is cleared up."""

Need = RaceRequirement | ProbeRequirement


def ask(
    uow: UnitOfWork, digest: str, snapshot: Snapshot, before: Verdict | None, now: Verdict, delivery_id: str | None
) -> None:
    """Ask for what a snapshot's verdict needs and may have now; take back what only an earlier verdict may have had.

    With the first verdict of a snapshot, what the snapshots before it had asked for is taken back: not earlier, because a
    moved base often leaves the very tree that is being raced as it is. A closed pull request may have nothing.
    """
    permitted = {need.request.digest(): need for need in permitted_to(snapshot, now)}
    for key, need in permitted.items():
        _ask_once(uow, key, need, snapshot, frozenset(now.evidence), delivery_id)
    left = [before] if before else list(_of_earlier_snapshots(uow, digest, snapshot))
    for verdict in (now, *left):
        for need in needs_of(verdict):
            if need.request.digest() not in permitted:
                _take_back(uow, digest, need, frozenset(now.evidence if before is None else before.evidence))


def needs_of(verdict: Verdict | None) -> Iterator[Need]:
    """Yield what a verdict asks of workers, whether it may have it yet or not."""
    for result in verdict.results if verdict else ():
        for requirement in result.requirements:
            if isinstance(requirement, RaceRequirement | ProbeRequirement):
                yield requirement


def given_up(uow: ReadUnit, verdict: Verdict) -> Iterator[tuple[Need, JobRow]]:
    """Yield what a verdict needs and workers have given up, each once."""
    for need in {each.request.digest(): each for each in needs_of(verdict)}.values():
        job = uow.job_named(JobKind(need.kind), need.request.digest())
        if job is not None and job.state is JobState.FAILED and not was_cancelled(job):
            yield need, job


def was_cancelled(job: JobRow) -> bool:
    """Return whether a job ended because nobody wanted it, which says nothing about whether it could be done."""
    return job.state is JobState.FAILED and (job.error or "").startswith(CANCELLED)


def _of_earlier_snapshots(uow: ReadUnit, digest: str, snapshot: Snapshot) -> Iterator[Verdict]:
    for earlier in uow.snapshots_of_pull(snapshot.key.repository_id, snapshot.key.number, EARLIER):
        latest = uow.latest_verdict(earlier) if earlier != digest else None
        if latest is not None:
            yield latest[1]


def permitted_to(snapshot: Snapshot, verdict: Verdict) -> Iterator[Need]:
    """Yield what a verdict needs of workers and may have now: nothing of a closed pull request, no race before cheaper facts."""
    if not snapshot.open:
        return
    races = not race_waits_for(verdict.results)
    for need in needs_of(verdict):
        if isinstance(need, ProbeRequirement) or (races and need.request.target.owned):
            yield need


def _ask_once(
    uow: UnitOfWork, key: str, need: Need, snapshot: Snapshot, seen: frozenset[str], delivery_id: str | None
) -> None:
    """Ask for a job, unless it is under way or was given up.

    One that has succeeded and is needed all the same is asked for again: its evidence is too old, or one race was not enough.
    It is not while there is evidence that this verdict has not seen yet; that has its own evaluation coming.
    """
    kind = JobKind(need.kind)
    job = uow.job_named(kind, key)
    payload: Mapping[str, int | float] = {}
    if isinstance(need, RaceRequirement):
        payload = {"alpha": need.alpha, "author": snapshot.author.id}
    if job is not None and job.state is JobState.QUEUED:
        # The budget has shrunk while it waited, or a second pull request has a smaller one: the stricter alpha serves both.
        asked = job.payload.get("alpha")
        if isinstance(asked, float) and isinstance(need, RaceRequirement) and need.alpha < asked:
            uow.enqueue(kind, key, payload={**job.payload, "alpha": need.alpha}, delivery_id=delivery_id)
        return
    spent = job is not None and job.state is JobState.SUCCEEDED and uow.answers_to(key) <= seen
    if job is None or was_cancelled(job) or spent:
        request: Document = need.request
        uow.put_document(RACE_REQUEST if kind is JobKind.RACE else PROBE_REQUEST, request)
        priority = PROBES_FIRST if kind is JobKind.PROBE else -_waiting_races(uow, snapshot.author.id)
        uow.enqueue(kind, key, payload=payload, delivery_id=delivery_id, priority=priority)


def _waiting_races(uow: UnitOfWork, author: int) -> int:
    """How many races of an author wait or run: each puts the next one behind the first of everybody else."""
    waiting: Iterable[dict[str, object]] = uow.payloads(JobKind.RACE, (JobState.QUEUED, JobState.RUNNING))
    return sum(payload.get("author") == author for payload in waiting)


def _take_back(uow: UnitOfWork, digest: str, need: Need, seen: frozenset[str]) -> None:
    source = need.request.candidate if isinstance(need, RaceRequirement) else need.request.source
    key = need.request.digest()
    if not isinstance(source, TreeSource) or set(uow.snapshots_with_tree(source.tree, open_only=True)) - {digest}:
        return
    if uow.answers_to(key) <= seen:  # else its result is there and it is about to end by itself
        uow.cancel(JobKind(need.kind), key)
