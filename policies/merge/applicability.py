"""Says whether a pull request is on the fast track at all; this is the one rule that always has something to judge.

What it checks: that the base branch has a readable configuration, that the change can be seen (a merge base exists, something
differs, no tree object is malformed), and whether it touches a listed specialised directory or a manifest.

Why: a required check runs on every pull request; a change elsewhere must pass for a stated reason, never because nothing looked.

How to fix: a change without a merge base is rebased onto the target branch; an empty one is closed; a missing configuration is
added to the base branch as ``.github/gatekeeper.toml``.
"""

from __future__ import annotations

from gatekeeper.domain.policy import Check, Effect, Parameters, Policy, PolicyInput, Report
from gatekeeper.domain.repository import CONFIGURATION_PATH
from gatekeeper.domain.zones import changed_entries, fast_track

_TOLD = (CONFIGURATION_PATH, ".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")


def judge(subject: PolicyInput, parameters: Parameters) -> Report:
    """Report what keeps anybody from seeing the change; the summary says which tree it touches.

    Raises:
        ConfigurationError: if the base branch has no readable configuration.
    """
    del parameters
    track = fast_track(subject)
    report = Report()
    snapshot = subject.snapshot
    for defect in snapshot.defects:
        report.add("ISO_MALFORMED_TREE", "a tree object that no honest tool writes", expected="well-formed tree objects",
                   found=defect.defect, path=defect.path)  # fmt: skip
    if not snapshot.merge_bases:
        report.add("ISO_NO_MERGE_BASE", "head and base share no history", expected="a common ancestor", found="none")
    elif not any(comparison.changes for comparison in snapshot.proposed) and not snapshot.defects:
        report.add(
            "ISO_EMPTY_DIFF", "the pull request changes nothing", expected="at least one changed file", found="none"
        )
    if track is not None:
        report.summary = (
            f"specialised tree touched: {', '.join(track.directories) or 'none that is listed, but a manifest'}"
        )
        return report
    report.summary = "" if report.findings else "no specialised tree touched"
    for path in sorted({change.path for change in changed_entries(snapshot)} & set(_TOLD)):
        report.add("ISO_RULES_CHANGED", "this changes the rules of the gate for later pull requests", path=path,
                   effect=Effect.NOTE)  # fmt: skip
    return report


POLICY = Policy(
    id="applicability",
    check=Check.ISOLATION,
    title="Is this pull request on the fast track?",
    judge=judge,
    parameters=Parameters,
)
