"""The candidate is as right as the stock path at every advertised configuration.

What it checks: for each advertised target that we own, a race of this very tree under today's suite and target is there, and
its error records, routing records, self-proofs and ``supports()`` answers, judged again, show no wrong answer and no refusal.

Why: a fast kernel that is wrong is worth nothing, and a result that claims to be right is not believed: its records are.

How to fix: reproduce the named configuration with ``gatekeeper race`` and repair the output or state that is over its limit;
a configuration that the kernel cannot serve belongs out of the manifest.
"""

from __future__ import annotations

from gatekeeper.domain.policy import Check, Policy, PolicyInput, Report
from gatekeeper.domain.race import RaceOutcome
from gatekeeper.domain.race_evidence import RaceParameters, Standing
from gatekeeper.domain.race_findings import report_rightness, summary_of
from gatekeeper.domain.race_judging import judge_races
from gatekeeper.domain.race_scope import Contest


def judge(subject: PolicyInput, parameters: RaceParameters) -> Report:
    """Ask for the races that are missing and report every wrong answer in those that are there."""

    told: dict[str, str] = {}

    def report_on(report: Report, _contest: Contest, now: Standing) -> None:
        report_rightness(report, now)
        told[summary_of(now)] = _answers_of(now)

    report = judge_races(subject, parameters, policy=POLICY.id, asked_for="being right", report_on=report_on)
    # A slow candidate is right all the same: the race's outcome is for the policy about times to tell.
    report.summary = "; ".join(told.get(line, line) for line in report.summary.split("; "))
    return report


def _answers_of(now: Standing) -> str:
    assert now.decision is not None
    if now.decision.outcome is RaceOutcome.WRONG:
        return f"on {now.target}: wrong answers"
    if now.decision.outcome is RaceOutcome.DECLINED:
        return f"on {now.target}: declined what it advertises"
    count = len(now.request.configurations)
    return f"on {now.target}: no wrong answer at {count} advertised configuration{'s' if count > 1 else ''}"


POLICY = Policy(
    id="kernel_is_right",
    check=Check.BENCHMARKS,
    title="The kernel is as right as the stock path",
    judge=judge,
    parameters=RaceParameters,
    static=False,
)
