"""What a check or a repeated evaluation said, before it is shown to anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.cli.answers import findings_document
from gatekeeper.domain.policy import Effect, Outcome, PolicyResult, Severity, worst
from gatekeeper.domain.snapshot import Snapshot


@dataclass(frozen=True)
class Checked:
    """What the policies said, which of them could not be asked, and how to satisfy each (by policy id)."""

    snapshot: Snapshot
    results: tuple[PolicyResult, ...]
    not_checked: tuple[str, ...]
    remedies: Mapping[str, str] = field(default_factory=dict)
    uncommitted: tuple[str, ...] = ()
    """What lies in the work tree beside the judged commit: nobody has looked at it."""
    decided: Outcome | None = None
    """The verdict, where the evidence was judged too. None before a push: evidence is not there yet and holds nothing up."""

    @property
    def outcome(self) -> Outcome:
        """The verdict, or else the worst outcome of the blocking policies, for which findings count and missing evidence not."""
        outcomes = [shown for result in self.results if (shown := self.shown(result)) and _blocks(result)]
        return self.decided or worst(outcomes)

    def shown(self, result: PolicyResult) -> Outcome | None:
        """Return a result's outcome as far as it can be known here."""
        return shown_outcome(result) if self.decided is None else result.outcome


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
        "findings": findings_document(finding for result in checked.results for finding in result.findings),
        "policies": [
            {
                "policy": result.policy,
                "check": result.check.value,
                "severity": result.severity.value,
                "outcome": shown.value if (shown := checked.shown(result)) else None,
                "summary": result.summary,
                "how_to_fix": checked.remedies.get(result.policy, ""),
            }
            for result in checked.results
        ],
        "not_checked": list(checked.not_checked),
        "uncommitted": list(checked.uncommitted),
    }
