"""The candidate is strictly faster than the stock path at every advertised configuration.

What it checks: the raw samples of the race, decided again by this policy's own rules and this pull request's alpha: every
advertised configuration beyond the margin, no loss at the guards, claims below the lower bounds, the jail strong enough.

Why: identical arms look faster by luck in half of all comparisons; only a bound that was fixed beforehand tells luck from gain.

How to fix: repeat the race with ``gatekeeper race``; where the gain is real but small, the finding says how many blocks would
decide; advertise only what wins, and claim no more than was shown.
"""

from __future__ import annotations

from pydantic import Field

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.policy import Check, Effect, Policy, PolicyInput, Report
from gatekeeper.domain.race_evidence import RaceParameters, ask, standing, waived
from gatekeeper.domain.race_findings import report_jail, report_speed, summary_of
from gatekeeper.domain.race_scope import contests


class SpeedParameters(RaceParameters):
    """The race's rules, and how far code must have been kept from the host for its times to count."""

    least_jail: JailLevel = Field(default=JailLevel.JAIL, description="weakest jail of a race that counts")


def judge(subject: PolicyInput, parameters: SpeedParameters) -> Report:
    """Ask for the races that are missing and report every time that does not pass in those that are there."""
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
    for contest, request in ((each, request) for each in found for request in each.requests):
        now = standing(request, subject.evidence, subject.now, parameters)
        by = waived(request.target.name, "kernel_is_faster", subject.snapshot.key.head_sha, subject.evidence)
        if by is not None and not request.target.owned and now.decision is None:
            report.add("BENCH_NO_EVIDENCE", f"{request.target.name}: waived by {by}", effect=Effect.NOTE)
            lines.append(f"{request.target.name}: waived by {by}")
            continue
        if not ask(report, now, asked_for="being faster"):
            report_speed(report, now, contest.manifest.claims.speedup)
            report_jail(report, now, parameters.least_jail)
        lines.append(summary_of(now))
    report.summary = "; ".join(lines)
    return report


POLICY = Policy(
    id="kernel_is_faster",
    check=Check.BENCHMARKS,
    title="The kernel is strictly faster than the stock path",
    judge=judge,
    parameters=SpeedParameters,
    static=False,
)
