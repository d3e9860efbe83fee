"""The course that both policies of the benchmarks principle take: ask for what is missing, report on what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gatekeeper.domain import waivers
from gatekeeper.domain.evidence import BudgetReset, Evidence, Waiver
from gatekeeper.domain.owners import read_owners
from gatekeeper.domain.policy import Effect, Finding, PolicyInput, Report
from gatekeeper.domain.race import RaceRequest
from gatekeeper.domain.race_evidence import NO_EVIDENCE, RaceParameters, Standing, ask, standing, waived
from gatekeeper.domain.race_findings import summary_of
from gatekeeper.domain.race_scope import Contest, contests
from gatekeeper.domain.trust import approval_needed

NOTHING_TO_RACE = "BENCH_NOTHING_TO_RACE"
TOO_SHORT = "BENCH_CONTEXT_SHORT"
ReportOn = Callable[[Report, Contest, Standing], None]


def judge_races(
    subject: PolicyInput, parameters: RaceParameters, *, policy: str, asked_for: str, report_on: ReportOn
) -> Report:
    """Return a policy's report: ``report_on`` adds the findings of each race that is there.

    A target that nobody here owns may be waived by name for ``policy``; ``asked_for`` ends the sentence that asks for a log.
    What a race holds for a person is a maintainer's to waive; what it fails is nobody's.
    """
    found = contests(subject, parameters.rules, parameters.enumeration)
    if found is None:
        return Report(summary="no specialised tree touched", applicable=False)
    report, lines = Report(), []
    if not any(contest.requests for contest in found):
        report.add(
            NOTHING_TO_RACE,
            "nothing can be raced: no readable manifest names a known target",
            expected="a manifest with at least one target of this installation",
            found="none",
            effect=Effect.HOLD,
        )
    evidence = heeded(subject)
    approval = approval_needed(subject) if found else None
    if approval is not None:
        report.requirements.append(approval)
    for contest, request in _pairs(found):
        if too_short(report, request):
            lines.append(f"on {request.target.name}: no served context is long enough to race")
            continue
        now = standing(request, evidence, subject.now, parameters)
        by = waived(subject, request.target.name, policy)
        if by is not None and not request.target.owned and now.decision is None:
            report.add(NO_EVIDENCE, f"on {request.target.name}: waived by {by}", effect=Effect.NOTE)
            lines.append(f"on {request.target.name}: waived by {by}")
            continue
        if now.decision is None and approval is not None:
            lines.append(f"on {request.target.name}: waits for a maintainer to approve this head")
            continue
        if not ask(report, now, asked_for=asked_for):
            report_on(report, contest, now)
        lines.append(summary_of(now))
    report.findings = _with_waivers(subject, report.findings, policy)
    report.summary = "; ".join(dict.fromkeys(lines))
    return report


def too_short(report: Report, request: RaceRequest) -> bool:
    """Report and return whether no advertised context holds a run of the least length.

    Where every run is shorter, nothing follows states and outputs over many steps, the fixed cost of a run hides that of a step,
    and of one step there is no previous output for the oracle to refuse: no such race can be decided.
    """
    longest = max(configuration.context for configuration in request.configurations)
    if longest >= request.rules.steps:
        return False
    report.add(
        TOO_SHORT,
        f"on {request.target.name}: the served contexts are too short for a race",
        expected=f"a served context of at least {request.rules.steps} tokens, the least number of steps of a run",
        found=f"at most {longest}",
    )
    return True


def heeded(subject: PolicyInput) -> tuple[Evidence, ...]:
    """Return the evidence without budget resets by somebody who is no maintainer, or who is the author."""
    owners = read_owners(subject.base, subject.configuration)
    return tuple(
        item
        for item in subject.evidence
        if not isinstance(item.body, BudgetReset)
        or waivers.may_decide(item.body.by, owners.maintainers, subject.snapshot, owners)
    )


def _with_waivers(subject: PolicyInput, findings: Sequence[Finding], policy: str) -> list[Finding]:
    """Let maintainers decide what a race holds. Waivers of a whole target were heeded before and are left out here."""
    owners = read_owners(subject.base, subject.configuration)
    by_person = [
        finding.model_copy(update={"waivable_by": owners.maintainers})
        if finding.effect is Effect.HOLD and finding.code != NOTHING_TO_RACE
        else finding
        for finding in findings
    ]
    evidence = [
        item for item in subject.evidence if not (isinstance(item.body, Waiver) and item.body.code == NO_EVIDENCE)
    ]
    return waivers.apply(by_person, snapshot=subject.snapshot, evidence=evidence, policy=policy, owners=owners)


def _pairs(found: Sequence[Contest]) -> list[tuple[Contest, RaceRequest]]:
    return [(contest, request) for contest in found for request in contest.requests]
