"""When a race may stop: looks, the nominal p at each, and how the error is shared among looks and among races.

The rule is the spending function of O'Brien and Fleming's shape due to Lan and DeMets (Biometrika 70, 1983): by the fraction t
of the last look's blocks, alpha(t) = 2 - 2 Phi(z / sqrt(t)) with z = Phi^-1(1 - alpha / 2) has been spent. The p at a look is
what makes the probability of crossing there for the first time equal to what that look may spend, for a normal mean watched at
fractions t. The test itself is Student's t at that p; ``benchmarks/operating_characteristics.py`` shows what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

from gatekeeper.domain.race import RaceRules

FULL_ALPHA = 0.01
"""The error of a first race, for which a policy set's nominal p stand."""
LEAST_ALPHA = 0.00125
NEGLIGIBLE = 1e-3
"""A look that would spend less than this share of alpha spends nothing: it is for futility only."""
GRID = 160
_NORMAL = NormalDist()


def race_alpha(race: int) -> float:
    """Return the error allowed to the ``race``-th race of a pull request, from 1: halved each time down to 0.00125.

    Raises:
        ValueError: if ``race`` is below 1.
    """
    if race < 1:
        raise ValueError(f"races are counted from 1; found {race}")
    return max(math.ldexp(FULL_ALPHA, 1 - race), LEAST_ALPHA)


def spent(fraction: float, alpha: float) -> float:
    """Return the share of error that may be used up once ``fraction`` of all blocks is there."""
    return 2 * _NORMAL.cdf(_NORMAL.inv_cdf(alpha / 2) / math.sqrt(fraction))


@lru_cache(maxsize=256)
def nominal_p(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """Return the one-sided nominal p at each look so that all looks together err with probability ``alpha``.

    Looks are numbers of blocks, ascending; 0 means that the look is for futility only.

    Raises:
        ValueError: if the looks do not ascend from above 0, or alpha is not in (0, 0.5).
    """
    if not looks or list(looks) != sorted(set(looks)) or looks[0] <= 0 or not 0 < alpha < 0.5:
        raise ValueError(f"expected ascending looks and alpha in (0, 0.5); found {looks} and {alpha}")
    fractions = [look / looks[-1] for look in looks]
    chosen: list[float] = []
    used = 0.0
    for index, fraction in enumerate(fractions):
        due = spent(fraction, alpha) - used
        if due < NEGLIGIBLE * alpha:
            chosen.append(0.0)
            continue
        chosen.append(_solve(fractions[: index + 1], chosen, due))
        used += due
    return tuple(chosen)


@lru_cache(maxsize=256)
def scaled_p(looks: tuple[int, ...], nominal: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """Return a schedule's nominal p, made for alpha 0.01, shrunk by one factor so that all looks together err with ``alpha``.

    At alpha 0.01 or above the schedule stands as it is.
    """
    if alpha >= FULL_ALPHA:
        return nominal
    fractions = [look / looks[-1] for look in looks]
    low, high = 0.0, alpha / FULL_ALPHA * 2
    for _ in range(40):
        middle = (low + high) / 2
        total = sum(crossing_probabilities(fractions, [p * middle for p in nominal]))
        low, high = (middle, high) if total < alpha else (low, middle)
    return tuple(p * low for p in nominal)


def crossing_probabilities(fractions: Sequence[float], nominal: Sequence[float]) -> list[float]:
    """Return for each look the probability that a normal mean of zero crosses there first, at these nominal p.

    Recursive numerical integration over the part of the path that has not crossed (Armitage, McPherson and Rowe, 1969),
    with Simpson's rule on ``GRID`` intervals; a look with p 0 is passed over.
    """
    active = [(t, p) for t, p in zip(fractions, nominal, strict=True) if p > 0]
    densities: list[tuple[float, float]] = []  # (position of the sum at the last look, probability weight)
    result: list[float] = []
    before = 0.0
    for fraction, p in active:
        bound = -_NORMAL.inv_cdf(p) * math.sqrt(fraction)
        step = math.sqrt(fraction - before)
        if not densities:
            result.append(p)
        else:
            result.append(sum(weight * _NORMAL.cdf((at - bound) / step) for at, weight in densities))
        densities = _not_crossed(densities, bound, step, fraction)
        before = fraction
    found = iter(result)
    return [next(found) if p > 0 else 0.0 for p in nominal]


def next_look(rules: RaceRules, blocks: int) -> int | None:
    """Return the number of blocks at the first look after ``blocks``, or None when all looks are used up."""
    return next((look for look in rules.looks if look > blocks), None)


def _not_crossed(
    before: list[tuple[float, float]], bound: float, step: float, fraction: float
) -> list[tuple[float, float]]:
    low = -8 * math.sqrt(fraction)
    width = (bound - low) / GRID
    scale = 1 / (step * math.sqrt(2 * math.pi))
    points = []
    for index in range(GRID + 1):
        at = low + index * width
        simpson = width / 3 * (1 if index in (0, GRID) else 4 if index % 2 else 2)
        sources = before or [(0.0, 1.0)]
        density = scale * sum(weight * math.exp(-0.5 * ((at - start) / step) ** 2) for start, weight in sources)
        points.append((at, simpson * density))
    return points


def _solve(fractions: Sequence[float], earlier: Sequence[float], due: float) -> float:
    low, high = due, min(0.5, 2 * (due + sum(earlier)))
    for _ in range(30):
        middle = (low + high) / 2
        found = crossing_probabilities(fractions, [*earlier, middle])[-1]
        low, high = (middle, high) if found < due else (low, middle)
    return (low + high) / 2
