"""Limits of the errors: sharp over many sequences, wide enough over few that an honest candidate is not stopped by chance."""

from __future__ import annotations

import pytest

from gatekeeper.domain.correctness import error_limits, judge_correctness, routing_limits
from gatekeeper.domain.race import RaceOutcome
from gatekeeper.domain.samples import ErrorFigures, ErrorLimits, ErrorRecord, RoutingRecord, Shortfall
from tests import race_samples as make

RULES = make.request().rules
FLOORS = ErrorLimits(rms=4e-3, median_row=3e-3, gain=3e-4)


def output(candidate: ErrorFigures, baseline: ErrorFigures, sequences: int, check: str = "timed") -> ErrorRecord:
    return ErrorRecord(
        tensor="out", kind="output", check=check, steps=sequences, rows=sequences, sequences=sequences,
        candidate=candidate, baseline=baseline, floors=FLOORS, limits=FLOORS,
    )  # fmt: skip


STOCK = ErrorFigures(rms=0.0101, median_row=0.0063, largest=0.115, gain=-6e-5)


def test_one_followed_run_with_a_rare_row_does_not_stop_an_honest_candidate():
    # Seen in a race: two runs of one row; one row was five times the typical one, and the stock path's two runs were lucky.
    honest = ErrorFigures(rms=0.01461, median_row=0.00689, largest=0.05353, gain=-1.3e-4)
    lucky = ErrorFigures(rms=0.00771, median_row=0.00632, largest=0.01249, gain=4e-5)
    record = make.record(errors=(output(honest, lucky, 2), output(STOCK, STOCK, 16, "chain")))
    assert judge_correctness(RULES, make.result(record)) == []


@pytest.mark.parametrize(
    ("factor", "sequences"),
    [(4.3, 8), (8.6, 4), (2.9, 8)],
    ids=["skipped state update", "skipped convolution update", "newest key-value row unseen"],
)
def test_planted_faults_stay_far_above_the_limits_of_few_sequences(factor: float, sequences: int):
    limits = error_limits(output(STOCK, STOCK, sequences), RULES)
    assert factor * STOCK.median_row > limits.median_row


def test_limits_get_sharper_with_every_sequence_down_to_the_factors_of_the_rules():
    found = [error_limits(output(STOCK, STOCK, count), RULES) for count in (1, 4, 16, 256, 10**9)]
    for name in ("rms", "median_row", "gain"):
        values = [getattr(limits, name) for limits in found]
        assert values == sorted(values, reverse=True) and len(set(values)) == len(values)
    assert found[-1].rms == pytest.approx(1.5 * STOCK.rms, rel=1e-3)
    assert found[-1].median_row == pytest.approx(1.15 * STOCK.median_row, rel=1e-3)
    assert found[-1].gain == pytest.approx(FLOORS.gain + 0.0101**2 / 2, rel=1e-3)


def test_one_replayed_step_in_a_hundred_is_too_large_at_any_number_of_sequences():
    for sequences in (1, 8, 64):
        rows = 100 * sequences
        replayed = ((sequences * 1.5**2 + (rows - sequences) * STOCK.rms**2) / rows) ** 0.5
        assert replayed > error_limits(output(STOCK, STOCK, sequences), RULES).rms


@pytest.mark.parametrize(("choices", "found", "wrong"), [(32, 4.1e-4, False), (4096, 4.1e-4, True), (32, 5e-3, True)])
def test_the_mean_shortfall_may_hold_one_swap(choices: int, found: float, wrong: bool):
    floors = Shortfall(mean=1e-4, largest=2e-2)
    record = RoutingRecord(
        check="timed", steps=choices, rows=1, candidate=Shortfall(mean=found, largest=1e-2),
        baseline=Shortfall(mean=0.0, largest=0.0), floors=floors, limits=floors,
    )  # fmt: skip
    assert (found > routing_limits(record, RULES).mean) is wrong


@pytest.mark.parametrize("missing", ["chain", "timed"])
def test_a_race_without_one_of_the_checks_is_void(missing: str):
    kept = "timed" if missing == "chain" else "chain"
    reasons = judge_correctness(RULES, make.result(make.record(errors=(make.error(check=kept),))))
    assert [(r.code, r.outcome) for r in reasons] == [("COR_NOT_CHECKED", RaceOutcome.VOID)]
    assert missing in reasons[0].found


def test_errors_that_turn_a_row_make_it_shorter_and_that_is_no_gain_of_its_own() -> None:
    """Deep in a chain of 13 layers honest arms are off by 6 % and their signed gain is -2e-3; a sharp state gets no such room."""
    rms = 0.06
    base = ErrorFigures(rms=rms, median_row=rms, largest=0.2, gain=-1e-4)
    deep = make.error(sequences=16).model_copy(
        update={"baseline": base, "candidate": base.model_copy(update={"gain": -(rms**2) / 2}), "floors": FLOORS}
    )
    assert error_limits(deep, RULES).gain > rms**2 / 2
    far = deep.model_copy(update={"candidate": base.model_copy(update={"rms": 10.0})})
    most = error_limits(far, RULES)
    by_chance = 0.18 * rms / 4
    assert (
        most.gain <= FLOORS.gain + by_chance + most.rms**2 / 2
    )  # no more room than errors within their own limit explain
    sharp = base.model_copy(update={"rms": 1e-4, "gain": 1e-5})
    exact = deep.model_copy(update={"baseline": sharp, "candidate": sharp})
    assert error_limits(exact, RULES).gain == pytest.approx(FLOORS.gain + 2.5e-4, abs=1e-7)
