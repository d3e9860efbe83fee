"""What people decided about a pull request, and what is left for them to decide: for people, read from the store."""

from __future__ import annotations

from datetime import datetime

from gatekeeper.context import Context
from gatekeeper.domain.documents import Value
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.evidence import Approval, BudgetReset, Decided, PullSubject, Waiver, Withdrawal
from gatekeeper.domain.policy import Effect, Finding
from gatekeeper.domain.race_evidence import NO_EVIDENCE
from gatekeeper.domain.verdict import Verdict
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


def listed(ctx: Context, repository: str, number: int) -> tuple[list[DecisionRow], list[Finding]]:
    """Return what was decided about a pull request, oldest first, and which findings of its verdict may be waived now.

    Raises:
        Rejected: ``DECISION_UNKNOWN_PULL`` if there is no such pull request here.
    """
    with ctx.store.read() as uow:
        repository_id = repository_of(uow, repository)
        current = uow.latest_snapshot(repository_id, number)
        if current is None:
            raise unknown_pull(repository, number)
        latest = uow.latest_verdict(current[0])
        subject = PullSubject(repository_id=repository_id, number=number, head_sha=current[1].key.head_sha)
        return rows(uow, subject), waivable(latest[1] if latest else None)


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
