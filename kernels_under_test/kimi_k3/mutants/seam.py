"""The one seam through which every mutant differs from the implementation that it wraps.

A mutant may change the facts or the tensors that the wrapped implementation is built with, and may put a function round its
step. Everything else, scope included, is the wrapped implementation's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..baseline.stock import baseline
from ..candidate.gate import candidate

StepFunction = Callable[[], None]


class Mutant:
    """An implementation with a planted difference.

    Args:
        base: the implementation to wrap.
        facts: changes the facts before the build.
        tensors: changes which tensors the wrapped implementation sees.
        around: receives the wrapped step, the tensors that the harness owns, the tensors that the step sees, and the shape;
            returns the step to run.
    """

    def __init__(
        self,
        base: Any,
        *,
        facts: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        tensors: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
        around: Callable[[Any, Mapping[str, Tensor], Mapping[str, Tensor], Any], StepFunction] | None = None,
    ) -> None:
        self._base, self._facts, self._tensors, self._around = base, facts, tensors, around

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        """As the wrapped implementation."""
        answer: str | None = self._base.supports(facts, shape)
        return answer

    def workspace(self, facts: Mapping[str, Any], shape: Any) -> int:
        """As the wrapped implementation."""
        return int(self._base.workspace(facts, shape))

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> StepFunction:
        """Build the wrapped implementation over the changed facts and tensors, and put the change round its step."""
        seen_facts = self._facts(dict(facts)) if self._facts else facts
        seen = self._tensors(dict(tensors)) if self._tensors else tensors
        step = self._base.build(seen_facts, shape, seen)
        return self._around(step, tensors, seen, shape) if self._around else step


def of_candidate(**change: Any) -> Mutant:
    """A mutant of the house candidate: fast, and wrong in one point."""
    return Mutant(candidate, **change)


def of_baseline(**change: Any) -> Mutant:
    """A mutant of the stock path: right and no faster, so that being called better would be the cheat's success."""
    return Mutant(baseline, **change)


def named(tensors: Mapping[str, Tensor], ending: str) -> list[str]:
    """Names of the tensors with an ending, for example ``.recurrent_state``."""
    return [name for name in tensors if name.endswith(ending)]
