"""Cheap facts first: what has to be settled before a race may start, because a race takes a machine for itself for long.

Whatever a line of the diff has decided already, hours of a machine could not change; and no code is run in a race that nobody
approved or that has not been looked at in a probe. Code that is not raced does not pass either: its race stays asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gatekeeper.domain.policy import Effect, Finding, Outcome, PolicyResult, Severity

WAITS = "BENCH_WAITS"


def race_waits_for(results: Sequence[PolicyResult]) -> tuple[str, ...]:
    """Return what keeps every race of a snapshot from starting, as ends of a sentence; empty where nothing does.

    A failed policy counts if it is blocking. Its findings may be waived; then it has not failed.
    """
    return tuple(dict.fromkeys(_reasons(results)))


def with_reasons(results: Sequence[PolicyResult]) -> tuple[PolicyResult, ...]:
    """Return the results in which those that ask for a race that may not start yet say so, and why."""
    reasons = race_waits_for(results)
    return tuple(_telling(result, reasons) if reasons and _asks_for_race(result) else result for result in results)


def _reasons(results: Sequence[PolicyResult]) -> Iterator[str]:
    for result in results:
        if result.severity is Severity.BLOCKING and result.outcome is Outcome.FAILED:
            failing = [each for each in result.findings if each.effect is Effect.FAIL and not each.waived_by]
            waivable = bool(failing) and all(each.waivable_by for each in failing)
            yield f"`{result.policy}`, which has failed, to pass{' or to be waived' if waivable else ''}"
    kinds = {requirement.kind for result in results for requirement in result.requirements}
    if "approval" in kinds:
        yield "a maintainer's approval of this head"
    if "probe" in kinds:
        yield "the probe of its code"


def _asks_for_race(result: PolicyResult) -> bool:
    return any(requirement.kind == "race" for requirement in result.requirements)


def _telling(result: PolicyResult, reasons: tuple[str, ...]) -> PolicyResult:
    finding = Finding(
        code=WAITS,
        message="no race is run yet, because it could not change the verdict as it stands",
        expected="the cheaper checks to be settled first",
        found=f"waiting for {'; '.join(reasons)}",
        effect=Effect.NOTE,
        policy=result.policy,
        severity=result.severity,
    )
    return result.model_copy(
        update={
            "summary": f"not raced yet: waits for {' and for '.join(reasons)}",
            "findings": (*result.findings, finding),
        }
    )
