"""Figures of an arm's error against its own oracle: row-wise relative L2, the signed gain, and the largest error of one element.
All sums in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gatekeeper.domain.samples import ErrorFigures

SMALL_ROW = {"output": 1e-2, "state": 1.0}
"""Rows whose reference lies below this share of the typical row (root mean square) are measured against that share. An end
state is one sample of few rows, some near zero, whose relative errors would rule the figure: its errors are all measured
against the typical row at least."""


def row_scale(reference: Tensor, small: float) -> Tensor:
    """Return what errors of rows [rows, width] are measured against: the row's norm, or a share of the typical norm. [rows]"""
    norms = reference.norm(dim=-1)
    typical = norms.square().mean().sqrt() if len(norms) else norms.sum()
    return torch.maximum(norms, small * typical).clamp_min(1e-300)


@dataclass
class Errors:
    """Errors of one tensor, gathered over runs."""

    kind: str = "output"
    rows: list[Tensor] = field(default_factory=list)
    along: float = 0.0
    """Sum of <err, ref>."""
    power: float = 0.0
    """Sum of <ref, ref>."""
    element: float = 0.0
    """Largest error of one element, over the root mean square that its row is measured against. A sum over a row of 7,168 elements
    and thousands of rows does not show one wrong element; this does, whatever the width."""
    steps: int = 0
    sequences: int = 0

    def add(self, found: Tensor, wanted: Tensor, steps: int, sequences: int) -> None:
        """Take in rows: both [..., width], compared along the last axis. They come from so many steps and sequences."""
        reference = wanted.reshape(-1, wanted.shape[-1]).double()
        error = found.reshape(-1, found.shape[-1]).double() - reference
        scale = row_scale(reference, SMALL_ROW[self.kind])
        self.rows.append(error.norm(dim=-1) / scale)
        if error.numel():
            largest = (error.abs().amax(dim=-1) / scale).amax()
            self.element = max(self.element, float(largest) * error.shape[-1] ** 0.5)
        self.along += float((error * reference).sum())
        self.power += float((reference * reference).sum())
        self.steps += steps
        self.sequences += sequences

    def figures(self) -> ErrorFigures:
        """Return the figures over everything taken in.

        Raises:
            ValueError: if nothing was taken in, or an error is not finite.
        """
        rows = torch.cat(self.rows) if self.rows else torch.empty(0)
        if not len(rows) or not bool(torch.isfinite(rows).all()):
            raise ValueError(f"expected finite errors of at least one row; found {len(rows)} rows")
        return ErrorFigures(
            rms=float(rows.square().mean().sqrt()),
            median_row=float(rows.median()),
            largest=float(rows.max()),
            gain=self.along / self.power if self.power else 0.0,
            element=self.element,
        )

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(len(rows) for rows in self.rows)
