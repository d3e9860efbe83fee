"""What a decided race becomes in the checks of principle 3: findings with expected, found and the configuration's label."""

from __future__ import annotations

from gatekeeper.domain.catalog import JailLevel
from gatekeeper.domain.decision import Decision, Reason
from gatekeeper.domain.policy import Effect, Report
from gatekeeper.domain.race import RaceOutcome
from gatekeeper.domain.race_evidence import Standing

_TIMED = (RaceOutcome.WORSE, RaceOutcome.NOT_BETTER, RaceOutcome.INCONCLUSIVE)
_TIME_CODES = ("TIM_", "BENCH_")


def report_rightness(report: Report, found: Standing) -> None:
    """Add what speaks against the candidate's answers; a fault that only a person can weigh holds."""
    decision = found.decision
    assert decision is not None
    for reason in decision.because(RaceOutcome.WRONG, RaceOutcome.DECLINED):
        _add(report, found, reason, Effect.FAIL)
    for reason in decision.because(RaceOutcome.HELD):
        if not reason.code.startswith(_TIME_CODES):
            _add(report, found, reason, Effect.HOLD)
    for reason in decision.reasons:
        if reason.outcome is None and reason.code.startswith("COR_"):
            _add(report, found, reason, Effect.NOTE)  # how to see once more what is wrong


def report_speed(report: Report, found: Standing, claims: dict[str, float]) -> None:
    """Add what speaks against the candidate's times, and compare the claim for this target with the lower bounds."""
    decision = found.decision
    assert decision is not None
    for reason in decision.because(*_TIMED):
        _add(report, found, reason, Effect.FAIL)
    for reason in decision.because(RaceOutcome.HELD):
        if reason.code.startswith(_TIME_CODES):
            _add(report, found, reason, Effect.HOLD)
    if decision.outcome in (RaceOutcome.WRONG, RaceOutcome.DECLINED):
        report.add(
            "BENCH_NOT_COMPARED",
            f"on {found.target}: a candidate that is {decision.outcome.value} has no speed",
            expected="right at every advertised configuration",
            found=decision.outcome.value,
        )
        return
    _claim(report, found, decision, claims.get(found.target))
    _shown_communication(report, found, decision)


def report_jail(report: Report, found: Standing, least: JailLevel) -> None:
    """Fail a race whose code was kept less far from the host than the target and the policy ask."""
    needed = max(least, found.request.target.minimum_jail, key=lambda level: level.rank)
    for jail in dict.fromkeys(found.jails):
        if jail.rank < needed.rank:
            report.add(
                "BENCH_JAIL_LEVEL",
                f"on {found.target}: the race ran in a weaker jail than asked for",
                expected=f"{needed.value} or stronger",
                found=jail.value,
            )


def summary_of(found: Standing) -> str:
    """Return one line for the check: target, outcome, the smallest lower bound and what was measured."""
    decision = found.decision
    if decision is None or decision.outcome is None:
        return f"on {found.target}: waits for {'a race' if found.request.target.owned else 'a log'}"
    bounds = [figure.lower for figure in decision.figures if figure.lower is not None and not figure.guard]
    least = f", at least {min(bounds):.3f} times as fast" if bounds and decision.outcome is RaceOutcome.BETTER else ""
    return (
        f"on {found.target}: {decision.outcome.value}{least} (comm={decision.communication}, alpha {decision.alpha:g})"
    )


def _claim(report: Report, found: Standing, decision: Decision, claim: float | None) -> None:
    if claim is None:
        return
    for figure in decision.figures:
        if not figure.guard and (figure.lower is None or figure.lower < claim):
            lower = "no lower bound" if figure.lower is None else f"lower bound {figure.lower:.4f}"
            report.add(
                "BENCH_CLAIM",
                f"{found.target}, {figure.label}: the claimed speed-up was not shown",
                expected=f"a lower bound of at least {claim:g}",
                found=f"{lower}, ratio {figure.ratio:.4f}",
            )


def _shown_communication(report: Report, found: Standing, decision: Decision) -> None:
    if decision.communication == "shard":
        report.add(
            "BENCH_SHARD",
            f"on {found.target}: one rank's shard was raced; nothing is shown about communication between ranks",
            expected="comm=real for figures of several ranks",
            found="comm=shard",
            effect=Effect.NOTE,
        )


def _add(report: Report, found: Standing, reason: Reason, effect: Effect) -> None:
    message = f"{found.target}, {reason.where}: {reason.message}"
    report.add(reason.code, message, expected=reason.expected, found=reason.found, effect=effect)
