"""How a race ends before its times decide it, and whose fault that is.

Whatever a candidate does to spoil a race is its own fault: a void race costs its author nothing. The same of a baseline, or in the
A/A control, says nothing about the candidate.
"""

from __future__ import annotations

from gatekeeper.domain.race import RaceOutcome, RaceStatus
from gatekeeper.domain.samples import Arm, FaultEffect, RaceFault
from workers.judge import blame
from workers.loop.blocks import ArmFault
from workers.loop.runs import Interference
from workers.protocol import ArmFailed

SLOW_FACTOR = 2.0
"""A candidate that was waited for this much longer than the baseline, and for half of the race's time, has used it up itself."""


class Stop(Exception):
    """The race ends before its times decide it."""

    def __init__(self, status: RaceStatus, outcome: RaceOutcome, fault: RaceFault | None = None) -> None:
        super().__init__(f"{status.value}: {outcome.value}")
        self.status, self.outcome, self.fault = status, outcome, fault


def void(code: str, where: str, expected: str, found: str) -> Stop:
    """Return the end of a race whose measurement failed."""
    fault = RaceFault(code=code, effect=FaultEffect.VOID, where=where, expected=expected, found=found)
    return Stop(RaceStatus.ABANDONED, RaceOutcome.VOID, fault)


def of_arm(fault: ArmFault, *, control: bool) -> Stop:
    """Return the end by an arm that crashed, hung or broke the protocol."""
    effect = FaultEffect.VOID if control else blame(fault.arm)
    how = (
        f"{fault.failed.found}; process {fault.ended.how.value} {fault.ended.status}; {fault.ended.log.strip()[-300:]}"
    )
    told = RaceFault(
        code=fault.failed.code, effect=effect, arm=fault.arm, where="race", expected=_wanted(fault.failed), found=how
    )
    return _of(told)


def of_interference(seen: Interference, *, control: bool) -> Stop:
    """Return the end by an arm that did not stand still, or not where it was put."""
    wrong = seen.arm is Arm.CANDIDATE and not control
    effect = FaultEffect.WRONG if wrong else FaultEffect.VOID
    return _of(
        RaceFault(code=seen.code, effect=effect, arm=seen.arm, where="race", expected=seen.expected, found=seen.found)
    )


def late(most: int, base: float, cand: float) -> Stop:
    """Return the end of a race whose time is used up: ``most`` seconds, so many of them spent waiting for each arm.

    Where most of it went into waiting for the candidate, that is the candidate's fault.
    """
    if cand < most / 2 or cand < SLOW_FACTOR * base:
        return void("RACE_DEADLINE", "race", f"{most} s", "not finished")
    return _of(
        RaceFault(
            code="RUN_TIMEOUT", effect=FaultEffect.WRONG, arm=Arm.CANDIDATE, where="race",
            expected=f"less than {SLOW_FACTOR:g} times the baseline's {base:.1f} s and half of the race's {most} s",
            found=f"the candidate was waited for for {cand:.1f} s",
        )
    )  # fmt: skip


def leftover(count: int) -> RaceFault:
    """Return the fault of a candidate that left processes behind at the end of a block."""
    return RaceFault(
        code="JAIL_LEFTOVER", effect=FaultEffect.HELD, arm=Arm.CANDIDATE, where="end of a block",
        expected="no process beside the arm's own", found=f"{count} had to be killed",
    )  # fmt: skip


def _of(fault: RaceFault) -> Stop:
    if fault.effect is FaultEffect.WRONG:
        return Stop(RaceStatus.STOPPED, RaceOutcome.WRONG, fault)
    return Stop(RaceStatus.ABANDONED, RaceOutcome.VOID, fault)


def _wanted(failed: ArmFailed) -> str:
    """Return what was expected of an arm, in words of its author where its own code raised."""
    if failed.code != "RUN_RAISED":
        return failed.expected
    broken = failed.found.startswith(("ModuleNotFoundError", "ImportError", "SyntaxError"))
    return "an entry point that can be imported" if broken else "code that raises nothing"
