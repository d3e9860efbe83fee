"""Times that a machine may not pass by itself, and samples from which no ratio may be formed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, stdev

from gatekeeper.domain import stats
from gatekeeper.domain.catalog import HardwareTarget, Noise
from gatekeeper.domain.decision import Figures, Reason
from gatekeeper.domain.race import RaceOutcome, RaceRules
from gatekeeper.domain.samples import Arm, ConfigurationRecord

MICRO = 1000.0


def floor_ns(record: ConfigurationRecord, target: HardwareTarget) -> float:
    """Return the least time of a step in ns: bytes that it must move over the target's measured copy bandwidth."""
    return record.bytes_needed / target.bandwidth_bytes_per_second * 1e9


def judge_plausibility(record: ConfigurationRecord, figures: Figures, rules: RaceRules) -> Iterator[Reason]:
    """Yield what makes a good time doubtful; each holds the race for a person."""
    fastest = stats.fastest_step(record.blocks, Arm.CANDIDATE)
    if fastest < figures.floor_ns:
        yield _held(
            "TIM_BELOW_FLOOR",
            figures,
            "a run of the candidate was faster than the needed bytes can be moved",
            f"at least {figures.floor_ns / MICRO:.4g} us a step",
            f"{fastest / MICRO:.4g} us a step",
        )
    if figures.ratio > rules.plausible_ratio:
        yield _held(
            "TIM_TOO_GOOD",
            figures,
            "the gain is too large to pass unseen",
            f"a ratio up to {rules.plausible_ratio:g}",
            f"{figures.ratio:.3f}",
        )
    if figures.ratio_of_sums <= 1:
        yield _held(
            "TIM_BIMODAL",
            figures,
            "typical groups are faster, all time together is not: rare slow runs eat the gain",
            "a ratio of sums above 1",
            f"{figures.ratio_of_sums:.4f}, while the trimmed ratio is {figures.ratio:.4f}",
        )
    typical = math.exp(stats.median_effect(record.blocks))
    if math.log(typical) < math.log(figures.ratio) / 2:
        yield _held(
            "TIM_BIMODAL",
            figures,
            "a few very fast groups make the gain, typical ones do not show it: runs that no oracle followed may be hollow",
            f"a median group with at least half of the gain of {figures.ratio:.4f}",
            f"{typical:.4f}",
        )
    gap = stats.intercept_gap(record.blocks)
    run_gain = (figures.baseline_ns - figures.candidate_ns) * stats.steps_per_run(record.blocks)
    if (gap is None or 2.58 * gap.error > rules.intercept_gap) and run_gain <= rules.fixed_cost_ns:
        yield _held(
            "TIM_SHORT_RUN",
            figures,
            "runs are so short that the fixed cost of starting and ending one may be the whole gain",
            f"a gain of more than {rules.fixed_cost_ns / MICRO:g} us a run, or longer contexts",
            f"{run_gain / MICRO:.4g} us over {stats.steps_per_run(record.blocks):.3g} steps",
        )
    if gap is not None and abs(gap.value) - 2.58 * gap.error > rules.intercept_gap:
        yield _held(
            "TIM_INTERCEPT",
            figures,
            "the arms differ in the fixed cost of a run, not only in the cost of a step",
            f"fixed costs within {rules.intercept_gap:.1%} of a run",
            f"{gap.value:+.1%}, standard error {gap.error:.1%}",
        )
    clocks = stats.clock_disagreement(record.blocks)
    if clocks is not None and abs(clocks) > rules.clock_gap:
        yield _held(
            "TIM_CLOCK_DISAGREE",
            figures,
            "the clock outside and the events inside the arms give different ratios",
            f"log ratios within {rules.clock_gap:.1%}",
            f"{clocks:+.2%}",
        )


def judge_target(noise: Noise, rules: RaceRules) -> Iterator[Reason]:
    """Yield why no race can be decided on a target with this A/A record."""
    margin = stats.margin_needed(noise.mean_upper_95, rules.margin)
    for wrong, expected, found in (
        (noise.blocks < rules.record_blocks, f"a record of at least {rules.record_blocks} A/A blocks", noise.blocks),
        (noise.block_sd > rules.raceable_block_sd, f"block SD up to {rules.raceable_block_sd:.1%}",
         f"{noise.block_sd:.2%}"),
        (margin > rules.margin_cap, f"a margin up to {rules.margin_cap:.1%}", f"{margin:.2%}"),
    ):  # fmt: skip
        if wrong:
            message = "this target cannot decide a race"
            yield _void("TIM_NOT_RACEABLE", "race", message, expected, str(found))


def judge_samples(
    record: ConfigurationRecord, rules: RaceRules, target: HardwareTarget, *, guard: bool, tests: int
) -> Iterator[Reason]:
    """Yield why a configuration's samples may not be compared: unlike modes, throttling, an A/A control off its record.

    ``tests`` is the number of configurations whose controls share the session's 1 %.
    """
    label = record.configuration.label
    for name, base, cand in (
        ("mode", record.baseline.mode, record.candidate.mode),
        ("communication", record.baseline.communication, record.candidate.communication),
    ):
        if base != cand:
            message = f"uncomparable: the arms ran in different {name}"
            yield _void(
                "TIM_UNEQUAL_MODE", label, message, f"one {name} for both", f"baseline {base}, candidate {cand}"
            )
    if record.blocks and (share := stats.throttled_share(record.blocks)) > rules.throttled_share:
        message = "the machine throttled too often"
        yield _void("TIM_THROTTLED", label, message, f"at most {rules.throttled_share:.0%} repeated", f"{share:.1%}")
    if not guard:
        yield from _judge_control(record, target.noise, tests, rules.trim)


def _judge_control(record: ConfigurationRecord, noise: Noise, tests: int, trim: float) -> Iterator[Reason]:
    label = record.configuration.label
    if len(record.control) < 2 or noise.blocks < 2:
        return
    values = [stats.block_value(block, trim) for block in record.control]
    mean_limit, sd_limit = stats.control_limits(
        noise.block_sd, noise.mean_upper_95, noise.blocks, len(values), 2 * tests
    )
    message = "identical arms did not look alike: the machine is not in its recorded state"
    if abs(fmean(values)) > mean_limit:
        yield _void("TIM_CONTROL", label, message, f"A/A mean within {mean_limit:.2%}", f"{fmean(values):+.2%}")
    if stdev(values) > sd_limit:
        yield _void("TIM_CONTROL", label, message, f"A/A block SD up to {sd_limit:.2%}", f"{stdev(values):.2%}")


def gain_too_small(figures: Figures, rules: RaceRules, target: HardwareTarget) -> bool:
    """Return whether the median gain of a layer stays below the absolute floor; a CPU has none."""
    return target.architecture != "cpu" and figures.gain_per_layer_ns < rules.gain_per_layer_ns


def _held(code: str, figures: Figures, message: str, expected: str, found: str) -> Reason:
    return Reason(
        code=code, outcome=RaceOutcome.HELD, where=figures.label, message=message, expected=expected, found=found
    )


def _void(code: str, where: str, message: str, expected: str, found: str) -> Reason:
    return Reason(code=code, outcome=RaceOutcome.VOID, where=where, message=message, expected=expected, found=found)
