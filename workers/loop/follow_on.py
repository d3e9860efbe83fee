"""Runs that go on where an arm's own run ended: single steps from its end states, and chains far longer than a context holds.

The requests stay where they are: same slots, same pages, same lengths. What changes is the input, and that the states are those that
the arm itself has left. A chain that is longer than a context holds begins again at its first lengths with every run: the recurrence
goes on, while the cache is filled anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import Role
from workers.loop.blocks import BlockRun, Pair
from workers.loop.runs import Data, Snapshot, Weights, new_seed

LONG, RESUMED = "long", "resumed"
COUNTED_SHARE = 0.25
"""Share of a long chain, its end, whose errors count: drift shows there, and the start would only dilute it."""


def follow_on(
    weights: Weights, data: Data, states: Mapping[str, Tensor], *, seed: int, steps: int, at: int = 0
) -> Data:
    """Return the data of a run of ``steps`` from these states, with the metadata of ``data`` and its schedules from step ``at`` on.

    Raises:
        ValueError: if ``data`` has no so many steps from there on.
    """
    if at + steps > data.steps:
        raise ValueError(f"expected at most {data.steps - at} steps from step {at} on; found {steps}")
    fresh = weights.draw(seed, steps, "normal")
    initial = dict(fresh.initial)
    for spec in weights.specs:
        if spec.role is Role.METADATA:
            initial[spec.name] = data.initial[spec.name]
        elif spec.role is Role.SCHEDULE:
            initial[spec.name] = data.initial[spec.name][at : at + steps]
        elif spec.role is Role.STATE:
            initial[spec.name] = states[spec.name]
    return replace(fresh, initial=initial)


def resume(block: BlockRun, number: int, pair: Pair) -> Pair:
    """Run one more step of both arms, each from the end states of its own run, over the same new input."""
    seed = new_seed()
    shots = []
    for shot in (pair.baseline, pair.candidate):
        last = shot.data.steps - 1
        data = follow_on(block.weights_of(number), shot.data, shot.states, seed=seed, steps=1, at=last)
        shots.append(block.shot(shot.arm, number, data))
    return Pair(*shots)


@dataclass(frozen=True)
class Piece:
    """One run of a long chain. ``first``: it starts from drawn states; ``counted``: its errors count."""

    pair: Pair
    first: bool
    counted: bool


def long_chain(block: BlockRun, number: int, steps: int, most: int) -> Iterator[Piece]:
    """Run ``steps`` steps of both arms in runs of at most ``most``; each run starts from the arm's own end states."""
    start = block.draw(number, min(most, steps))
    states: dict[Arm, Mapping[str, Tensor]] = {}
    done = 0
    while done < steps:
        length = min(most, steps - done)
        seed = new_seed()
        shots: dict[Arm, Snapshot] = {}
        for arm in Arm:
            mine = start
            if done:
                mine = follow_on(block.weights_of(number), start, states[arm], seed=seed, steps=length)
            shots[arm] = block.shot(arm, number, mine)
            states[arm] = shots[arm].states
        pair = Pair(shots[Arm.BASELINE], shots[Arm.CANDIDATE])
        yield Piece(pair, first=done == 0, counted=done + length > steps * (1 - COUNTED_SHARE))
        done += length
