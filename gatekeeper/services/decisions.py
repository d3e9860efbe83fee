"""What people decide about a pull request: recorded as evidence with who, why and when, and judged anew at once.

Whoever decides has to have the right to it by the base branch (its CODEOWNERS, and the maintainers and teams of its
configuration), is not the author, and names the full head that was looked at: a head that was pushed meanwhile is never
meant. The policies ask for the same rights again each time, so that nothing depends on this being the only way in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from gatekeeper.context import Context
from gatekeeper.domain.documents import Value
from gatekeeper.domain.errors import Conflict, Rejected
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.evidence import (
    Approval,
    BudgetReset,
    Decided,
    Evidence,
    PullSubject,
    RaceEvidence,
    Waiver,
    Withdrawal,
)
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.owners import Owners, read_owners
from gatekeeper.domain.policy import Finding
from gatekeeper.domain.race import RaceRequest, RaceResult
from gatekeeper.domain.race_evidence import NO_EVIDENCE, tells
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.domain.waivers import LOGIN, may_decide
from gatekeeper.services import decided, needs
from gatekeeper.services.evaluate import CONFIGURATION
from gatekeeper.store.jobs import JobRow
from gatekeeper.store.unit_of_work import ReadUnit

B = TypeVar("B", Waiver, Approval, BudgetReset, Withdrawal)
DECIDED_FIRST = 100
"""Priority of the evaluation that follows a decision: somebody waits for it."""


@dataclass(frozen=True)
class Scene:
    """An open pull request as it stands: its current snapshot and verdict, and who owns what on its base branch."""

    digest: str
    snapshot: Snapshot
    verdict: Verdict | None
    owners: Owners

    @property
    def subject(self) -> PullSubject:
        """What a decision is about."""
        key = self.snapshot.key
        return PullSubject(repository_id=key.repository_id, number=key.number, head_sha=key.head_sha)


class Recorded(Value):
    """A decision that was stored: its digest, and the job that judges the pull request anew."""

    evidence: str
    snapshot: str
    job_id: str


def waive(
    ctx: Context,
    repository: str,
    number: int,
    *,
    head: str,
    by: str,
    policy: str,
    code: str,
    path: str | None,
    reason: str,
) -> Recorded:
    """Let the findings of one code of one policy pass at this head; with ``path`` only those at that path.

    Raises:
        Rejected: ``DECISION_NO_FINDING`` if the present verdict holds no such finding, ``DECISION_NO_RIGHT`` if this person may
            not waive it, ``DECISION_REASON`` without a reason; and as :func:`scene`.
        Conflict: as :func:`scene`.
    """  # fmt: skip
    at = scene(ctx, repository, number, head)
    person = _person(by)
    found = _findings(at, policy, code, path)
    if code == NO_EVIDENCE:
        _demand_right(at, person, at.owners.maintainers)
    elif not any(may_decide(person, each.waivable_by, at.snapshot, at.owners) for each in found):
        _demand_right(at, person, tuple(dict.fromkeys(owner for each in found for owner in each.waivable_by)))
    return _record(ctx, at, _sound(Waiver, policy=policy, code=code, path=path, by=person, reason=reason))


def approve(ctx: Context, repository: str, number: int, *, head: str, by: str, reason: str = "") -> Recorded:
    """Let this very head's code be run in the jail.

    Raises:
        Rejected: ``DECISION_NO_RIGHT`` if this person is no maintainer or is the author; and as :func:`scene`.
        Conflict: as :func:`scene`.
    """
    at = scene(ctx, repository, number, head)
    person = _person(by)
    _demand_right(at, person, at.owners.maintainers)
    return _record(ctx, at, _sound(Approval, by=person, reason=reason))


def reset_budget(ctx: Context, repository: str, number: int, *, head: str, by: str, reason: str) -> Recorded:
    """Let the count of this pull request's races begin anew; raises as :func:`approve`, and ``DECISION_REASON``."""
    at = scene(ctx, repository, number, head)
    person = _person(by)
    _demand_right(at, person, at.owners.maintainers)
    return _record(ctx, at, _sound(BudgetReset, by=person, reason=reason))


def withdraw(ctx: Context, repository: str, number: int, *, digest: str, by: str, reason: str) -> Recorded:
    """Take back a decision. Its giver may do that and every maintainer, also one who is the author: it only makes stricter.

    Raises:
        Rejected: ``DECISION_UNKNOWN`` if there is no such decision in force about this pull request, ``DECISION_NO_RIGHT`` if
            this person is neither its giver nor a maintainer, ``DECISION_REASON`` without a reason; and as :func:`scene`.
        Conflict: as :func:`scene`.
    """
    at = scene(ctx, repository, number, None)
    person = _person(by)
    with ctx.store.read() as uow:
        rows = decided.rows(uow, at.subject)
    row = next((row for row in rows if row.digest == digest and row.state != "withdrawn"), None)
    if row is None:
        known = ", ".join(row.digest for row in rows if row.state == "in force") or "none is in force"
        raise Rejected("no such decision is in force", code="DECISION_UNKNOWN", expected=known, found=digest[:200])
    giver = row.by.casefold() == person.casefold()
    if not giver and not at.owners.includes(at.owners.maintainers, person):
        raise _no_right(person, (f"@{row.by}", *at.owners.maintainers))
    return _record(ctx, at, _sound(Withdrawal, of=digest, by=person, reason=reason))


def retry(ctx: Context, repository: str, number: int) -> list[str]:
    """Ask again for the probes and races of the present verdict that were given up, and for races that stayed void.

    Returns what was asked for. Nobody needs a right to it: a void race says nothing about the candidate, so this is no way to
    try until a lucky one.

    Raises:
        Conflict: as :func:`scene`.
    """
    at = scene(ctx, repository, number, None)
    with ctx.store.begin() as uow:
        again = {job.id: job for _, job in (needs.given_up(uow, at.verdict) if at.verdict else ())}
        again |= {job.id: job for job in _void_races(uow, at)}
        for job in again.values():
            uow.enqueue(job.kind, job.key, priority=job.priority)
        if again:
            uow.enqueue(JobKind.EVALUATE, at.digest, priority=DECIDED_FIRST)
    return [f"{job.kind.value} {job.key.removeprefix('sha256:')[:12]}" for job in again.values()]


def _void_races(uow: ReadUnit, at: Scene) -> Iterator[JobRow]:
    """Yield the ended race jobs of the present trees of which no result says anything about the candidate."""
    left = uow.trees_left_behind(at.snapshot, at.digest)
    results: dict[str, list[RaceResult]] = {}
    for digest in at.verdict.evidence if at.verdict else ():
        item = uow.evidence(digest)
        if isinstance(item.body, RaceEvidence) and getattr(item.subject, "tree", None) not in left:
            results.setdefault(item.body.request, []).append(item.body.result)
    for key, found in results.items():
        job = uow.job_named(JobKind.RACE, key)
        if job is not None and job.state is JobState.SUCCEEDED:
            request = uow.document(needs.RACE_REQUEST, key, RaceRequest)
            if not any(tells(request, result) for result in found):
                yield job


def scene(ctx: Context, repository: str, number: int, head: str | None) -> Scene:
    """Return a pull request to decide about. ``head`` is the full id that was looked at; None where that does not matter.

    Raises:
        Rejected: ``DECISION_UNKNOWN_PULL``, or ``DECISION_HEAD`` for an abbreviated head: short ids can be forged.
        Conflict: ``DECISION_HEAD_MOVED`` if the pull request has another head by now, ``DECISION_CLOSED`` if it is closed,
            ``DECISION_UNREADABLE`` if its commits could not be read.
        ConfigurationError: if the base branch has no sound configuration: then nobody has any right.
    """
    with ctx.store.read() as uow:
        repository_id = decided.repository_of(uow, repository)
        pull, current = uow.pull(repository_id, number), uow.latest_snapshot(repository_id, number)
        if pull is None or current is None:
            raise decided.unknown_pull(repository, number)
        digest, snapshot = current
        rules = uow.document(CONFIGURATION, snapshot.configuration, RepositoryConfiguration)
        latest = uow.latest_verdict(digest)
    now = snapshot.key.head_sha
    if head is not None and len(head) != len(now):
        raise Rejected(
            "a decision is about one full head", code="DECISION_HEAD", expected=f"{len(now)} hexadecimal digits",
            found=head[:100],
        )  # fmt: skip
    if pull.head_sha != now or head not in (None, now):
        raise Conflict(
            "the pull request has another head by now: look at it first", code="DECISION_HEAD_MOVED",
            expected=pull.head_sha, found=head or now,
        )  # fmt: skip
    if not pull.open:
        raise Conflict("the pull request is closed", code="DECISION_CLOSED", expected="an open one", found="closed")
    if snapshot.refusal is not None:
        raise Conflict(
            "the commits of this pull request could not be read, so there is nothing to decide about",
            code="DECISION_UNREADABLE", expected="commits that git lets in", found=snapshot.refusal.code,
        )  # fmt: skip
    rules.demand_sound()
    mirror = ctx.mirrors.open(RepositoryRef(id=repository_id, full_name=snapshot.repository))
    owners = read_owners(mirror.tree(snapshot.base_tree), rules)
    return Scene(digest, snapshot, latest[1] if latest else None, owners)


def _record(ctx: Context, at: Scene, body: Decided | Withdrawal) -> Recorded:
    """Store a decision and have the pull request judged anew, if it still is as it was looked at."""
    evidence = Evidence(subject=at.subject, recorded_at=ctx.clock.now(), body=body)
    with ctx.store.begin() as uow:
        current = uow.latest_snapshot(at.subject.repository_id, at.subject.number)
        if current is None or current[0] != at.digest:
            raise Conflict(
                "the pull request has changed in this very moment: look at it first", code="DECISION_HEAD_MOVED",
                expected=current[1].key.head_sha if current else "a snapshot", found=at.subject.head_sha,
            )  # fmt: skip
        digest = uow.put_evidence(evidence)
        job_id = uow.enqueue(JobKind.EVALUATE, at.digest, priority=DECIDED_FIRST)
    return Recorded(evidence=digest, snapshot=at.digest, job_id=job_id)


def _findings(at: Scene, policy: str, code: str, path: str | None) -> list[Finding]:
    """Return the findings that a waiver would cover."""
    if at.verdict is None:
        raise Conflict(
            "the pull request is not judged yet", code="DECISION_NO_VERDICT", expected="a verdict", found="none"
        )
    found = [
        finding
        for finding in decided.waivable(at.verdict)
        if (finding.policy, finding.code) == (policy, code)
        and (path == finding.path or (path is None and code != NO_EVIDENCE))
    ]
    if not found:
        raise _no_finding(at.verdict, policy, code, path)
    return found


def _no_finding(verdict: Verdict, policy: str, code: str, path: str | None) -> Rejected:
    there = [
        finding
        for result in verdict.results
        for finding in result.findings
        if (result.policy, finding.code) == (policy, code) and path in (None, finding.path)
    ]
    open_ones = "; ".join(dict.fromkeys(_named(finding) for finding in decided.waivable(verdict)))
    message = "the present verdict holds no such finding"
    if any(finding.waived_by for finding in there):
        message = f"this is waived already, by {next(each.waived_by for each in there if each.waived_by)}"
    elif there:
        message = "nobody may waive this finding"
    return Rejected(
        message, code="DECISION_NO_FINDING", found=" ".join(part for part in (policy, code, path) if part),
        expected=f"one of {open_ones}" if open_ones else "no waiver: the verdict holds no finding that may be waived",
    )  # fmt: skip


def _named(finding: Finding) -> str:
    return " ".join(part for part in (finding.policy, finding.code, finding.path) if part)


def _person(by: str) -> str:
    login = by.removeprefix("@")
    if not LOGIN.fullmatch(login):
        raise Rejected(
            "a person decides, by login",
            code="DECISION_BY",
            expected="a login such as `mira`, not a team",
            found=by[:100],
        )
    return login


def _demand_right(at: Scene, person: str, rights: Sequence[str]) -> None:
    if not may_decide(person, tuple(rights), at.snapshot, at.owners):
        raise _no_right(person, rights, author=at.snapshot.author.login)


def _no_right(person: str, rights: Iterable[str], author: str = "") -> Rejected:
    allowed = ", ".join(dict.fromkeys(rights)) or "nobody: this is never waived"
    but = f", but not the author {author}" if author else ""
    return Rejected(
        "this person may not decide this", code="DECISION_NO_RIGHT",
        expected=f"one of {allowed} (as the base branch lists them){but}", found=person,
    )  # fmt: skip


def _sound(cls: type[B], **values: object) -> B:
    """Build the body of a decision; what is wrong with it is the reason, since all else was checked."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise Rejected(
            f"the {first['loc'][0]} will not do", code="DECISION_REASON", expected=first["msg"],
            found=str(values.get(str(first["loc"][0]), ""))[:100] or "nothing",
        ) from error  # fmt: skip
