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
from gatekeeper.domain.policy import Check, Policy, PolicyInput, Report
from gatekeeper.domain.race_evidence import RaceParameters, Standing
from gatekeeper.domain.race_findings import report_jail, report_speed
from gatekeeper.domain.race_judging import judge_races
from gatekeeper.domain.race_scope import Contest


class SpeedParameters(RaceParameters):
    """The race's rules, and how far code must have been kept from the host for its times to count."""

    least_jail: JailLevel = Field(default=JailLevel.JAIL, description="weakest jail of a race that counts")


def judge(subject: PolicyInput, parameters: SpeedParameters) -> Report:
    """Ask for the races that are missing and report every time that does not pass in those that are there."""

    def report_on(report: Report, contest: Contest, now: Standing) -> None:
        report_speed(report, now, contest.manifest.claims.speedup)
        report_jail(report, now, parameters.least_jail)

    return judge_races(subject, parameters, policy=POLICY.id, asked_for="being faster", report_on=report_on)


POLICY = Policy(
    id="kernel_is_faster",
    check=Check.BENCHMARKS,
    title="The kernel is strictly faster than the stock path",
    judge=judge,
    parameters=SpeedParameters,
    static=False,
)
