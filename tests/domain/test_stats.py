"""The statistics as properties and against numbers computed another way."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats as reference

from gatekeeper.domain import stats
from gatekeeper.domain.samples import Arm, Group, Run
from tests import race_samples as make

EFFECTS = st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=12)


@given(st.integers(1_000, 10**8), st.integers(1_000, 10**8))
def test_swapping_the_arms_turns_the_sign(base: int, cand: int) -> None:
    assert stats.group_value(make.group(base, cand)) == pytest.approx(
        -stats.group_value(make.group(cand, base)), abs=1e-9
    )


@given(st.integers(1_000, 10**6), st.integers(1_000, 10**6), st.integers(2, 1000))
def test_a_slower_clock_changes_nothing(base: int, cand: int, factor: int) -> None:
    slow = stats.group_value(make.group(base * factor, cand * factor))
    assert slow == pytest.approx(stats.group_value(make.group(base, cand)), abs=1e-9)


@given(EFFECTS, st.floats(-1, 1))
def test_adding_a_constant_moves_the_bounds_by_it(values: list[float], shift: float) -> None:
    moved = [value + shift for value in values]
    assert stats.lower_bound(moved, 0.01) == pytest.approx(stats.lower_bound(values, 0.01) + shift, abs=1e-6)
    assert stats.upper_bound(moved) == pytest.approx(stats.upper_bound(values) + shift, abs=1e-6)


@settings(max_examples=25)
@given(st.permutations(range(6)))
def test_the_order_of_blocks_does_not_matter(order: list[int]) -> None:
    made = make.blocks(6, 0.02, 0.01)
    shuffled = [made[index] for index in order]
    assert stats.unit_values(shuffled, 0.1) == pytest.approx(stats.unit_values(made, 0.1))
    assert stats.ratio_of_sums(shuffled) == pytest.approx(stats.ratio_of_sums(made))


@given(EFFECTS, st.sampled_from([0.0003, 0.002, 0.009, 0.05]))
def test_the_lower_bound_is_students(values: list[float], p: float) -> None:
    spread = statistics.stdev(values)
    expected = statistics.fmean(values) + reference.t.ppf(p, len(values) - 1) * spread / math.sqrt(len(values))
    assert stats.lower_bound(values, p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "expected"),
    [(list(range(10)), 4.5), ([0.0] * 9 + [100.0], 0.0), ([1.0, 3.0], 2.0), ([-50.0, *[1.0] * 18, 60.0], 1.0)],
)
def test_trimmed_mean(values: list[float], expected: float) -> None:
    assert stats.trimmed_mean(values, 0.1) == pytest.approx(expected)


def test_trimmed_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        stats.trimmed_mean([], 0.1)


def test_tim_order_linear_drift_is_unbiased_under_abba() -> None:
    honest = stats.group_value(make.group(1e6, 1e6, steps=(10, 10), drift=0.05))
    assert honest == pytest.approx(0.0, abs=1e-6)
    first, second = make.group(1e6, 1e6, steps=(10, 10), drift=0.05).runs[:2]
    assert math.log(first.nanoseconds / second.nanoseconds) < -0.04, "AB alone blames the second arm"


@pytest.mark.parametrize("bad", [-1, 0, float("nan"), float("inf"), "1000", 1.5, True, 1 << 60, None])
def test_tim_bad_numbers_are_refused(bad: object) -> None:
    with pytest.raises(ValidationError, match="TIM_BAD_NUMBER"):
        Run(arm=Arm.BASELINE, seed="1", steps=8, nanoseconds=bad)
    assert Run(arm=Arm.BASELINE, seed="1", steps=8, nanoseconds=1000).nanoseconds == 1000


def test_a_seed_may_not_be_run_twice_by_one_arm() -> None:
    runs = tuple(
        Run(arm=make.ARM[letter], seed="1", steps=8, nanoseconds=1000) for letter in "ABBA"
    )  # fmt: skip
    with pytest.raises(ValidationError, match="none twice"):
        Group(order="ABBA", runs=runs)


def test_intercept_gap_finds_a_fixed_cost_and_nothing_else() -> None:
    clean = stats.intercept_gap(make.blocks(4, 0.1))
    assert clean is not None and abs(clean.value) < 1e-4
    made = stats.intercept_gap(make.blocks(4, 0.0, fixed=200_000))
    mean_run = 10 * make.STEP_NS + 200_000
    assert made is not None and made.value == pytest.approx(200_000 / mean_run, rel=1e-3)
    assert stats.intercept_gap(make.blocks(4, 0.1, steps=(8, 8))) is None


def test_blocks_to_decide() -> None:
    values = [0.03, 0.01, 0.025, 0.015, 0.02]
    needed = stats.blocks_to_decide(values, 0.01, 0.009)
    assert needed is not None and needed % 2 == 0 and needed > 4
    assert stats.blocks_to_decide(values, 0.03, 0.009) is None
    closer = stats.blocks_to_decide(values, 0.015, 0.009)
    assert closer is not None and closer > needed


def test_control_limits_widen_with_tests_and_narrow_with_blocks() -> None:
    mean, sd = stats.control_limits(0.01, 0.002, 60, 2, 2)
    many_mean, _ = stats.control_limits(0.01, 0.002, 60, 2, 20)
    long_mean, long_sd = stats.control_limits(0.01, 0.002, 60, 12, 2)
    assert many_mean > mean > long_mean > 0.002
    assert sd > long_sd > 0.01


def test_a_stall_in_one_group_of_few_moves_a_block_only_where_too_little_is_left_out() -> None:
    stalled = make.blocks(2, 0.0, 0.0, groups=6)[0]
    stalled = stalled.model_copy(update={"groups": (*stalled.groups[1:], make.group(make.STEP_NS, 2 * make.STEP_NS))})
    assert abs(stats.block_value(stalled, 0.1)) > 0.1
    assert stats.block_value(stalled, 0.25) == pytest.approx(0.0, abs=1e-6)
