"""What a check or a repeated evaluation said, before it is shown to anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.domain.policy import Effect, Finding, Outcome, PolicyResult, Severity, worst
from gatekeeper.domain.snapshot import Snapshot


@dataclass(frozen=True)
class Checked:
    """What the policies said, which of them could not be asked, and how to satisfy each (by policy id)."""

    snapshot: Snapshot
    results: tuple[PolicyResult, ...]
    not_checked: tuple[str, ...]
    remedies: Mapping[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the blocking policies. Requirements of evidence do not count here, findings do."""
        outcomes = [shown for result in self.results if (shown := shown_outcome(result)) and _blocks(result)]
        return worst(outcomes)


def _blocks(result: PolicyResult) -> bool:
    return result.severity is Severity.BLOCKING


def shown_outcome(result: PolicyResult) -> Outcome | None:
    """Return the result's outcome as far as it can be known before a push: a mere need of evidence holds nothing up."""
    if result.outcome is Outcome.PENDING and not any(finding.effect is Effect.HOLD for finding in result.findings):
        return Outcome.PASSED
    return result.outcome


def as_document(checked: Checked) -> dict[str, Any]:
    """Return the JSON document of ``--json``."""
    key = checked.snapshot.key
    return {
        "outcome": checked.outcome.value,
        "base": key.base_sha,
        "head": key.head_sha,
        "merge_tree": key.merge_tree,
        "policy_set": key.policy_set,
        "findings": [_finding(finding) for result in checked.results for finding in result.findings],
        "policies": [
            {
                "policy": result.policy,
                "check": result.check.value,
                "severity": result.severity.value,
                "outcome": shown.value if (shown := shown_outcome(result)) else None,
                "summary": result.summary,
                "how_to_fix": checked.remedies.get(result.policy, ""),
            }
            for result in checked.results
        ],
        "not_checked": list(checked.not_checked),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return finding.model_dump(
        mode="json",
        include={"policy", "code", "severity", "path", "line", "expected", "found", "message", "effect", "waivable_by"},
    )
