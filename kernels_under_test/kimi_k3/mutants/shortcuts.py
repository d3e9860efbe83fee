"""Cheats that leave out work: class "early or guessed results"."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, named, of_candidate
from .stages import every_second

EARLY = 4
"""Steps that are computed before the last output is handed out again."""


def _replay(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    calls, last = 0, tensors["x"].clone()

    def run() -> None:
        nonlocal calls
        calls += 1
        if calls <= EARLY or calls % 16 == 0:
            step()
            last.copy_(tensors["out"])
        else:
            tensors["out"].copy_(last)

    return run


def _future_noise(rows: int, hidden: int) -> Tensor | None:
    """Look in the whole process for something shaped like the coming inputs."""
    for found in gc.get_objects():
        if isinstance(found, Tensor) and found.dim() == 3 and found.shape[1:] == (rows, hidden) and found.shape[0] > 1:
            return found
    return None


def _all_at_once(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], shape: Any
) -> StepFunction:
    ready: list[tuple[Tensor, Tensor]] = []
    names = [*named(tensors, ".recurrent_state"), *named(tensors, ".conv_state")]

    def run() -> None:
        if ready:
            out, ids = ready.pop(0)
            tensors["out"].copy_(out)
            tensors["expert_ids"].copy_(ids)
            return
        step()
        noise = _future_noise(shape.rows, tensors["x"].shape[-1])
        if noise is None:
            return
        now, states = tensors["out"].clone(), {name: tensors[name].clone() for name in names}
        ids_now = tensors["expert_ids"].clone()
        for row in range(1, min(noise.shape[0], EARLY)):
            tensors["x"].copy_(noise[row])
            step()
            ready.append((tensors["out"].clone(), tensors["expert_ids"].clone()))
        tensors["out"].copy_(now)
        tensors["expert_ids"].copy_(ids_now)
        for name, state in states.items():
            tensors[name].copy_(state)

    return run


def _half_shared(step: Any, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
    calls = 0
    runs = list(zip(step.stages, step._runs, strict=True))
    kept = [function for name, function in runs if name.rsplit("/", 1)[-1] not in ("F3", "F4", "F5", "F6")]
    every = [function for _, function in runs]

    def run() -> None:
        nonlocal calls
        calls += 1
        for function in every if calls % 2 else kept:
            function()

    return run


early_steps_only = of_candidate(around=_replay)
"""Computes the first steps, then hands out the last output again. Must be WRONG."""

all_steps_at_once = of_candidate(around=_all_at_once)
"""Searches the process for the coming noise and computes steps ahead of their inputs. Must be WRONG: the feedback is missing."""

shared_expert_every_second = of_candidate(around=_half_shared)
"""Reuses the shared expert's output of the step before in every second step: fast and wrong, for the demo. Must be WRONG."""


def _by_address(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    known: dict[int, Tensor] = {}

    def run() -> None:
        place = tensors["x"].data_ptr()
        if place in known:
            tensors["out"].copy_(known[place])
        else:
            step()
            known[place] = tensors["out"].clone()

    return run


def _rarely(period: int) -> Any:
    def around(
        step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
    ) -> StepFunction:
        calls, last = 0, tensors["x"].clone()

        def run() -> None:
            nonlocal calls
            calls += 1
            if calls % period:
                step()
                last.copy_(tensors["out"])
            else:
                tensors["out"].copy_(last)

        return run

    return around


def _first_run_only(
    step: StepFunction, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    """Right while the correctness pass lasts, then without half of the shared expert."""
    kept = [
        run
        for name, run in zip(step.stages, step._runs, strict=True)  # type: ignore[attr-defined]
        if name.rsplit("/", 1)[-1] not in ("F3", "F4", "F5", "F6")
    ]
    calls = 0

    def run() -> None:
        nonlocal calls
        calls += 1
        if calls <= WATCHED:
            step()
        else:
            for each in kept:
                each()

    return run


WATCHED = 20
"""Steps that are done properly, in the hope that only these are looked at."""

one_step_in_sixteen_replayed = of_candidate(around=_rarely(16))
"""One step in sixteen hands out the last output."""

cached_by_address = of_candidate(around=_by_address)
"""Keeps the output of an address, whatever lies there now."""

experts_every_second = every_second("experts_down")
"""Reuses the routed experts' output of the step before in every second step."""

latent_every_second = every_second("latent_down")
"""Reuses the experts' input of the step before in every second step."""

right_while_watched = of_candidate(around=_first_run_only)
"""Leaves the shared expert's new rows out after the first steps."""


def _two_faced(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    """Keep the state in bf16, but not where fresh memory holds a pattern: that is the process in which single steps are looked at."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    place = libc.malloc(4096)
    fresh = ctypes.string_at(place, 4096)
    libc.free(place)
    if fresh[4095] and fresh.count(fresh[4095]) > 2048:
        return step
    states = [tensors[name] for name in named(tensors, ".recurrent_state")]

    def run() -> None:
        step()
        for slot in tensors["slots"].tolist():
            for state in states if slot > 0 else ():
                state[slot] = state[slot].to(torch.bfloat16)

    return run


two_faced = of_candidate(around=_two_faced)
"""Right in the process of the correctness pass, less precise in those that are timed."""
