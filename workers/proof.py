"""The oracle proves itself: planted wrong answers that its limits must refuse, else the race says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from gatekeeper.domain.samples import ErrorFigures, ErrorLimits, SelfProof
from workers.figures import Errors

PLANTED_ELEMENT = 4.0
"""How far the planted single wrong element lies off, in units of its row's root mean square: as large as the largest ordinary one of
a row of 7,168. It is refused by the limit of single elements at any width, since that never exceeds 3."""


def plants(out: Tensor, x: Tensor) -> dict[str, Tensor]:
    """Return wrong answers to put in place of outputs [steps, rows, hidden] over inputs ``x``, both float64, by name."""
    spoiled = out.clone()
    row = spoiled[tuple(size // 2 for size in out.shape[:-1])]
    row[0] = row[0] + PLANTED_ELEMENT * row.square().mean().sqrt()
    made = {
        "zeros": torch.zeros_like(out),
        "previous": torch.cat([out[:1], out[:-1]]),
        "echo": x,
        "one_element": spoiled,
    }
    if len(out) == 1:
        del made["previous"]  # there is none
    return made


def proofs(
    planted: Mapping[str, Tensor],
    out: Tensor,
    wanted: Tensor,
    refuses: Callable[[ErrorFigures, ErrorFigures], bool],
) -> Iterator[SelfProof]:
    """Yield for each planted answer whether the limits that follow from the honest ``out`` refuse it."""
    honest = figures_of(out, wanted)
    for name, answer in planted.items():
        figures = figures_of(answer, wanted)
        shown = figures.element if name == "one_element" else figures.largest
        yield SelfProof(name=name, refused=refuses(honest, figures), figure=shown or 0.0)


def figures_of(found: Tensor, wanted: Tensor) -> ErrorFigures:
    """Return the figures of one run's output."""
    errors = Errors()
    errors.add(found, wanted, found.shape[0], found.shape[1])
    return errors.figures()


def exceeds(found: ErrorFigures, limits: ErrorLimits) -> bool:
    """Return whether any figure lies above its limit."""
    element = limits.element is not None and (found.element is None or found.element > limits.element)
    return element or found.rms > limits.rms or found.median_row > limits.median_row or abs(found.gain) > limits.gain
