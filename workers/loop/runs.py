"""One run of one arm: prepared while the arm is frozen, timed from outside, snapshot taken after it is frozen again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gatekeeper.domain.samples import Arm
from kernels_under_test import hashrng
from kernels_under_test.contract import OUT, TABLE_ROWS, Role, Shape, StepOracle, TensorSpec, X, feedback
from workers.arena import Guarded, Stray
from workers.devices.cpu import CpuDevice
from workers.devices.port import Device
from workers.loop.unsealed import changed
from workers.models import Model
from workers.protocol import ArmFailed
from workers.side import Side

RUN_SECONDS = 20.0
IDLE_SECONDS = 0.0005
"""CPU time that a frozen arm may seem to use: the resolution of the counters, far below a step of any interest."""
COUNTER_SECONDS, COUNTER_SHARE = 0.0001, 0.001
"""How far an arm's CPU time may seem to exceed the wall time of a run on one core: resolution, and clocks that are slewed apart."""
PER_RUN = (Role.STATE, Role.METADATA, Role.SCHEDULE)
STRESS = "stress"
"""Beside the regimes of a problem: weights and data over which every constant counts, where the oracle offers them."""
NOISE_SCALE = {"x8": 8.0, "x64": 64.0, "zeros": 0.0}
"""The inputs follow the regime as states and streams do. With ``zeros`` the first input is zero and later ones feedback alone."""


class Interference(Exception):
    """The arm that should have stood still used CPU time while the other was timed, or an arm left its cores."""

    def __init__(self, code: str, arm: Arm, expected: str, found: str) -> None:
        super().__init__(f"{code}: {found}")
        self.code, self.arm, self.expected, self.found = code, arm, expected, found


@dataclass(frozen=True)
class Data:
    """Everything that both arms get for one seed, in the harness's own memory; nothing of it is changed by a run."""

    seed: int
    steps: int
    initial: Mapping[str, Tensor]
    """Every tensor of the problem before the run; schedules with their ``steps`` rows."""
    noise: Tensor
    table: Tensor
    """As drawn for the block; a run's is this times ``signs``."""
    signs: Tensor
    """[hidden] bf16, 1 or -1 for each column."""
    multipliers: Tensor


@dataclass(frozen=True)
class Snapshot:
    """What an arm left behind, copied after it was frozen."""

    arm: Arm
    data: Data
    nanoseconds: int
    histories: Mapping[str, Tensor]
    states: Mapping[str, Tensor]
    strays: tuple[Stray, ...]
    event_nanoseconds: int | None = None
    """The arm's own reading, from events on its device."""

    def inputs(self) -> Tensor:
        """Return x(0) .. x(n-1) [steps, rows, hidden] bf16, rebuilt from the arm's own outputs."""
        x = torch.empty_like(self.data.noise)
        table = self.data.table * self.data.signs
        x[0] = self.data.noise[0]
        for t in range(1, self.data.steps):
            x[t] = self.data.noise[t].float() + feedback(self.histories[OUT][t - 1], self.data.multipliers, table)
        return x


@lru_cache(maxsize=1)
def _table(seed: int, hidden: int, place: torch.device) -> Tensor:
    """Return the feedback table of a block, which all its configurations share."""
    return hashrng.normal(seed, "table", (TABLE_ROWS, hidden), device=place).to(torch.bfloat16)


class Weights:
    """The weights and the feedback table of one block at one shape, drawn once and copied into both arms.

    ``regime`` is one of the problem's, or :data:`STRESS`; all tensors lie on ``device``.

    Raises:
        TypeError: if the stress regime is asked of an oracle that does not offer it.
    """

    def __init__(
        self,
        model: Model,
        shape: Shape,
        seed: int,
        steps: int,
        regime: str = "normal",
        device: Device | None = None,
    ) -> None:
        self.model, self.shape, self.seed, self.regime = model, shape, seed, regime
        self.place_of_tensors = (device or CpuDevice()).place
        self.specs = model.problem.tensors(shape)
        self.tensors = {
            spec.name: self._empty(spec, steps) for spec in self.specs if spec.role not in (Role.INPUT, Role.OUTPUT)
        }
        stressed = self._stressed()
        filled = stressed.stress_regime if stressed else regime
        model.problem.fill(shape, self.tensors, steps=steps, seed=seed, regime=filled, only=(Role.WEIGHT,))
        if stressed:
            stressed.stress(model.problem, shape, self.tensors, (Role.WEIGHT,))
        self.table = _table(seed, self._spec(OUT)[-1], self.place_of_tensors)

    def _empty(self, spec: TensorSpec, steps: int) -> Tensor:
        size = (steps, *spec.shape) if spec.role is Role.SCHEDULE else spec.shape
        return torch.empty(size, dtype=getattr(torch, spec.dtype), device=self.place_of_tensors)

    def _stressed(self) -> StepOracle | None:
        if self.regime != STRESS:
            return None
        if not isinstance(self.model.oracle, StepOracle):
            raise TypeError("expected an oracle with the methods of contract.StepOracle; found none of them")
        return self.model.oracle

    def _spec(self, name: str) -> tuple[int, ...]:
        return next(spec.shape for spec in self.specs if spec.name == name)

    def place(self, arena: Guarded) -> None:
        """Write the weights into an arena; ``build`` may derive from them, from nothing else."""
        for spec in self.specs:
            if spec.role is Role.WEIGHT:
                arena.tensors[spec.name].copy_(self.tensors[spec.name])

    def draw(self, seed: int, steps: int, regime: str | None = None) -> Data:
        """Return a run's data under its seed, in the regime of the weights or another."""
        regime = regime or self.regime
        initial = dict(self.tensors)
        for spec in self.specs:
            if spec.role in PER_RUN:
                initial[spec.name] = self._empty(spec, steps)
        filled = "normal" if regime == STRESS else regime
        self.model.problem.fill(self.shape, initial, steps=steps, seed=seed, regime=filled, only=PER_RUN)
        noise = self._noise(seed, steps, regime).to(torch.bfloat16)
        if stressed := self._stressed() if regime == STRESS else None:
            stressed.stress(self.model.problem, self.shape, {**initial, X: noise[0]}, PER_RUN)
        hidden = self._spec(X)[-1]
        odd = hashrng.words(seed, "multipliers", hidden, device=self.place_of_tensors) | 1
        dice = hashrng.words(seed, "signs", hidden, device=self.place_of_tensors)
        signs = (1 - 2 * (dice & 1)).to(torch.bfloat16)
        return Data(seed, steps, initial, noise, self.table, signs, odd)

    def _noise(self, seed: int, steps: int, regime: str) -> Tensor:
        size = (steps, *self._spec(X))
        noise = hashrng.normal(seed, "noise", size, device=self.place_of_tensors)
        if regime == "heavy":
            dice = hashrng.integers(seed, "noise.heavy", 0, 256, size, device=self.place_of_tensors)
            return torch.where(dice == 0, 16 * noise, torch.where(dice <= 16, 4 * noise, noise))
        return noise * NOISE_SCALE.get(regime, 1.0)


def new_seed() -> int:
    """Return an unpredictable seed of 128 bits."""
    return secrets.randbits(128)


def prepare(weights: Weights, arena: Guarded, data: Data) -> None:
    """Write a run's data into a frozen arm's arena, all but noise[0], and poison what the arm must write."""
    tensors = arena.tensors
    poisoned = ["noise", X]
    for spec in weights.specs:
        if spec.role is Role.SCHEDULE:
            tensors[f"schedule.{spec.name}"][: data.steps].copy_(data.initial[spec.name])
        elif spec.role in PER_RUN:
            tensors[spec.name].copy_(data.initial[spec.name])
        elif spec.role is Role.OUTPUT:
            poisoned += [spec.name, f"history.{spec.name}"]
    arena.poison(poisoned)
    tensors["noise"][1 : data.steps].copy_(data.noise[1:])
    tensors["multipliers"].copy_(data.multipliers)
    torch.mul(data.table, data.signs, out=tensors["table"])


def run(
    side: Side,
    other: Side | None,
    number: int,
    weights: Weights,
    data: Data,
    cpus: tuple[int, ...] | None,
    awake: bool = True,
    device: Device | None = None,
    ran_last: Arm = Arm.BASELINE,
) -> Snapshot:
    """Time one run of ``side`` at its configuration ``number`` while ``other`` stands still; both are frozen before and after.

    ``awake``: look for its end without rest, if the harness has a core of its own. ``ran_last`` is the arm of the run before: what is
    still at work on the device now, while both are frozen, that one has left there.

    Raises:
        ArmFailed: if the arm does not finish as told, or does not stand still after it.
        Interference: if the other arm used CPU time or the device, or this arm was not where it was put.
    """
    arena, device = side.arenas[number], device or CpuDevice()
    prepare(weights, arena, data)
    if other and awake and (busy := device.gauge()):
        raise Interference("TIM_IDLE_INTERFERENCE", ran_last, "a device that no frozen arm uses", busy)
    device.settle()
    idle = other.process.cpu_time() if other else 0.0
    used = side.process.cpu_time()
    first, source = arena.tensors["noise"][0], data.noise[0]
    # Before the order: an arm that a signal wakes up in spite of the freeze works on its own clock.
    began = time.monotonic_ns()
    side.channel.ask_run(number, data.steps)
    first.copy_(source)
    device.settle()
    side.process.thaw()
    try:
        # With a core of its own the harness looks without rest: the time until it wakes up would be free work after "done".
        events = side.channel.done(number, data.steps, RUN_SECONDS, awake=awake and cpus is not None)
    finally:
        stand_still(side)
    # Read after the freeze: what an arm does after it has said "done" is still on its clock.
    ended = time.monotonic_ns()
    moved = other.process.cpu_time() - idle if other else 0.0
    if other and moved > IDLE_SECONDS:
        raise Interference("TIM_IDLE_INTERFERENCE", other.arm, "no CPU time while frozen", f"{moved * 1e6:.0f} us")
    if cpus is not None:
        _stayed(side, cpus, side.process.cpu_time() - used, (ended - began) / 1e9)
    return snapshot(side.arm, arena, weights, data, ended - began, events)


def stand_still(side: Side) -> None:
    """Freeze an arm. One that does not stand still in time has failed: only its own doing keeps a tree running for so long.

    Raises:
        ArmFailed: ``RUN_FREEZE``.
    """
    try:
        side.process.freeze()
    except TimeoutError as error:
        raise ArmFailed("RUN_FREEZE", "a process tree that stands still when frozen", str(error)) from error


def _stayed(side: Side, cpus: tuple[int, ...], used: float, wall: float) -> None:
    """Raise Interference if a thread is bound elsewhere, or if more CPU time was used than these cores can give: a thread may
    leave its core and be back before anybody looks."""
    if side.process.strays(cpus):
        raise Interference("TIM_AFFINITY", side.arm, f"every thread on cores {list(cpus)}", "a thread elsewhere")
    most = len(cpus) * wall * (1 + COUNTER_SHARE) + COUNTER_SECONDS
    if used > most:
        found = f"{used * 1e3:.3f} ms of CPU time in a run of {wall * 1e3:.3f} ms"
        raise Interference("TIM_AFFINITY", side.arm, f"no more CPU time than cores {list(cpus)} give", found)


def snapshot(
    arm: Arm, arena: Guarded, weights: Weights, data: Data, nanoseconds: int, events: int | None = None
) -> Snapshot:
    """Copy what a frozen arm left, and compare and mend the guard bands.

    Outputs are copied first: work that an arm left to its device when it said "done" is not frozen with it.
    """
    histories = {
        s.name: arena.tensors[f"history.{s.name}"][: data.steps].clone() for s in weights.specs if s.role is Role.OUTPUT
    }
    states = {s.name: arena.tensors[s.name].clone() for s in weights.specs if s.role is Role.STATE}
    strays = tuple(arena.strays())
    if strays:
        arena.mend()
    if not arena.sealed:
        strays += tuple(changed(arena.tensors, weights.specs, data))
    return Snapshot(arm, data, nanoseconds, histories, states, strays, events)
