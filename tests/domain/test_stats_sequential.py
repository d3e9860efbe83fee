"""Nominal p: the published schedule comes out, and a simulation agrees with the integration."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gatekeeper.domain.sequential import crossing_probabilities, next_look, nominal_p, race_alpha, scaled_p
from tests import race_samples as make


@pytest.mark.parametrize("looks", [(6, 10, 14, 20), (12, 20, 28, 40)])
def test_the_schedule(looks: tuple[int, ...]) -> None:
    found = nominal_p(looks, 0.01)
    assert found[0] == 0
    assert found[1:] == pytest.approx((0.0003, 0.0020, 0.0090), rel=0.15)
    assert sum(crossing_probabilities([look / looks[-1] for look in looks], found)) == pytest.approx(0.01, rel=1e-4)


def test_simulated_crossings_agree() -> None:
    source = np.random.default_rng(20260101)
    looks, count, alpha = (10, 14, 20), 400_000, 0.01
    steps = np.diff([0, *looks])
    sums = np.cumsum(source.standard_normal((count, 3)) * np.sqrt(steps), axis=1) / np.sqrt(looks)
    tail = np.array([0.5 * np.vectorize(math.erfc)(column / math.sqrt(2)) for column in sums.T]).T
    crossed = (tail < np.array(nominal_p(looks, alpha))).any(axis=1).mean()
    assert crossed == pytest.approx(alpha, abs=4 * math.sqrt(alpha / count))


def test_the_demonstration_schedule_stays_below_one_percent() -> None:
    assert 0.008 < sum(crossing_probabilities([0.4, 0.6, 1.0], (0.002, 0.003, 0.006))) < 0.01


@pytest.mark.parametrize("alpha", [0.005, 0.00125])
def test_a_scaled_schedule_uses_exactly_its_alpha(alpha: float) -> None:
    scaled = scaled_p((4, 6, 10), (0.002, 0.003, 0.006), alpha)
    assert sum(crossing_probabilities([0.4, 0.6, 1.0], scaled)) == pytest.approx(alpha, rel=1e-3)
    assert scaled_p((4, 6, 10), (0.002, 0.003, 0.006), 0.01) == (0.002, 0.003, 0.006)


def test_race_alpha_halves_down_to_its_floor() -> None:
    assert [race_alpha(race) for race in (1, 2, 3, 4, 5, 5000)] == [0.01, 0.005, 0.0025, 0.00125, 0.00125, 0.00125]
    with pytest.raises(ValueError, match="found 0"):
        race_alpha(0)


def test_next_look() -> None:
    assert [next_look(make.rules(), blocks) for blocks in (0, 6, 9, 20)] == [6, 10, 10, None]


@pytest.mark.parametrize("looks", [(), (6, 6), (0, 4), (8, 4)])
def test_bad_looks_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        nominal_p(looks, 0.01)
