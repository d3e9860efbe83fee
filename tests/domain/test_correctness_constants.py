"""Constants, single elements, twins and offered checks: what each figure of a record does to a race, and old records stay valid."""

from __future__ import annotations

import math

import pytest

from gatekeeper.domain.correctness import constant_limit, error_limits, judge_correctness, judge_record
from gatekeeper.domain.race import RaceOutcome, RaceResult
from gatekeeper.domain.race_decision import pooled
from gatekeeper.domain.samples import ConstantRecord, ErrorFigures, ErrorLimits, RoutingRecord, Shortfall
from tests import race_samples as make

RULES = make.request().rules


def constant(
    candidate: float, *, baseline: float = 0.0, resolution: float = 1e-4, floor: float = 4e-3
) -> ConstantRecord:
    return ConstantRecord(
        name="layers.8.input_norm", check="one_step", candidate=candidate, baseline=baseline, resolution=resolution,
        floor=floor, limit=0,
    )  # fmt: skip


def test_a_constant_one_percent_off_is_wrong_and_named_with_its_sign_and_the_worst_comes_first():
    record = make.record(constants=(constant(-math.log(1.01)), constant(0.5)))
    reasons = judge_record(record, RULES)
    assert [(r.code, r.outcome) for r in reasons] == [("COR_CONSTANT", RaceOutcome.WRONG)] * 2
    assert "+0.649" in reasons[0].message and "-0.0099" in reasons[1].message


@pytest.mark.parametrize(
    ("found", "baseline", "resolution", "wrong"),
    [(3e-3, 0.0, 1e-4, False), (9e-3, 5e-3, 1e-4, False), (9e-3, 0.0, 1e-3, False), (9e-3, 1e-3, 1e-4, True)],
    ids=["below the floor", "as the stock path", "cannot be told", "beyond all three"],
)
def test_a_constant_may_seem_off_by_what_the_stock_path_or_chance_does(found, baseline, resolution, wrong):
    record = make.record(constants=(constant(found, baseline=baseline, resolution=resolution),))
    assert bool(judge_record(record, RULES)) is wrong
    assert constant_limit(record.constants[0], RULES) > max(4e-3, baseline, resolution)


def with_elements(candidate: float | None, baseline: float | None, floor: float | None = 0.25):
    error = make.error()
    return error.model_copy(
        update={
            "candidate": error.candidate.model_copy(update={"element": candidate}),
            "baseline": error.baseline.model_copy(update={"element": baseline}),
            "floors": error.floors.model_copy(update={"element": floor}),
        }
    )


@pytest.mark.parametrize(
    ("candidate", "baseline", "wrong"),
    [
        (0.2, 0.01, False),
        (0.39, 0.01, False),
        (0.41, 0.01, True),
        (0.41, 0.11, False),
        (1.5, 0.1, True),
        (None, 0.1, True),
        (9.0, None, False),
    ],
)
def test_one_element_is_held_against_the_floor_and_the_stock_paths_own(candidate, baseline, wrong):
    reasons = judge_record(make.record(errors=(with_elements(candidate, baseline),)), RULES)
    assert {reason.code for reason in reasons} == ({"COR_ELEMENT"} if wrong else set())


def test_a_record_from_before_elements_were_taken_sets_no_limit_for_them():
    old = ErrorFigures.model_validate({"rms": 0.01, "median_row": 0.01, "largest": 0.03, "gain": 0.0})
    assert old.element is None
    error = make.error().model_copy(update={"candidate": old, "baseline": old})
    assert error_limits(error, RULES).element is None
    assert ErrorLimits.model_validate({"rms": 1, "median_row": 1, "gain": 1}).element is None


def test_a_twin_out_of_order_is_wrong_only_where_the_stock_path_keeps_the_order():
    for stock, wrong in ((0, True), (3, False)):
        floors = Shortfall(mean=1e-4, largest=2e-2)
        routing = RoutingRecord(
            check="one_step", steps=32, rows=1, candidate=Shortfall(mean=0, largest=0, misordered=2),
            baseline=Shortfall(mean=0, largest=0, misordered=stock), floors=floors, limits=floors,
        )  # fmt: skip
        found = judge_record(make.record(routing=(routing,)), RULES)
        assert [reason.code for reason in found] == (["COR_ROUTING"] if wrong else [])


def test_a_check_that_the_model_offers_must_have_been_made():
    record = make.record(offered=("regime", "one_step"))
    reasons = judge_correctness(RULES, make.result(record))
    assert [(r.code, r.outcome) for r in reasons] == [("COR_NOT_CHECKED", RaceOutcome.VOID)]
    assert "regime and one_step" in reasons[0].found
    made = (*make.record().errors, make.error(check="regime"), make.error(check="one_step"))
    assert judge_correctness(RULES, make.result(make.record(offered=("regime", "one_step"), errors=made))) == []


def test_pooled_races_keep_constants_and_what_was_offered():
    first = make.result(make.record(constants=(constant(0.5),), offered=("regime",)))
    both = pooled([first, make.result(make.record())])
    assert [found.candidate for found in both.configurations[0].constants] == [0.5]
    assert both.configurations[0].offered == ("regime",)


def test_a_result_stored_before_these_fields_still_reads_and_says_the_same():
    result = make.result()
    old = result.model_dump(mode="json")
    for record in old["configurations"]:
        for name in ("constants", "offered"):
            del record[name]
        for error in record["errors"]:
            del error["part"]
            for part in ("candidate", "baseline", "floors", "limits"):
                del error[part]["element"]
    assert RaceResult.model_validate(old) == result
    assert judge_correctness(RULES, RaceResult.model_validate(old)) == []
