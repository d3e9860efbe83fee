"""A block: one fresh process for each arm, new memory, new seeds, all configurations in random order, groups of four runs."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from gatekeeper.domain.samples import Arm, Block, Group, Run
from kernels_under_test.contract import Shape, X
from workers.devices.cpu import CpuDevice
from workers.devices.port import Device
from workers.jail import Jail, Limits
from workers.jailed import Ended
from workers.loop.runs import Data, Snapshot, Weights, new_seed, prepare, run, stand_still
from workers.models import Model
from workers.protocol import ArmFailed
from workers.side import Runner, Side
from workers.sources import Code

MOST_REPEATS = 3
LETTERS = {"A": Arm.BASELINE, "B": Arm.CANDIDATE}
_random = random.SystemRandom()


class ArmFault(Exception):
    """An arm failed in a block; ``ended`` is how its process ended."""

    def __init__(self, arm: Arm, failed: ArmFailed, ended: Ended) -> None:
        super().__init__(str(failed))
        self.arm, self.failed, self.ended = arm, failed, ended


@dataclass(frozen=True)
class Plan:
    """What is random about one block, drawn before it starts."""

    pair: int
    swapped: bool
    first_started: Arm
    control: bool = False

    @staticmethod
    def unit(pair: int, *, control: bool = False) -> tuple[Plan, Plan]:
        """Return both blocks of a unit: slots swapped and start order turned round, which of the two comes first is random."""
        swapped, first = _random.random() < 0.5, _random.choice(list(Arm))
        other = Arm.BASELINE if first is Arm.CANDIDATE else Arm.CANDIDATE
        return Plan(pair, swapped, first, control), Plan(pair, not swapped, other, control)


@dataclass(frozen=True)
class Cores:
    """Which cores the arms and the harness are pinned to; None where pinning is not possible."""

    arms: tuple[int, ...] | None
    harness: tuple[int, ...] | None
    starting: tuple[int, ...] | None = None
    """Where processes start up, before they are timed: all cores, so that a pair starts side by side."""


@dataclass(frozen=True)
class Course:
    """What stays the same over all blocks of a session."""

    model: Model
    baseline: Code
    candidate: Code
    jail: Jail
    runner: Runner
    cores: Cores
    limits: Limits = field(default_factory=Limits)
    device: Device = field(default_factory=CpuDevice)

    def start(self, plan: Plan, *, perturb: bool = False) -> dict[Arm, Side]:
        """Start both processes of a block in the plan's order; they import torch side by side."""
        last = Arm.BASELINE if plan.first_started is Arm.CANDIDATE else Arm.CANDIDATE
        codes = {Arm.BASELINE: self.baseline, Arm.CANDIDATE: self.baseline if plan.control else self.candidate}
        return {
            arm: Side(arm, codes[arm], self.jail, self.runner, self.limits, perturb=perturb, device=self.device)
            for arm in (plan.first_started, last)
        }


@dataclass(frozen=True)
class Pair:
    """Two shots of one seed, one of each arm."""

    baseline: Snapshot
    candidate: Snapshot


@contextmanager
def guarded(side: Side) -> Iterator[None]:
    """Turn a failure of this arm into an :class:`ArmFault` that says how its process ended; take the time on its account."""
    began = time.monotonic()
    try:
        yield
    except ArmFailed as failed:
        ended = side.process.finish(0.5) if failed.code == "RUN_NO_RESULT" else side.process.kill()
        raise ArmFault(side.arm, failed, ended) from failed
    finally:
        side.seconds += time.monotonic() - began


class BlockRun:
    """One block in progress. Use as a context: both processes are killed at its end whatever happens."""

    def __init__(
        self,
        course: Course,
        plan: Plan,
        sides: dict[Arm, Side],
        *,
        tick: Callable[[], None] = lambda: None,
        data_seed: int | None = None,
        awake: bool = True,
    ) -> None:
        self.course, self.plan, self.sides = course, plan, sides
        self._awake = awake and course.cores.arms is not None
        self._tick = tick
        """Called before an arm gets time; it raises when there is none left."""
        self.leftovers: dict[Arm, int] = {}
        self._ran_last = Arm.BASELINE
        """Before the first run the machine itself may be at fault, which voids a race as the baseline's faults do."""
        self.data_seed = new_seed() if data_seed is None else data_seed
        self._weights: list[Weights] = []
        self._steps: list[int] = []

    def __enter__(self) -> BlockRun:
        return self

    def __exit__(self, *exception: object) -> None:
        for side in self.sides.values():
            self.leftovers[side.arm] = side.close().leftovers

    def load(self, shapes: Sequence[Shape], steps: Sequence[int], regimes: Sequence[str] | None = None) -> None:
        """Let both arms build every shape for runs of up to its number of steps, in slot order, and freeze them.

        ``regimes`` are those of each shape's weights, unit normal if left out.

        Raises:
            ArmFault: if an arm fails.
        """
        order = [Arm.CANDIDATE, Arm.BASELINE] if self.plan.swapped else [Arm.BASELINE, Arm.CANDIDATE]
        for arm in order:
            with guarded(self.sides[arm]):
                self.sides[arm].ready()
                if self.course.cores.arms:
                    self.sides[arm].process.pin(self.course.cores.arms)
                stand_still(self.sides[arm])
        for side in self.sides.values():
            side.seconds = 0.0  # starting up is the machine's time, before any code of the implementation
        self._steps = list(steps)
        for shape, most, regime in zip(shapes, steps, regimes or ["normal"] * len(shapes), strict=True):
            weights = Weights(self.course.model, shape, self.data_seed, most, regime, self.course.device)
            self._weights.append(weights)
            for arm in order:
                self._tick()
                # One arm alone: no arm can make the other run into a time limit.
                with guarded(self.sides[arm]):
                    self.sides[arm].process.thaw()
                    arena = self.sides[arm].load(self.course.model, shape, most)
                    weights.place(arena)
                    if self.course.device.mode == "graph":
                        # A step is run and captured when it is built: slots and states must be some run's.
                        first = weights.draw(self.data_seed, most)
                        prepare(weights, arena, first)
                        arena.tensors[X].copy_(first.noise[0])
                    self.course.device.settle()
                    self.sides[arm].build(self.course.model, shape, arena)
                    stand_still(self.sides[arm])

    def draw(self, number: int, steps: int, regime: str | None = None, *, seed: int | None = None) -> Data:
        """Return the data of one seed, a new one if left out, at a configuration, for both arms; the regime is that of its weights
        if left out."""
        return self._weights[number].draw(new_seed() if seed is None else seed, steps, regime)

    def weights_of(self, number: int) -> Weights:
        """Return the weights of a configuration that is loaded."""
        return self._weights[number]

    def shot(self, arm: Arm, number: int, data: Data) -> Snapshot:
        """Time one run. Raises ArmFault or Interference."""
        self._tick()
        other = self.sides[Arm.BASELINE if arm is Arm.CANDIDATE else Arm.CANDIDATE]
        with guarded(self.sides[arm]):
            weights, cpus = self._weights[number], self.course.cores.arms
            last, self._ran_last = self._ran_last, arm
            return run(self.sides[arm], other, number, weights, data, cpus, self._awake, self.course.device, last)

    def group(self, number: int, keep: Callable[[Pair], None]) -> Group:
        """Run one ABBA or BAAB group of two seeds and hand both pairs of snapshots to ``keep``.

        The steps of a run are random between half of the most and all of it. A group before, in or behind which the device's
        hardware slowed it down is run again; what stays slow after ``MOST_REPEATS`` is kept, and judged by how often it was.
        """
        device, repeats = self.course.device, 0
        while True:
            slowed = device.read().slowed
            runs, order = self._four(number, keep)
            if repeats == MOST_REPEATS or not (slowed or device.read().slowed):
                return Group(order=order, runs=runs, repeats=repeats)
            repeats += 1

    def _four(self, number: int, keep: Callable[[Pair], None]) -> tuple[tuple[Run, ...], Literal["ABBA", "BAAB"]]:
        order: Literal["ABBA", "BAAB"] = _random.choice(("ABBA", "BAAB"))
        least, most = self._range(number)
        data = [self.draw(number, least + secrets.randbelow(most - least + 1)) for _ in range(2)]
        shots: list[Snapshot] = []
        for place, letter in enumerate(order):
            shots.append(self.shot(LETTERS[letter], number, data[place // 2]))
            if place % 2:
                keep(Pair(*sorted(shots[-2:], key=lambda shot: shot.arm is Arm.CANDIDATE)))
        runs = tuple(
            Run(
                arm=s.arm, seed=f"{s.data.seed:032x}", steps=s.data.steps, nanoseconds=s.nanoseconds,
                event_nanoseconds=s.event_nanoseconds,
            )
            for s in shots
        )  # fmt: skip
        return runs, order

    def _range(self, number: int) -> tuple[int, int]:
        most = self._steps[number]
        return max(1, most // 2), most

    def timed(
        self,
        groups: int,
        keep: Callable[[int, Pair, bool], None],
        *,
        count: int | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> dict[int, Block]:
        """Run all groups of the first ``count`` configurations loaded (all), in random order, each after an untimed run of each arm.

        ``keep`` is handed every pair, with whether its runs were timed. ``between`` is called once, before a group drawn at random.
        """
        blocks: dict[int, Block] = {}
        count = len(self._steps) if count is None else count
        left = _random.randrange(count * groups)

        def one(number: int) -> Group:
            nonlocal left
            if left == 0:
                between()
            left -= 1
            return self.group(number, lambda pair: keep(number, pair, True))

        for number in _random.sample(range(count), count):
            data = self.draw(number, self._range(number)[0])
            first = {arm: self.shot(arm, number, data) for arm in _random.sample(list(Arm), 2)}
            keep(number, Pair(first[Arm.BASELINE], first[Arm.CANDIDATE]), False)
            done = tuple(one(number) for _ in range(groups))
            blocks[number] = Block(
                pair=self.plan.pair,
                swapped=self.plan.swapped,
                first_started=self.plan.first_started,
                data_seed=f"{self.data_seed:032x}",
                groups=done,
            )
        return blocks
