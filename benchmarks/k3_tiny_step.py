"""Time one decode step of ``k3-tiny``: implementations interleaved call by call, ratios to the first one.

Every round times a few steps of each implementation, in turn and in changing order, so that a slow spell of the machine hits
all alike. Printed: the median step in milliseconds, the median ratio first / other over the rounds (above 1 the other is
faster), and the 10 % and 90 % quantiles of that ratio. A quick look, not a race: one process, same inputs again and again.

Usage: python benchmarks/k3_tiny_step.py [--rows 1,8] [--context 96] [--page 8] [--dcp 1] [--rounds 60] [SPEC ...]
with each SPEC a ``module:attribute``; without one, the stock baseline, the house candidate and the slow twins.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels_under_test import hashrng
from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3.problem import KimiProblem, load

MODEL = "kernels_under_test.kimi_k3"
DEFAULT = [
    f"{MODEL}.baseline.stock:baseline",
    f"{MODEL}.candidate.gate:candidate",
    f"{MODEL}.mutants.timing:slow_2_percent",
    f"{MODEL}.mutants.timing:slow_5_percent",
    f"{MODEL}.mutants.timing:right_and_slower",
]
STEPS_PER_TURN = 5


def prepare(problem: KimiProblem, shape: Shape, spec: str) -> Callable[[], None]:
    """Build an implementation over its own tensors and return its step."""
    module, attribute = spec.split(":")
    arm: Any = getattr(importlib.import_module(module), attribute)
    tensors = {}
    for item in problem.tensors(shape):
        size = (1, *item.shape) if item.role is Role.SCHEDULE else item.shape
        tensors[item.name] = torch.zeros(size, dtype=getattr(torch, item.dtype))
    problem.fill(shape, tensors, steps=1, seed=1)
    for item in problem.tensors(shape):
        if item.role is Role.SCHEDULE:
            tensors[item.name] = tensors[item.name][0]
    tensors["x"].copy_(hashrng.normal(1, "x", tensors["x"].shape))
    tensors["workspace"] = torch.zeros(arm.workspace(problem.facts, shape), dtype=torch.uint8)
    step: Callable[[], None] = arm.build(problem.facts, shape, tensors)
    return step


def turn(step: Callable[[], None]) -> float:
    """Seconds of one step, as the mean of a few in a row."""
    start = time.perf_counter()
    for _ in range(STEPS_PER_TURN):
        step()
    return (time.perf_counter() - start) / STEPS_PER_TURN


def measure(problem: KimiProblem, shape: Shape, specs: list[str], rounds: int) -> None:
    """Print one line for each implementation at one shape."""
    steps = [prepare(problem, shape, spec) for spec in specs]
    for step in steps:
        turn(step)
    taken: list[list[float]] = [[] for _ in steps]
    for number in range(rounds):
        order = hashrng.permutation(1, "order", len(steps), counter=number * len(steps)).tolist()
        for place in order:
            taken[place].append(turn(steps[place]))
    for spec, times in zip(specs, taken, strict=True):
        ratios = sorted(first / other for first, other in zip(taken[0], times, strict=True))
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        print(
            f"rows={shape.rows} dcp={shape.decode_context_parallel} {spec.split(':')[1]:<20} "
            f"{statistics.median(times) * 1e3:7.3f} ms  ratio {statistics.median(ratios):.3f}  [{low:.3f} .. {high:.3f}]"
        )


def main() -> None:
    """Parse the arguments and measure every row count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("specs", nargs="*", default=DEFAULT, metavar="SPEC")
    parser.add_argument("--rows", default="1,8")
    parser.add_argument("--context", type=int, default=96)
    parser.add_argument("--page", type=int, default=8)
    parser.add_argument("--dcp", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for rows in given.rows.split(","):
        shape = Shape(int(rows), 1, given.context, given.page, decode_context_parallel=given.dcp)
        measure(load("tiny"), shape, given.specs, given.rounds)


if __name__ == "__main__":
    main()
