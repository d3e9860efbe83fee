"""The decision over one snapshot. Verdicts of a snapshot form a chain: each names the one it supersedes."""

from __future__ import annotations

from datetime import datetime

from pydantic import AwareDatetime, Field

from gatekeeper.domain.documents import Digest, Document, Value
from gatekeeper.domain.policy import Check, Outcome, PolicyResult, Severity, worst
from gatekeeper.domain.precedence import with_reasons


class CheckResult(Value):
    """One of the four principles in a verdict: the worst of its blocking policies."""

    check: Check
    outcome: Outcome
    summary: str
    policies: tuple[str, ...]

    @property
    def judged(self) -> bool:
        """Whether any policy had something to judge; a check that passed without says nothing about the change."""
        return self.outcome is not Outcome.PASSED or bool(self.policies)


class Verdict(Document):
    """What the policy set says about a snapshot, on which evidence, and why."""

    schema_version: int = 1
    snapshot: Digest
    policy_set: Digest
    policy_set_name: str
    evidence: tuple[Digest, ...] = ()
    results: tuple[PolicyResult, ...]
    checks: tuple[CheckResult, ...]
    outcome: Outcome
    supersedes: Digest | None = None
    decided_at: AwareDatetime
    mode: str = Field(default="block", pattern=r"^(shadow|warn|block)$")

    def says_the_same_as(self, other: Verdict) -> bool:
        """Whether two verdicts decide alike on the same facts; time and place in the chain do not matter."""
        ignored = {"decided_at", "supersedes"}
        return self.model_dump(exclude=ignored) == other.model_dump(exclude=ignored)


def decide(
    *,
    snapshot: str,
    policy_set: str,
    policy_set_name: str,
    evidence: tuple[str, ...],
    results: tuple[PolicyResult, ...],
    supersedes: str | None,
    now: datetime,
    mode: str = "block",
) -> Verdict:
    """Combine policy results into a verdict; a race that may not start yet is said to wait, and for what.

    A check whose blocking policies are all not applicable passes and says so, but only if some blocking policy of the whole
    set was applicable; a set in which nothing applied is ``error``, because then nothing was decided.
    """
    results = with_reasons(results)
    blocking = [result for result in results if result.severity is Severity.BLOCKING]
    applied = [result.outcome for result in blocking if result.outcome is not None]
    checks = tuple(_check(check, blocking, anything_applied=bool(applied)) for check in Check)
    return Verdict(
        snapshot=snapshot,
        policy_set=policy_set,
        policy_set_name=policy_set_name,
        evidence=evidence,
        results=results,
        checks=checks,
        outcome=worst([check.outcome for check in checks]) if applied else Outcome.ERROR,
        supersedes=supersedes,
        decided_at=now,
        mode=mode,
    )


def _check(check: Check, blocking: list[PolicyResult], *, anything_applied: bool) -> CheckResult:
    mine = [result for result in blocking if result.check is check]
    applied = [result for result in mine if result.outcome is not None]
    names = tuple(result.policy for result in applied)
    if not mine and check is not Check.CONTRIBUTOR_LOG:
        return CheckResult(
            check=check, outcome=Outcome.ERROR, summary="no policy of this check is installed", policies=()
        )
    if not applied:
        outcome = Outcome.PASSED if anything_applied else Outcome.ERROR
        reason = "; ".join(dict.fromkeys(result.summary for result in mine if result.summary))
        reason = reason or f"no policy of this policy set asks for a {check.value.replace('-', ' ')}"
        return CheckResult(check=check, outcome=outcome, summary=reason, policies=names)
    outcome = worst([result.outcome for result in applied if result.outcome is not None])
    telling = [result for result in applied if result.outcome is outcome]
    summary = "; ".join(dict.fromkeys(result.summary for result in telling if result.summary)) or outcome.value
    return CheckResult(check=check, outcome=outcome, summary=summary, policies=names)
