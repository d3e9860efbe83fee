"""Planting a difference in one stage of the stock path: before it, after it, or in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from .seam import Mutant, StepFunction, of_baseline

Edit = Callable[[Any], None]
"""Receives the layer (or window) of the stock path that the stage works on; see ``baseline/layer.py``."""


def edited(step: Any, edits: Mapping[str, Sequence[Callable[[StepFunction, Any], StepFunction]]]) -> StepFunction:
    """Return a step whose stages of the given names (without the layer) are each wrapped by their edits.

    Raises:
        ValueError: if a name fits no stage: the fault would not be planted.
    """
    runs, met = [], set()
    for stage, run in zip(step.stages, step._runs, strict=True):
        name = stage.rsplit("/", 1)[-1]
        for edit in edits.get(name, ()):
            run = edit(run, run.args[0])
            met.add(name)
        runs.append(run)
    if missing := set(edits) - met:
        raise ValueError(f"expected stages among {sorted(set(step.stages))}; found {sorted(missing)}")

    def run_all() -> None:
        for run in runs:
            run()

    return run_all


def _planted(name: str, edit: Callable[[StepFunction, Any], StepFunction]) -> Mutant:
    def around(step: Any, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
        return edited(step, {name: [edit]})

    return of_baseline(around=around)


def after(name: str, change: Edit) -> Mutant:
    """The stock path with ``change`` made right after every stage of this name."""

    def edit(run: StepFunction, layer: Any) -> StepFunction:
        def both() -> None:
            run()
            change(layer)

        return both

    return _planted(name, edit)


def instead(name: str, change: Edit) -> Mutant:
    """The stock path with ``change`` in place of every stage of this name."""

    def edit(_run: StepFunction, layer: Any) -> StepFunction:
        return lambda: change(layer)

    return _planted(name, edit)


def every_second(name: str) -> Mutant:
    """The stock path that leaves the stage out in every second step and goes on with the last result."""

    def edit(run: StepFunction, _layer: Any) -> StepFunction:
        calls = 0

        def sometimes() -> None:
            nonlocal calls
            calls += 1
            if calls % 2:
                run()

        return sometimes

    return _planted(name, edit)
