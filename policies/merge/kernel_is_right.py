"""The candidate is as right as the stock path at every advertised configuration.

What it checks: for each advertised target that we own, a race of this very tree under today's suite and target is there, and
its error records, routing records, self-proofs and ``supports()`` answers, judged again, show no wrong answer and no refusal.

Why: a fast kernel that is wrong is worth nothing, and a result that claims to be right is not believed: its records are.

How to fix: reproduce the named configuration with ``gatekeeper race`` and repair the output or state that is over its limit;
a configuration that the kernel cannot serve belongs out of the manifest.
"""

from __future__ import annotations

from gatekeeper.domain.policy import Check, Effect, Policy, PolicyInput, Report
from gatekeeper.domain.race_evidence import RaceParameters, ask, standing, waived
from gatekeeper.domain.race_findings import report_rightness, summary_of
from gatekeeper.domain.race_scope import contests


def judge(subject: PolicyInput, parameters: RaceParameters) -> Report:
    """Ask for the races that are missing and report every wrong answer in those that are there."""
    found = contests(subject, parameters.rules, parameters.enumeration)
    if found is None:
        return Report(summary="no specialised tree touched", applicable=False)
    report, lines = Report(), []
    if not any(contest.requests for contest in found):
        report.add(
            "BENCH_NOTHING_TO_RACE",
            "nothing can be raced: no readable manifest names a known target",
            expected="a manifest with at least one target of this installation",
            found="none",
            effect=Effect.HOLD,
        )
    for request in (request for contest in found for request in contest.requests):
        now = standing(request, subject.evidence, subject.now, parameters)
        by = waived(request.target.name, "kernel_is_right", subject.snapshot.key.head_sha, subject.evidence)
        if by is not None and not request.target.owned and now.decision is None:
            report.add("BENCH_NO_EVIDENCE", f"{request.target.name}: waived by {by}", effect=Effect.NOTE)
            lines.append(f"{request.target.name}: waived by {by}")
            continue
        if not ask(report, now, asked_for="being right"):
            report_rightness(report, now)
        lines.append(summary_of(now))
    report.summary = "; ".join(lines)
    return report


POLICY = Policy(
    id="kernel_is_right",
    check=Check.BENCHMARKS,
    title="The kernel is as right as the stock path",
    judge=judge,
    parameters=RaceParameters,
    static=False,
)
