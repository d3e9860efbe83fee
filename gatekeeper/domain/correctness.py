"""Is the candidate as right as the stock path: recomputed from the records of a race.

Only an explicit pass passes. A configuration without error records of each check, or an oracle that accepted a planted wrong
answer, proves nothing and makes the race void; any figure above its limit, and any fault that blames the candidate, makes it
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gatekeeper.domain.decision import Reason
from gatekeeper.domain.race import RaceOutcome, RaceResult, RaceRules, RaceStatus
from gatekeeper.domain.samples import (
    ConfigurationRecord,
    ConstantRecord,
    ErrorLimits,
    ErrorRecord,
    FaultEffect,
    RaceFault,
    RoutingRecord,
    Shortfall,
)

REQUIRED_PROOFS = ("zeros", "previous", "echo", "one_element")
"""Planted wrong answers that the oracle must refuse in every race: zeros, the previous output, the input, one element off."""

REQUIRED_CHECKS = ("chain", "timed")
"""Followed by the oracle in every finished race: untimed chains, and runs drawn from the timed ones, which a candidate may treat
differently."""

BOUNDARY = "boundary"
"""The check of configurations where code may branch."""

_EFFECTS = {
    FaultEffect.WRONG: RaceOutcome.WRONG,
    FaultEffect.HELD: RaceOutcome.HELD,
    FaultEffect.VOID: RaceOutcome.VOID,
    FaultEffect.NOTE: None,
}


CHANCE = 1.6
"""Spread of an honest figure over the baseline's on the same seeds, as a logarithm, for one sequence; it falls with the root of
their number. From ``benchmarks/honest_errors.py``: in 6,000 resamples of 1 to 32 out of 213 runs, no ratio of a root mean square
or a median reached exp(1.6 / sqrt(sequences)) times the ratio over all."""
GAIN_OF_ONE_SEQUENCE = 1e-3
"""What an honest absolute gain may show above its limit by chance in one sequence, at least: the largest of 5,000 such resamples was
1.0e-3 over one sequence and 3.0e-4 over sixteen."""
GAIN_SPREAD = {"output": 0.18, "state": 0.4}
"""The same in units of the stock path's root mean square error, where that is large: in chains of 13 layers (60 sequences, both
honest paths) the standard deviation of one sequence's gain was 0.036 of it in the output and 0.06 to 0.10 in recurrent states."""

ELEMENT_FACTOR = 4.0
"""How much larger a candidate's largest error of one element may be than the baseline's: both are the largest of many draws."""
ELEMENT_OF_RMS = 40.0
"""And over the stock path's root mean square error: after 13 layers, with 4 to 7 % of that, honest elements were off by 1.01."""
LARGEST_ELEMENT = 3.0
"""What no element may be off by, in root mean squares of its row, whatever the baseline shows: less than the planted one."""
CONSTANT_ERRORS = 5.0
"""Standard errors that a constant may seem off by chance; dozens of constants are looked at in each race."""


def error_limits(record: ErrorRecord, rules: RaceRules) -> ErrorLimits:
    """Return the limits that the rules set for this record: the baseline's figure times a factor, never below the floors.

    The median row of an output is held tightest; states have one factor for all. What chance alone does over as few sequences
    as were followed is allowed for, so that an honest candidate is not stopped by the first run that is followed; limits get
    sharper with every sequence.
    """
    base, floors = record.baseline, record.floors
    root = math.sqrt(record.sequences)
    chance = math.exp(CHANCE / root)
    median_factor = rules.median_factor if record.kind == "output" else rules.rms_factor
    rms = chance * max(floors.rms, rules.rms_factor * base.rms)
    # What only turns a row away from the reference makes its part along it shorter: 1 - cos of the angle, half its square.
    turned = min(record.candidate.rms, rms) ** 2 / 2
    spread = max(GAIN_OF_ONE_SEQUENCE, GAIN_SPREAD[record.kind] * base.rms)
    element = None
    if floors.element is not None and base.element is not None:
        element = max(floors.element, ELEMENT_FACTOR * base.element, ELEMENT_OF_RMS * base.rms)
        element = min(element, LARGEST_ELEMENT)
    return ErrorLimits(
        rms=rms,
        median_row=chance * max(floors.median_row, median_factor * base.median_row),
        gain=max(floors.gain, rules.gain_factor * abs(base.gain)) + spread / root + turned,
        element=element,
    )


def constant_limit(record: ConstantRecord, rules: RaceRules) -> float:
    """Return how far off, as a natural logarithm, a constant may seem to be in the candidate.

    The floor, or the stock path's own figure times the rules' factor for a signed gain, and what rounding does by chance.
    """
    systematic = max(record.floor, rules.gain_factor * abs(record.baseline))
    return systematic + CONSTANT_ERRORS * record.resolution


def routing_limits(record: RoutingRecord, rules: RaceRules) -> Shortfall:
    """Return the largest score shortfalls allowed to the candidate's choice of experts.

    The mean may hold one swap of the largest size that is allowed at all: such swaps are rare, and one is chance.
    """
    largest = max(record.floors.largest, rules.shortfall_largest_factor * record.baseline.largest)
    mean = max(record.floors.mean, rules.shortfall_mean_factor * record.baseline.mean)
    return Shortfall(mean=mean + record.floors.largest / record.steps, largest=largest)


def judge_correctness(rules: RaceRules, result: RaceResult) -> list[Reason]:
    """Return every reason that the records give, for outcomes ``wrong``, ``held``, ``void`` and ``declined``."""
    records = result.configurations + result.guards
    reasons = [_of_fault(fault, "race") for fault in result.faults]
    for record in (*records, *result.boundaries):
        reasons.extend(judge_record(record, rules))
    reasons.extend(_of_supports(result))
    if result.status is RaceStatus.FINISHED:
        reasons.extend(_gaps(records))
    return reasons


def judge_record(record: ConfigurationRecord, rules: RaceRules) -> list[Reason]:
    """Return every reason that one configuration's record gives: faults, errors above their limits, proofs that failed."""
    label = record.configuration.label
    reasons = [_of_fault(fault, label) for fault in record.faults]
    found = (_of_errors(record, rules), _of_constants(record, rules), _of_routing(record, rules), _of_proofs(record))
    return [*reasons, *(reason for part in found for reason in part)]


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
        part = f" ({error.part})" if error.part else ""
        where = f"{error.kind} {error.tensor}{part}, check {error.check}, regime {error.regime}"
        for code, name, found, limit in (
            ("COR_MISMATCH", "rms relative error", error.candidate.rms, limits.rms),
            ("COR_MISMATCH", "median row's relative error", error.candidate.median_row, limits.median_row),
            ("COR_GAIN", "absolute signed gain", abs(error.candidate.gain), limits.gain),
        ):
            if found > limit:
                yield _too_large(code, label, f"{where}: {name} is too large", limit, found)
        element = math.inf if error.candidate.element is None else error.candidate.element
        if limits.element is not None and element > limits.element:
            text = f"{where}: the error of one element, over its row's root mean square, is too large"
            yield _too_large("COR_ELEMENT", label, text, limits.element, element)


def _of_constants(record: ConfigurationRecord, rules: RaceRules) -> Iterator[Reason]:
    """The constants that seem off, the one furthest beyond its limit first: one fault may look like several."""
    found = [(abs(constant.candidate) / constant_limit(constant, rules), constant) for constant in record.constants]
    for share, constant in sorted(found, key=lambda pair: -pair[0]):
        if share > 1:
            off = math.expm1(max(min(constant.candidate, 20.0), -20.0))
            text = f"check {constant.check}: {constant.name} acts as if it were {off:+.3g} times itself off"
            most = constant_limit(constant, rules)
            yield _too_large("COR_CONSTANT", record.configuration.label, text, most, abs(constant.candidate))


def _of_routing(record: ConfigurationRecord, rules: RaceRules) -> Iterator[Reason]:
    label = record.configuration.label
    for routing in record.routing:
        allowed = routing_limits(routing, rules)
        where = f"choice of experts, check {routing.check}, regime {routing.regime}"
        for name, found, limit in (
            ("mean shortfall", routing.candidate.mean, allowed.mean),
            ("largest shortfall", routing.candidate.largest, allowed.largest),
        ):
            if found > limit:
                yield _too_large("COR_ROUTING", label, f"{where}: {name} is too large", limit, found)
        few, many = routing.baseline.misordered, routing.candidate.misordered
        if many > few:
            text = f"{where}: an expert was chosen before a twin that comes first beyond any rounding"
            yield _too_large("COR_ROUTING", label, text, few, many)


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


_SERVED = {"advertised": "advertises", "guard": "says it serves", "boundary": "says it serves"}


def _gaps(records: tuple[ConfigurationRecord, ...]) -> Iterator[Reason]:
    for record in records:
        checks = {error.check for error in record.errors}
        wanted = (*REQUIRED_CHECKS, *record.offered)
        absent = [check for check in wanted if check not in checks]
        if absent:
            found = f"none of check {' and '.join(absent)}"
            yield _gap("COR_NOT_CHECKED", record.configuration.label, found, f"errors of {', '.join(wanted)}")
    shown = {proof.name for record in records for proof in record.self_proofs}
    missing = [name for name in REQUIRED_PROOFS if name not in shown]
    if missing:
        yield _gap("COR_SELF_PROOF", "race", f"proofs missing: {', '.join(missing)}", ", ".join(REQUIRED_PROOFS))


def _gap(code: str, where: str, found: str, expected: str) -> Reason:
    message = "what was not checked is not passed"
    return Reason(code=code, outcome=RaceOutcome.VOID, where=where, message=message, expected=expected, found=found)
