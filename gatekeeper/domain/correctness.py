"""Is the candidate as right as the stock path: recomputed from the records of a race.

Only an explicit pass passes. A configuration without error records, or an oracle that accepted a planted wrong answer, proves
nothing and makes the race void; any figure above its limit, and any fault that blames the candidate, makes it wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from gatekeeper.domain.decision import Reason
from gatekeeper.domain.race import RaceOutcome, RaceResult, RaceRules, RaceStatus
from gatekeeper.domain.samples import (
    ConfigurationRecord,
    ErrorLimits,
    ErrorRecord,
    FaultEffect,
    RaceFault,
    RoutingRecord,
    Shortfall,
)

REQUIRED_PROOFS = ("zeros", "previous", "echo", "one_element")
"""Planted wrong answers that the oracle must refuse in every race: zeros, the previous output, the input, one element off."""

_EFFECTS = {
    FaultEffect.WRONG: RaceOutcome.WRONG,
    FaultEffect.HELD: RaceOutcome.HELD,
    FaultEffect.VOID: RaceOutcome.VOID,
    FaultEffect.NOTE: None,
}


def error_limits(record: ErrorRecord, rules: RaceRules) -> ErrorLimits:
    """Return the limits that the rules set for this record: the baseline's figure times a factor, never below the floors.

    The median row of an output is held tightest; states have one factor for all.
    """
    base, floors = record.baseline, record.floors
    median_factor = rules.median_factor if record.kind == "output" else rules.rms_factor
    return ErrorLimits(
        rms=max(floors.rms, rules.rms_factor * base.rms),
        median_row=max(floors.median_row, median_factor * base.median_row),
        gain=max(floors.gain, rules.gain_factor * abs(base.gain)),
    )


def routing_limits(record: RoutingRecord, rules: RaceRules) -> Shortfall:
    """Return the largest score shortfalls allowed to the candidate's choice of experts."""
    return Shortfall(
        mean=max(record.floors.mean, rules.shortfall_mean_factor * record.baseline.mean),
        largest=max(record.floors.largest, rules.shortfall_largest_factor * record.baseline.largest),
    )


def judge_correctness(rules: RaceRules, result: RaceResult) -> list[Reason]:
    """Return every reason that the records give, for outcomes ``wrong``, ``held``, ``void`` and ``declined``."""
    records = result.configurations + result.guards
    reasons = [_of_fault(fault, "race") for fault in result.faults]
    for record in records:
        label = record.configuration.label
        reasons.extend(_of_fault(fault, label) for fault in record.faults)
        reasons.extend(_of_errors(record, rules))
        reasons.extend(_of_proofs(record))
    reasons.extend(_of_supports(result))
    if result.status is RaceStatus.FINISHED:
        reasons.extend(_gaps(records))
    return reasons


def _of_fault(fault: RaceFault, label: str) -> Reason:
    side = f"{fault.arm.value}: " if fault.arm is not None else ""
    return Reason(
        code=fault.code,
        outcome=_EFFECTS[fault.effect],
        where=label,
        message=f"{side}{fault.where}",
        expected=fault.expected,
        found=fault.found,
    )


def _of_errors(record: ConfigurationRecord, rules: RaceRules) -> Iterator[Reason]:
    label = record.configuration.label
    for error in record.errors:
        limits = error_limits(error, rules)
        where = f"{error.kind} {error.tensor}, check {error.check}, regime {error.regime}"
        for code, name, found, limit in (
            ("COR_MISMATCH", "rms relative error", error.candidate.rms, limits.rms),
            ("COR_MISMATCH", "median row's relative error", error.candidate.median_row, limits.median_row),
            ("COR_GAIN", "absolute signed gain", abs(error.candidate.gain), limits.gain),
        ):
            if found > limit:
                yield _too_large(code, label, f"{where}: {name} is too large", limit, found)
    for routing in record.routing:
        allowed = routing_limits(routing, rules)
        where = f"choice of experts, check {routing.check}, regime {routing.regime}"
        for name, found, limit in (
            ("mean shortfall", routing.candidate.mean, allowed.mean),
            ("largest shortfall", routing.candidate.largest, allowed.largest),
        ):
            if found > limit:
                yield _too_large("COR_ROUTING", label, f"{where}: {name} is too large", limit, found)


def _too_large(code: str, label: str, message: str, limit: float, found: float) -> Reason:
    return Reason(
        code=code, outcome=RaceOutcome.WRONG, where=label, message=message, expected=f"at most {limit:.4g}",
        found=f"{found:.4g}",
    )  # fmt: skip


def _of_proofs(record: ConfigurationRecord) -> Iterator[Reason]:
    for proof in record.self_proofs:
        if not proof.refused:
            yield Reason(
                code="COR_TRIVIAL_ACCEPTED",
                outcome=RaceOutcome.VOID,
                where=record.configuration.label,
                message=f"the oracle accepted a planted wrong answer ({proof.name}), so it proves nothing",
                expected="refused",
                found=f"accepted at relative error {proof.figure:.4g}",
            )


def _of_supports(result: RaceResult) -> Iterator[Reason]:
    for answer in result.supports:
        label = answer.configuration.label
        if answer.asked_as == "refused" and not answer.declined:
            yield Reason(
                code="SCOPE_NOT_REFUSED",
                outcome=RaceOutcome.WRONG,
                where=label,
                message="a configuration outside the declared scope was accepted",
                expected="declined with a reason",
                found="accepted",
            )
        elif answer.asked_as != "refused" and answer.declined:
            yield Reason(
                code="SCOPE_DECLINED",
                outcome=RaceOutcome.DECLINED,
                where=label,
                message=f"the candidate declines a configuration that its manifest {_SERVED[answer.asked_as]}",
                expected="served",
                found=f"declined: {answer.reason or 'no reason given'}",
            )


_SERVED = {"advertised": "advertises", "guard": "says it serves"}


def _gaps(records: tuple[ConfigurationRecord, ...]) -> Iterator[Reason]:
    for record in records:
        if not record.errors:
            yield _gap(
                "COR_NOT_CHECKED", record.configuration.label, "no correctness record", "at least one error record"
            )
    shown = {proof.name for record in records for proof in record.self_proofs}
    missing = [name for name in REQUIRED_PROOFS if name not in shown]
    if missing:
        yield _gap("COR_SELF_PROOF", "race", f"proofs missing: {', '.join(missing)}", ", ".join(REQUIRED_PROOFS))


def _gap(code: str, where: str, found: str, expected: str) -> Reason:
    message = "what was not checked is not passed"
    return Reason(code=code, outcome=RaceOutcome.VOID, where=where, message=message, expected=expected, found=found)
