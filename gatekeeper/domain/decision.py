"""What deciding a race gives: the outcome, the figures of every configuration, and every reason with expected and found."""

from __future__ import annotations

from pydantic import Field

from gatekeeper.domain.documents import Value
from gatekeeper.domain.race import RaceOutcome


class Reason(Value):
    """One thing that speaks for an outcome. ``where`` is the label of a configuration, or ``race``."""

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    outcome: RaceOutcome | None
    """The outcome that this reason leads to; None for a remark."""
    where: str
    message: str
    expected: str
    found: str


class Figures(Value):
    """Times of one configuration, recomputed from its raw samples. Ratios are baseline / candidate; times are in ns."""

    label: str
    guard: bool = False
    blocks: int
    units: int
    ratio: float
    """exp of the mean unit value."""
    lower: float | None
    """One-sided lower bound at ``nominal_p``; None where the units are too few or this look is for futility only."""
    upper: float | None
    """One-sided 95 % upper bound; None where the units are too few."""
    margin: float
    """Ratio that must be exceeded, for example 1.01."""
    nominal_p: float
    crossed_at: int | None = None
    """Number of blocks at the look where the lower bound first exceeded the margin."""
    block_sd: float | None
    """SD of block values, log ratio."""
    ratio_of_sums: float
    baseline_ns: float
    candidate_ns: float
    """Mean time of one step."""
    gain_per_layer_ns: float
    """Median over groups."""
    floor_ns: float
    """Least time of a step by the target's bandwidth."""
    intercept_gap: float | None = None
    """Difference of the arms' fixed costs, as a share of a run."""
    control_mean: float | None = None
    control_sd: float | None = None
    blocks_to_decide: int | None = None
    """Blocks that would show a gain above the margin with 80 % power, if the estimate is the truth."""


class Decision(Value):
    """The outcome of a race, decided from its samples. ``outcome`` is None where the samples end before a decision."""

    outcome: RaceOutcome | None
    alpha: float
    figures: tuple[Figures, ...] = ()
    reasons: tuple[Reason, ...] = ()
    communication: str = "shard"
    undecided: tuple[str, ...] = ()
    """Labels of advertised configurations that need more blocks."""
    next_look: int | None = None
    """Number of blocks at which to decide again; None once the race is decided."""

    @property
    def blocks_to_decide(self) -> int | None:
        """Blocks at which every advertised configuration would be decided; None where no number would do it."""
        needed = [figure.blocks_to_decide for figure in self.figures if figure.crossed_at is None and not figure.guard]
        return None if not needed or None in needed else max(number for number in needed if number is not None)

    def because(self, *outcomes: RaceOutcome) -> tuple[Reason, ...]:
        """Return the reasons that lead to one of these outcomes."""
        return tuple(reason for reason in self.reasons if reason.outcome in outcomes)
