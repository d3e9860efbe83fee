"""One configuration of a race: walked through its looks until it crosses or fails, with the figures that are shown for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from gatekeeper.domain import plausibility, stats
from gatekeeper.domain.decision import Figures, Reason
from gatekeeper.domain.race import RaceOutcome, RaceRequest
from gatekeeper.domain.samples import Arm, ConfigurationRecord
from gatekeeper.domain.sequential import scaled_p

FUTILITY_P = 0.05
"""Error of the upper bound that ends a hopeless race; it costs power only, never a false BETTER."""


@dataclass(frozen=True)
class _Look:
    blocks: int
    p: float
    values: tuple[float, ...]


class Trial:
    """One advertised configuration, walked through its looks in order until it crosses or must fail."""

    def __init__(
        self, request: RaceRequest, record: ConfigurationRecord, alpha: float, *, single_look: bool = False
    ) -> None:
        self._rules, self._target, self._record = request.rules, request.target, record
        self._margin = math.log1p(stats.margin_needed(request.target.noise.mean_upper_95, request.rules.margin))
        self.blocks = len(record.blocks)
        self.crossed_at: int | None = None
        self.failed: RaceOutcome | None = None
        units = stats.unit_values(record.blocks, request.rules.trim)
        self._looks = (self.blocks,) if single_look else self._rules.looks
        nominal = (alpha,) if single_look else scaled_p(self._rules.looks, self._rules.nominal_p, alpha)
        look = _Look(self.blocks, nominal[-1], tuple(units))
        for blocks, p in zip(self._looks, nominal, strict=True):
            if blocks > self.blocks or self.crossed_at is not None or self.failed is not None:
                break
            look = _Look(blocks, p, tuple(units[: blocks // 2]))
            self._judge(look)
        self._look = look
        self.figures = self._figures()

    @property
    def undecided(self) -> bool:
        return self.crossed_at is None and self.failed is None

    def _judge(self, look: _Look) -> None:
        if stats.lower_bound(look.values, look.p) > self._margin:
            self.crossed_at = look.blocks
            return
        upper = stats.upper_bound(look.values, FUTILITY_P)
        if upper < 0:
            self.failed = RaceOutcome.WORSE
        elif upper < self._margin:
            self.failed = RaceOutcome.NOT_BETTER
        elif look.blocks == self._looks[-1]:
            self.failed = RaceOutcome.INCONCLUSIVE

    def _figures(self) -> Figures:
        values = self._look.values
        return _figures(
            self._record,
            values,
            p=self._look.p,
            margin=self._margin,
            trim=self._rules.trim,
            floor_ns=plausibility.floor_ns(self._record, self._target),
            crossed_at=self.crossed_at,
            to_decide=None
            if self.crossed_at is not None
            else stats.blocks_to_decide(values, self._margin, self._look.p or self._rules.nominal_p[-1]),
        )

    def reasons(self) -> Iterator[Reason]:
        """Yield why this configuration failed, or what makes its gain too small or doubtful."""
        figures = self.figures
        if self.failed is not None:
            yield _failed(figures, self.failed)
        if self.crossed_at is None:
            return
        if plausibility.gain_too_small(figures, self._rules, self._target):
            yield Reason(
                code="BENCH_GAIN_SMALL",
                outcome=RaceOutcome.NOT_BETTER,
                where=figures.label,
                message="the gain of a layer is too short to matter",
                expected=f"a median gain of at least {self._rules.gain_per_layer_ns} ns a layer",
                found=f"{figures.gain_per_layer_ns:.0f} ns",
            )
        yield from plausibility.judge_plausibility(self._record, figures, self._rules)


_FAILED = {
    RaceOutcome.WORSE: ("BENCH_WORSE", "the candidate is slower"),
    RaceOutcome.NOT_BETTER: ("BENCH_NOT_FASTER", "the candidate is not faster by the margin"),
    RaceOutcome.INCONCLUSIVE: ("BENCH_NOT_PROVEN", "strictly faster was not shown"),
}


def _failed(figures: Figures, outcome: RaceOutcome) -> Reason:
    code, message = _FAILED[outcome]
    # The first look may only end a race, never win one: it has no p of its own.
    level = f" at p {figures.nominal_p:.2g}" if figures.nominal_p else ""
    found = f"ratio {figures.ratio:.4f}, {_shown('upper', figures.upper)}, {_shown('lower', figures.lower)}"
    if outcome is RaceOutcome.INCONCLUSIVE:
        needed = figures.blocks_to_decide
        message += f"; {needed} blocks would decide" if needed is not None else "; no number of blocks promises to"
    return Reason(
        code=code,
        outcome=outcome,
        where=figures.label,
        message=message,
        expected=f"a lower bound above {figures.margin:.4f}{level}",
        found=f"{found} over {figures.units} units ({figures.blocks} blocks)",
    )


def _shown(side: str, bound: float | None) -> str:
    return f"no {side} bound" if bound is None else f"{side} bound {bound:.4f}"


def guard_figures(request: RaceRequest, record: ConfigurationRecord) -> Figures:
    """Return the figures of a guard configuration; with one unit the record's block SD stands in for its own."""
    values = tuple(stats.unit_values(record.blocks, request.rules.trim))
    floor = plausibility.floor_ns(record, request.target)
    figures = _figures(
        record,
        values,
        p=FUTILITY_P,
        margin=math.log1p(-request.rules.guard_loss),
        trim=request.rules.trim,
        floor_ns=floor,
    )
    if figures.upper is not None:
        return figures.model_copy(update={"guard": True})
    reach = 1.645 * request.target.noise.block_sd / math.sqrt(2 * len(values))
    return figures.model_copy(update={"guard": True, "upper": figures.ratio * math.exp(reach)})


def guard_loss(figures: Figures, allowed: float) -> Iterator[Reason]:
    """Yield a reason if a loss above ``allowed`` was shown: even the upper bound lies below it."""
    if figures.upper is not None and figures.upper < 1 - allowed:
        yield Reason(
            code="BENCH_WORSE",
            outcome=RaceOutcome.WORSE,
            where=figures.label,
            message="the candidate loses at a guard configuration, which was not advertised but is served",
            expected=f"a ratio of at least {1 - allowed:.4f}",
            found=f"ratio {figures.ratio:.4f}, upper bound {figures.upper:.4f} over {figures.units} units",
        )


def _figures(
    record: ConfigurationRecord,
    values: Sequence[float],
    *,
    p: float,
    margin: float,
    trim: float,
    floor_ns: float,
    crossed_at: int | None = None,
    to_decide: int | None = None,
) -> Figures:
    blocks = sorted(record.blocks, key=lambda block: block.pair)[: 2 * len(values)]
    effects = [stats.block_value(block, trim) for block in blocks]
    control = [stats.block_value(block, trim) for block in record.control]
    gap = stats.intercept_gap(blocks)
    return Figures(
        label=record.configuration.label,
        blocks=len(blocks),
        units=len(values),
        ratio=math.exp(fmean(values)),
        lower=_bound(stats.lower_bound(values, p)),
        upper=_bound(stats.upper_bound(values, FUTILITY_P)),
        margin=math.exp(margin),
        nominal_p=p,
        crossed_at=crossed_at,
        block_sd=stdev(effects) if len(effects) > 1 else None,
        ratio_of_sums=math.exp(stats.ratio_of_sums(blocks)),
        baseline_ns=stats.nanoseconds_per_step(blocks, Arm.BASELINE),
        candidate_ns=stats.nanoseconds_per_step(blocks, Arm.CANDIDATE),
        gain_per_layer_ns=stats.median_gain(blocks) / record.layers,
        floor_ns=floor_ns,
        intercept_gap=None if gap is None else gap.value,
        control_mean=fmean(control) if control else None,
        control_sd=stdev(control) if len(control) > 1 else None,
        blocks_to_decide=to_decide,
    )


def _bound(value: float) -> float | None:
    """Return exp of a finite bound that a float can hold; a bound from two wild units may be out of all range."""
    return math.exp(value) if abs(value) < 700 else None
