"""Geometry of the small bar that shows a ratio with its interval against the margin, in SVG user units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.domain.decision import Figures

WIDTH = 240.0
PAD = 6.0


@dataclass(frozen=True)
class Bar:
    """Positions on an axis of :data:`WIDTH` units. ``lower`` or ``upper`` is None where there is no such bound."""

    point: float
    lower: float | None
    upper: float | None
    even: float
    margin: float
    passed: bool
    description: str


def bars(figures: Sequence[Figures]) -> list[Bar]:
    """Return one bar for each configuration, all on one axis, so that they can be compared by eye."""
    values = [1.0]
    for item in figures:
        values.extend(value for value in (item.ratio, item.lower, item.upper, item.margin) if value is not None)
    low, high = min(values), max(values)
    span = max(high - low, 0.02)
    low, high = low - 0.08 * span, low + 1.08 * span

    def place(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(PAD + share * (WIDTH - 2 * PAD), 1)

    return [
        Bar(
            point=place(item.ratio),
            lower=None if item.lower is None else place(item.lower),
            upper=None if item.upper is None else place(item.upper),
            even=place(1.0),
            margin=place(item.margin),
            passed=item.crossed_at is not None,
            description=_description(item),
        )
        for item in figures
    ]


def _description(item: Figures) -> str:
    lower = "none" if item.lower is None else f"{item.lower:.3f}"
    upper = "none" if item.upper is None else f"{item.upper:.3f}"
    return f"ratio {item.ratio:.3f}, lower bound {lower}, upper bound {upper}, margin {item.margin:.3f}"
