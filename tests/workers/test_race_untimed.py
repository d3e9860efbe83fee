"""What a race asks before any time is taken, beside its advertised configurations and its short chains: edges, long chains."""

from __future__ import annotations

import os

import pytest

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import judge_correctness
from gatekeeper.domain.race import RaceOutcome, RaceResult, RaceStatus
from tests.workers.conftest import MODELS, ROOT, toy_order
from workers.race import race


@pytest.fixture(autouse=True)
def same_cores():
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def untimed(candidate="stock:baseline", **changes) -> RaceResult:
    """A race up to the end of its correctness pass. One that finds nothing wrong is abandoned there."""
    return race(toy_order(candidate, until="correctness", **changes), models=MODELS, root=ROOT)


def edges(*rows: int) -> tuple[Configuration, ...]:
    return tuple(Configuration(rows=count, context=8, page_size=4) for count in rows)


def test_an_honest_candidate_comes_through_the_points_and_their_records_are_kept():
    result = untimed(rules={"boundary_points": 2}, boundary_pool=edges(1, 3, 4))
    assert (result.status, result.outcome, result.faults) == (RaceStatus.ABANDONED, RaceOutcome.VOID, ())
    assert len(result.boundaries) == 2
    for record in result.boundaries:
        assert record.configuration in edges(1, 3, 4)
        assert {error.check for error in record.errors} == {"boundary"} and not record.offered


def test_a_candidate_that_is_wrong_at_an_edge_is_wrong_and_told_how_to_see_it_again():
    result = untimed("variants:lastrow", rules={"boundary_points": 1}, boundary_pool=edges(4), purpose="local")
    assert (result.status, result.outcome) == (RaceStatus.STOPPED, RaceOutcome.WRONG)
    reasons = judge_correctness(toy_order().request.rules, result)
    wrong = {reason.where for reason in reasons if reason.outcome is RaceOutcome.WRONG}
    assert "rows=3 q=1 ctx=1 page=1" in wrong  # smaller than what was drawn, and the smallest there is
    (note,) = [reason for reason in reasons if reason.code == "COR_BOUNDARY"]
    assert note.outcome is None and "rows=3 q=1 ctx=1 page=1" in note.message
    assert "--candidate tests.workers.toy_model.arms.variants:lastrow" in note.found and "--rows 3" in note.found


def test_a_selftest_stops_at_the_point_that_was_drawn():
    result = untimed("variants:lastrow", rules={"boundary_points": 1}, boundary_pool=edges(4))
    assert result.outcome is RaceOutcome.WRONG
    assert [record.configuration for record in result.boundaries] == list(edges(4))


def test_a_candidate_that_ends_at_an_edge_is_wrong_for_that():
    result = untimed("variants:endsatfour", rules={"boundary_points": 1}, boundary_pool=edges(4))
    assert result.outcome is RaceOutcome.WRONG
    assert {(fault.code, fault.where) for fault in result.faults} >= {("RUN_NO_RESULT", edges(4)[0].label)}


def test_a_served_edge_that_is_declined_ends_the_race():
    order = toy_order("variants:declines", rows=(1,), rules={"boundary_points": 1}, boundary_pool=edges(2))
    result = race(order, models=MODELS, root=ROOT)
    assert result.outcome is RaceOutcome.DECLINED
    assert [(answer.asked_as, answer.declined) for answer in result.supports] == [
        ("advertised", False),
        ("boundary", True),
    ]


def test_a_long_chain_sees_what_comes_late():
    assert untimed("variants:latedrift", rules={"chain_sequences": 2}).status is RaceStatus.ABANDONED
    late = untimed("variants:latedrift", rules={"chain_sequences": 2, "long_steps": 400})
    assert late.outcome is RaceOutcome.WRONG
    reasons = judge_correctness(toy_order().request.rules, late)
    assert all("check long" in reason.message for reason in reasons if reason.outcome is RaceOutcome.WRONG)


def test_an_honest_long_chain_stands_beside_the_other_checks():
    result = untimed(rules={"long_steps": 100})
    assert (result.status, result.faults) == (RaceStatus.ABANDONED, ())
    (record,) = result.configurations
    assert record.offered == ("resumed", "long")
    long = {error.tensor: error for error in record.errors if error.check == "long"}
    # Runs of 32, 32, 32 and 4 steps; those that end in the last quarter count, all of the same two requests.
    assert (long["out"].steps, long["out"].sequences) == (36, 2)
    resumed = {error.tensor: error for error in record.errors if error.check == "resumed"}
    assert resumed["out"].steps == resumed["out"].sequences / 2
