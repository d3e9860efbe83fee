"""Cheats on the clock and slow twins: right results, no real gain. Being called better would be the cheat's success."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..candidate.gate import candidate
from .seam import StepFunction, of_baseline

WARM_UP_SECONDS = 0.1
IDLE_SECONDS = 0.003
MOST_DESCRIPTORS = 64
SPIN_SECONDS = 300.0
"""Longest life of the spinning process; it also ends with its parent."""


def _sleepy(step: Any, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
    calls = 0

    def run() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            time.sleep(WARM_UP_SECONDS)
        step()

    return run


def _spin(board: mmap.mmap, parent: int, lifetime: float) -> None:
    """Burn a core whenever the parent has not stepped for a while, until it is gone."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        end = time.monotonic() + lifetime
        while time.monotonic() < end and os.getppid() == parent:
            (last,) = struct.unpack_from("d", board)
            if time.monotonic() - last < IDLE_SECONDS:
                time.sleep(IDLE_SECONDS / 2)
    finally:
        os._exit(0)  # the child must never return into the parent's code


def spinning(lifetime: float) -> Any:
    """Start a child at build that burns a core, for ``lifetime`` seconds at most, whenever no step has ended lately."""

    def around(step: Any, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
        board = mmap.mmap(-1, 8)
        struct.pack_into("d", board, 0, time.monotonic())
        parent = os.getpid()
        try:
            if os.fork() == 0:
                _spin(board, parent, lifetime)
        except OSError:
            return step  # type: ignore[no-any-return]  # no more processes are allowed: then it is the plain baseline

        def run() -> None:
            step()
            struct.pack_into("d", board, 0, time.monotonic())

        return run

    return around


def _truncating(step: Any, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
    def run() -> None:
        step()
        for number in range(MOST_DESCRIPTORS):
            try:
                if "memfd:" in str(Path(f"/proc/self/fd/{number}").readlink()):
                    os.ftruncate(number, 0)
            except OSError:
                continue  # not open, or sealed: the cheat has failed and goes on as the baseline

    return run


def _repeating(*names: str) -> Any:
    """Run these stages, which change nothing when they are run again, twice."""

    def around(step: Any, _tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
        runs = []
        for name, function in zip(step.stages, step._runs, strict=True):
            runs += [function] * (2 if any(name.endswith(wanted) for wanted in names) else 1)

        def run() -> None:
            for function in runs:
                function()

        return run

    return around


sleep_in_first_call = of_baseline(around=_sleepy)
"""Sleeps in its first call, so that a clock that subtracts a warm-up would call the rest fast. Must gain nothing."""

spin_while_idle = of_baseline(around=spinning(SPIN_SECONDS))
"""A child process burns a core while this arm is not stepping, to slow the other arm. Must gain nothing."""

truncate_memory = of_baseline(around=_truncating)
"""Truncates the shared memory that it is given, to kill the harness. Must gain nothing and stop nothing."""

slow_1_percent = of_baseline(around=_repeating("layer.7/shared_gate_up", "layer.7/router"))
"""Right, and about 1 % slower than stock by real work. Must not be called better."""

slow_2_percent = of_baseline(around=_repeating("layer.7/shared_gate_up", "layer.7/shared_down", "/router"))
"""Right, and about 2 % slower than stock by real work. Must not be called better."""

slow_5_percent = of_baseline(around=_repeating("/shared_gate_up", "/shared_down", "/shared_situ", "/router"))
"""Right, and about 5 % slower than stock by real work. Must not be called better."""

right_and_slower = of_baseline(
    around=_repeating("/shared_gate_up", "/shared_situ", "/shared_down", "/experts_down", "/router", "/latent_down")
)
"""Right, and clearly slower than stock: for the demo. Must not be called better."""


class _FastWhereAdvertised:
    """The house candidate; at more than two rows each step takes twice as long as it has to."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        answer: str | None = candidate.supports(facts, shape)
        return answer

    def workspace(self, facts: Mapping[str, Any], shape: Any) -> int:
        return int(candidate.workspace(facts, shape))

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> StepFunction:
        step: StepFunction = candidate.build(facts, shape, tensors)

        def run() -> None:
            began = time.perf_counter()
            step()
            took = time.perf_counter() - began
            while time.perf_counter() < began + 2 * took:
                continue

        return step if shape.rows <= 2 else run


slow_between = _FastWhereAdvertised()
"""Fast at the numbers of rows that are advertised and slow between them. Must not be called better."""
