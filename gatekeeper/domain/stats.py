"""Small pure functions of the race's statistics, named by the words of ``docs/statistics.md``.

All effects are natural logarithms of baseline / candidate, so 0.02 means about 2 % faster. A *block value* comes from one pair
of fresh processes, a *unit value* from two blocks with slots swapped and start order turned round; the test is over units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev

from gatekeeper.domain.samples import Arm, Block, Group


def group_value(group: Group) -> float:
    """Return log(baseline / candidate) of a group: time per step, all runs of an arm together.

    In ABBA order a drift that is linear in time falls on both arms alike and cancels to first order.
    """
    return math.log(_per_step([group], Arm.BASELINE) / _per_step([group], Arm.CANDIDATE))


def trimmed_mean(values: Sequence[float], share: float) -> float:
    """Return the mean without the lowest and highest ``floor(share * n)`` values.

    Raises:
        ValueError: if there are no values.
    """
    if not values:
        raise ValueError("expected at least one value; found none")
    cut = int(share * len(values))
    return fmean(sorted(values)[cut : len(values) - cut])


def block_value(block: Block, trim: float) -> float:
    """Return the trimmed mean of the block's group values; ``trim`` is the share left out at each end."""
    return trimmed_mean([group_value(group) for group in block.groups], trim)


def unit_values(blocks: Sequence[Block], trim: float) -> list[float]:
    """Return one value for each pair of blocks, in order of the pair numbers: the mean of its two block values."""
    pairs: dict[int, list[float]] = {}
    for block in blocks:
        pairs.setdefault(block.pair, []).append(block_value(block, trim))
    return [fmean(pairs[number]) for number in sorted(pairs)]


def ratio_of_sums(blocks: Sequence[Block]) -> float:
    """Return log(baseline / candidate) of all time over all steps: it follows rare slow calls that a trimmed mean cuts off."""
    groups = [group for block in blocks for group in block.groups]
    return math.log(_per_step(groups, Arm.BASELINE) / _per_step(groups, Arm.CANDIDATE))


def nanoseconds_per_step(blocks: Sequence[Block], arm: Arm) -> float:
    """Return the mean time of a step of one arm over all its runs, in ns."""
    return _per_step([group for block in blocks for group in block.groups], arm)


def fastest_step(blocks: Sequence[Block], arm: Arm) -> float:
    """Return the shortest time per step that any single run of an arm shows, in ns."""
    return min(
        run.nanoseconds / run.steps for block in blocks for g in block.groups for run in g.runs if run.arm is arm
    )


def median_gain(blocks: Sequence[Block]) -> float:
    """Return the median over groups of baseline minus candidate time per step, in ns."""
    groups = [group for block in blocks for group in block.groups]
    return median(_per_step([group], Arm.BASELINE) - _per_step([group], Arm.CANDIDATE) for group in groups)


def median_effect(blocks: Sequence[Block]) -> float:
    """Return the median over groups of log(baseline / candidate): what a typical group shows, whatever a few show."""
    return median(group_value(group) for block in blocks for group in block.groups)


def steps_per_run(blocks: Sequence[Block]) -> float:
    """Return the mean number of steps of a run."""
    return fmean(run.steps for block in blocks for group in block.groups for run in group.runs)


def clock_disagreement(blocks: Sequence[Block]) -> float | None:
    """Return the difference of the log ratios by the outer clock and by the arms' own events; None without events."""
    sums = {arm: [0, 0] for arm in Arm}
    for run in (run for block in blocks for group in block.groups for run in group.runs):
        if run.event_nanoseconds is None:
            return None
        sums[run.arm][0] += run.nanoseconds
        sums[run.arm][1] += run.event_nanoseconds
    base, cand = sums[Arm.BASELINE], sums[Arm.CANDIDATE]
    return math.log(base[0] / cand[0]) - math.log(base[1] / cand[1])


def throttled_share(blocks: Sequence[Block]) -> float:
    """Return which share of all groups that were run had to be repeated because the machine throttled."""
    groups = [group for block in blocks for group in block.groups]
    repeats = sum(group.repeats for group in groups)
    return repeats / (len(groups) + repeats)


def lower_bound(values: Sequence[float], p: float) -> float:
    """Return the one-sided Student t lower bound of the mean at error ``p``; minus infinity for fewer than two values."""
    if len(values) < 2 or p <= 0:
        return -math.inf
    return fmean(values) + _t_quantile(len(values) - 1, p) * stdev(values) / math.sqrt(len(values))


def upper_bound(values: Sequence[float], p: float = 0.05) -> float:
    """Return the one-sided Student t upper bound of the mean at error ``p``; infinity for fewer than two values."""
    return -lower_bound([-value for value in values], p)


@dataclass(frozen=True)
class Interval:
    """An estimate with its standard error, in the units of the estimate."""

    value: float
    error: float


def intercept_gap(blocks: Sequence[Block]) -> Interval | None:
    """Return the difference of the arms' fixed costs (baseline minus candidate) as a share of a mean baseline run.

    Each arm's time is a fixed cost of a run plus a cost of a step; block effects are taken out before the slope is fitted, by
    least squares. None where the runs of an arm all have the same number of steps.
    """
    fits = [_fixed_cost(blocks, arm) for arm in (Arm.BASELINE, Arm.CANDIDATE)]
    if fits[0] is None or fits[1] is None:
        return None
    runs = [r.nanoseconds for b in blocks for g in b.groups for r in g.runs if r.arm is Arm.BASELINE]
    scale = fmean(runs)
    return Interval((fits[0].value - fits[1].value) / scale, math.hypot(fits[0].error, fits[1].error) / scale)


def control_limits(
    block_sd: float, mean_upper_95: float, recorded: int, blocks: int, tests: int
) -> tuple[float, float]:
    """Return the largest absolute mean and SD of ``blocks`` A/A block values that fit a record of ``recorded`` blocks.

    The 99 % range is one of the whole session: each of ``tests`` comparisons gets its share of the 1 %. The mean may lie off
    zero by the record's own bound plus the t range of a new mean; the SD by the F range of two variances.
    """
    p = 0.01 / max(tests, 1)
    reach = _t_quantile(recorded - 1, 1 - p / 2) * block_sd * math.sqrt(1 / blocks + 1 / recorded)
    widest = block_sd * math.sqrt(_f_quantile(blocks - 1, recorded - 1, 1 - p)) if blocks > 1 else math.inf
    return mean_upper_95 + reach, widest


def margin_needed(mean_upper_95: float, least: float) -> float:
    """Return the relative gain to exceed: the policy's least one, or what identical arms have shown on this target."""
    return max(least, math.expm1(mean_upper_95))


def blocks_to_decide(values: Sequence[float], margin: float, p: float, power: float = 0.8) -> int | None:
    """Return how many blocks would show a gain above ``margin`` (log) with ``power``, if the estimates are the truth.

    None where the estimate lies at or below the margin: more blocks would only show that better.
    """
    if len(values) < 2 or fmean(values) <= margin:
        return None
    distance, spread = fmean(values) - margin, stdev(values)
    reach = NormalDist().inv_cdf(power)
    for units in range(2, 5001):
        if distance * math.sqrt(units) >= (_t_quantile(units - 1, 1 - p) + reach) * spread:
            return 2 * units
    return None


# SciPy is loaded where a quantile is taken: every command line and every web process imports the race's policies, and most of
# them never race. It was half of the time that ``gatekeeper check`` took to start.


def _t_quantile(freedom: float, p: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, p))


def _f_quantile(above: float, below: float, p: float) -> float:
    from scipy.special import fdtri

    return float(fdtri(above, below, p))


def _per_step(groups: Sequence[Group], arm: Arm) -> float:
    runs = [run for group in groups for run in group.runs if run.arm is arm]
    return sum(run.nanoseconds for run in runs) / sum(run.steps for run in runs)


def _fixed_cost(blocks: Sequence[Block], arm: Arm) -> Interval | None:
    steps: list[float] = []
    times: list[float] = []
    centred: list[tuple[float, float]] = []
    for block in blocks:
        points = [(run.steps, run.nanoseconds) for group in block.groups for run in group.runs if run.arm is arm]
        middle = (fmean(n for n, _ in points), fmean(t for _, t in points))
        centred.extend((n - middle[0], t - middle[1]) for n, t in points)
        steps.extend(n for n, _ in points)
        times.extend(t for _, t in points)
    spread = sum(n * n for n, _ in centred)
    freedom = len(centred) - len(blocks) - 1
    if spread == 0 or freedom < 1:
        return None
    slope = sum(n * t for n, t in centred) / spread
    residual = math.sqrt(sum((t - slope * n) ** 2 for n, t in centred) / freedom)
    mean_steps = fmean(steps)
    error = residual * math.sqrt(1 / len(steps) + mean_steps * mean_steps / spread)
    return Interval(fmean(times) - slope * mean_steps, error)
