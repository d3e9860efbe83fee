"""The candidate is as right as the stock path at every advertised configuration.

What it checks: for each advertised target that we own, a race of this very tree under today's suite and target is there, and
its error records, routing records, self-proofs and ``supports()`` answers, judged again, show no wrong answer and no refusal.

Why: a fast kernel that is wrong is worth nothing, and a result that claims to be right is not believed: its records are.

How to fix: reproduce the named configuration with ``gatekeeper race`` and repair the output or state that is over its limit;
a configuration that the kernel cannot serve belongs out of the manifest.
"""

from __future__ import annotations

from gatekeeper.domain.policy import Check, Policy, PolicyInput, Report
from gatekeeper.domain.race_evidence import RaceParameters, Standing
from gatekeeper.domain.race_findings import report_rightness
from gatekeeper.domain.race_judging import judge_races
from gatekeeper.domain.race_scope import Contest


def judge(subject: PolicyInput, parameters: RaceParameters) -> Report:
    """Ask for the races that are missing and report every wrong answer in those that are there."""

    def report_on(report: Report, _contest: Contest, now: Standing) -> None:
        report_rightness(report, now)

    return judge_races(subject, parameters, policy=POLICY.id, asked_for="being right", report_on=report_on)


POLICY = Policy(
    id="kernel_is_right",
    check=Check.BENCHMARKS,
    title="The kernel is as right as the stock path",
    judge=judge,
    parameters=RaceParameters,
    static=False,
)
