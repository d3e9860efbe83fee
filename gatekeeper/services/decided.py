"""What people decided about a pull request, and what is left for them to decide: for people, read from the store."""

from __future__ import annotations

import shlex
from datetime import datetime

from gatekeeper import texts
from gatekeeper.context import Context
from gatekeeper.domain.documents import Value
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.evidence import Approval, BudgetReset, Decided, PullSubject, Waiver, Withdrawal
from gatekeeper.domain.policy import ApprovalRequirement, Effect, Finding
from gatekeeper.domain.race_evidence import NO_EVIDENCE
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.services.evaluate import CONFIGURATION
from gatekeeper.store.pulls import Pull
from gatekeeper.store.unit_of_work import ReadUnit


class DecisionRow(Value):
    """One decision about a pull request, for people."""

    digest: str
    kind: str
    by: str
    at: datetime
    head_sha: str
    what: str
    reason: str
    state: str
    """``in force``, ``withdrawn``, or ``for an older head``."""


class ToDecide(Value):
    """Something that waits for a person: what, who may decide it, and the command to copy."""

    kind: str
    """``approval`` or ``waiver``."""
    what: str
    by: tuple[str, ...]
    """Logins or teams; empty where the base branch names nobody."""
    command: str


class Listed(Value):
    """What was decided about a pull request, oldest first, and what is left to decide for its present head."""

    head_sha: str
    decisions: tuple[DecisionRow, ...]
    waivable: tuple[Finding, ...]
    left: tuple[ToDecide, ...]


def listed(ctx: Context, repository: str, number: int) -> Listed:
    """Return what was decided about a pull request and what is left to decide.

    Raises:
        Rejected: ``DECISION_UNKNOWN_PULL`` if there is no such pull request here.
    """
    with ctx.store.read() as uow:
        repository_id = repository_of(uow, repository)
        current = uow.latest_snapshot(repository_id, number)
        if current is None:
            raise unknown_pull(repository, number)
        latest = uow.latest_verdict(current[0])
        verdict = latest[1] if latest else None
        subject = PullSubject(repository_id=repository_id, number=number, head_sha=current[1].key.head_sha)
        return Listed(
            head_sha=subject.head_sha,
            decisions=tuple(rows(uow, subject)),
            waivable=tuple(waivable(verdict)),
            left=tuple(left(uow, uow.pull(repository_id, number), current[1], verdict)),
        )


def left(uow: ReadUnit, pull: Pull | None, snapshot: Snapshot, verdict: Verdict | None) -> list[ToDecide]:
    """Return what people may decide about the head of a snapshot; nothing of one that is closed or has another head by now."""
    head = snapshot.key.head_sha
    if verdict is None or pull is None or not pull.open or pull.head_sha != head:
        return []
    at = (snapshot.repository, snapshot.key.number, head)
    found = []
    for need in (need for result in verdict.results for need in result.requirements):
        if isinstance(need, ApprovalRequirement):
            what = f"whether code of {need.author}, who is new here, may be run in the jail"
            by = _maintainers(uow, snapshot)
            found.append(ToDecide(kind="approval", what=what, by=by, command=_approve(*at)))
    for finding in waivable(verdict):
        what = " ".join(part for part in (finding.code, texts.place(finding)) if part)
        by = finding.waivable_by or _maintainers(uow, snapshot)
        command = _waive(*at, finding.policy, finding.code, finding.path)
        found.append(ToDecide(kind="waiver", what=f"whether {what} may pass", by=by, command=command))
    return list({each.command: each for each in reversed(found)}.values())[::-1]


def _approve(repository: str, number: int, head: str) -> str:
    """Return the command with which a maintainer lets the code of a head be run."""
    return f"gatekeeper approve {repository}#{number} --head {head} --by LOGIN"


def _waive(repository: str, number: int, head: str, policy: str, code: str, path: str | None) -> str:
    """Return the command with which somebody who may do that lets a finding pass."""
    at = f" --path {shlex.quote(path)}" if path else ""
    return f"gatekeeper waive {repository}#{number} --head {head} --by LOGIN --policy {policy} --code {code}{at} --reason WHY"


def _maintainers(uow: ReadUnit, snapshot: Snapshot) -> tuple[str, ...]:
    try:
        return uow.document(CONFIGURATION, snapshot.configuration, RepositoryConfiguration).maintainers
    except Rejected:
        return ()


def waivable(verdict: Verdict | None) -> list[Finding]:
    """Return the findings that a person with the right to it may waive. One for a target that is not ours names it as path."""
    found = []
    for result in verdict.results if verdict else ():
        for finding in result.findings:
            if finding.waived_by is None and finding.waivable_by and finding.effect is not Effect.NOTE:
                found.append(finding)
        for requirement in result.requirements:
            if requirement.kind == "log":
                message = f"nothing is known from {requirement.target}"
                found.append(Finding(code=NO_EVIDENCE, message=message, path=requirement.target, policy=result.policy))
    return found


def rows(uow: ReadUnit, subject: PullSubject) -> list[DecisionRow]:
    """Return all decisions about a pull request, oldest first, as they count for the head of ``subject``."""
    items = uow.evidence_of_pull(subject.repository_id, subject.number)
    withdrawn = {item.body.of: item.body for _, item in items if isinstance(item.body, Withdrawal)}
    found = []
    for digest, item in items:
        if not isinstance(item.body, Decided) or not isinstance(item.subject, PullSubject):
            continue
        lasting = isinstance(item.body, BudgetReset) or item.subject.head_sha == subject.head_sha
        state = "withdrawn" if digest in withdrawn else "in force" if lasting else "for an older head"
        found.append(
            DecisionRow(
                digest=digest, kind=item.body.kind, by=item.body.by, at=item.recorded_at, state=state,
                head_sha=item.subject.head_sha, what=_what(item.body), reason=item.body.reason,
            )
        )  # fmt: skip
    return found


def _what(body: Decided) -> str:
    match body:
        case Waiver():
            return " ".join(part for part in (body.policy, body.code, body.path) if part)
        case Approval():
            return "this head's code may be run in the jail"
        case BudgetReset():
            return "the count of races begins anew"


def repository_of(uow: ReadUnit, name: str) -> int:
    """Return the id of the repository of this name; raises ``Rejected`` (``DECISION_UNKNOWN_PULL``) if there is none."""
    known = uow.repository_named(name)
    if known is None:
        raise Rejected(
            "no such repository was ever announced", code="DECISION_UNKNOWN_PULL", expected="OWNER/NAME as GitHub spells it",
            found=name[:200],
        )  # fmt: skip
    return known.id


def unknown_pull(repository: str, number: int) -> Rejected:
    """Return the error for a pull request that was never read here."""
    return Rejected(
        "no such pull request has been read here", code="DECISION_UNKNOWN_PULL",
        expected="a pull request that this service has judged", found=f"{repository}#{number}",
    )  # fmt: skip
