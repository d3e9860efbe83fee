"""One run, with fakes for the process and the protocol: what is written when, and an idle arm that moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gatekeeper.domain.samples import Arm
from kernels_under_test import hashrng
from kernels_under_test.contract import Role, Shape, feedback
from tests.workers.toy_model.trusted import load, oracle
from workers.arena import Arena, layout
from workers.devices.cpu import CpuDevice
from workers.loop import runs
from workers.loop.runs import Interference, Weights, new_seed, prepare, run
from workers.models import Model
from workers.protocol import ArmFailed

SHAPE, STEPS = Shape(rows=2, query_tokens=1, context=64, page_size=4, dtypes={}), 6
MODEL = Model(load("small"), oracle())


class Process:
    """A process whose idle CPU time and threads are made up; the 'arm' runs when it is thawed."""

    def __init__(self, events, name, *, moves=0.0, strays=()):
        self.events, self.name, self.moves, self.stray, self.cpu, self.work = (
            events,
            name,
            moves,
            list(strays),
            1.0,
            None,
        )

    def thaw(self):
        self.events.append(f"thaw {self.name}")
        if self.work:
            self.work()

    def freeze(self):
        self.events.append(f"freeze {self.name}")

    def cpu_time(self):
        self.cpu += self.moves
        return self.cpu

    def strays(self, cpus):
        return self.stray


def sides(*, idle_moves=0.0, moves=0.0, strays=(), fails=False):
    events: list[str] = []
    arena = Arena(layout(MODEL.problem.tensors(SHAPE), STEPS, 1))
    process = Process(events, "runner", moves=moves, strays=strays)

    def done(number, steps, timeout, *, awake):
        events.append("done")
        if fails:
            raise ArmFailed("RUN_TIMEOUT", "an answer", "none")

    channel = SimpleNamespace(ask_run=lambda number, steps: events.append("ask"), done=done)
    runner = SimpleNamespace(arm=Arm.CANDIDATE, arenas=[arena], channel=channel, process=process)
    idle = SimpleNamespace(arm=Arm.BASELINE, process=Process(events, "idle", moves=idle_moves))
    weights = Weights(MODEL, SHAPE, new_seed(), STEPS)
    weights.place(arena)
    return runner, idle, weights, events


def test_the_first_noise_is_written_after_the_order_and_the_arm_is_frozen_before_the_snapshot():
    runner, idle, weights, events = sides()
    data = weights.draw(new_seed(), STEPS)
    tensors = runner.arenas[0].tensors
    seen = {}

    def ask(number, steps):
        events.append("ask")
        seen["before"] = tensors["noise"][0].clone()

    runner.channel.ask_run = ask
    runner.process.work = lambda: seen.update(after=tensors["noise"][0].clone(), out=tensors["history.out"].clone())
    shot = run(runner, idle, 0, weights, data, (0,))
    assert events == ["ask", "thaw runner", "done", "freeze runner"]
    assert seen["before"].isnan().all() and torch.equal(seen["after"], data.noise[0])
    assert seen["out"].isnan().all(), "histories are poisoned before the run"
    assert shot.nanoseconds > 0 and shot.strays == ()


def test_the_clock_is_read_before_the_order_and_after_the_freeze(monkeypatch):
    """An arm that its order wakes up, whatever holds it, works on its own clock."""
    runner, idle, weights, events = sides()
    real = runs.time.monotonic_ns
    monkeypatch.setattr(runs.time, "monotonic_ns", lambda: events.append("clock") or real())
    run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))
    assert events == ["clock", "ask", "thaw runner", "done", "freeze runner", "clock"]


def test_an_idle_arm_that_uses_cpu_time_is_interference_and_a_still_one_is_not():
    runner, idle, weights, _ = sides(idle_moves=0.01)
    with pytest.raises(Interference) as seen:
        run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))
    assert (seen.value.code, seen.value.arm) == ("TIM_IDLE_INTERFERENCE", Arm.BASELINE)


class Busy(CpuDevice):
    """A device on which something else is at work."""

    def gauge(self):
        return "a copy that takes 140 us by itself took 9000 us"


@pytest.mark.parametrize("last", list(Arm))
def test_what_is_at_work_on_the_device_before_a_run_is_the_last_arms(last):
    runner, idle, weights, events = sides()
    data = weights.draw(new_seed(), STEPS)
    with pytest.raises(Interference) as seen:
        run(runner, idle, 0, weights, data, (0,), True, Busy(), last)
    assert (seen.value.code, seen.value.arm, events) == ("TIM_IDLE_INTERFERENCE", last, [])
    assert "9000 us" in seen.value.found
    run(
        runner, idle, 0, weights, data, (0,), False, Busy(), last
    )  # nothing is timed, and the oracle may be at work there


def test_a_thread_on_another_core_is_interference():
    runner, idle, weights, _ = sides(strays=[4711])
    with pytest.raises(Interference) as seen:
        run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))
    assert (seen.value.code, seen.value.arm) == ("TIM_AFFINITY", Arm.CANDIDATE)


def test_a_thread_that_left_its_core_and_came_back_shows_in_the_cpu_time():
    runner, idle, weights, _ = sides(moves=5.0)
    with pytest.raises(Interference) as seen:
        run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))
    assert (seen.value.code, seen.value.arm) == ("TIM_AFFINITY", Arm.CANDIDATE)
    assert "5000.000 ms of CPU time" in seen.value.found
    runner, idle, weights, _ = sides(moves=0.00005)
    run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))


def test_an_arm_that_does_not_stand_still_has_failed():
    runner, idle, weights, _ = sides()

    def never():
        raise TimeoutError("tasks would not freeze within 5 s")

    runner.process.freeze = never
    with pytest.raises(ArmFailed) as seen:
        run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))
    assert (seen.value.code, seen.value.found) == ("RUN_FREEZE", "tasks would not freeze within 5 s")


def test_an_arm_that_fails_is_frozen_all_the_same():
    runner, idle, weights, events = sides(fails=True)
    with pytest.raises(ArmFailed):
        run(runner, idle, 0, weights, weights.draw(new_seed(), STEPS), (0,))
    assert events[-1] == "freeze runner"


def test_both_arms_get_the_same_data_for_a_seed_and_other_data_for_another():
    weights = Weights(MODEL, SHAPE, new_seed(), STEPS)
    seed = new_seed()
    first, again, other = (weights.draw(s, STEPS) for s in (seed, seed, new_seed()))
    assert all(torch.equal(first.initial[n].nan_to_num(), again.initial[n].nan_to_num()) for n in first.initial)
    assert torch.equal(first.noise, again.noise) and torch.equal(first.multipliers, again.multipliers)
    assert not torch.equal(first.noise, other.noise) and bool((first.multipliers % 2 == 1).all())
    assert {spec.role for spec in weights.specs if not torch.equal(
        first.initial.get(spec.name, torch.zeros(1)).nan_to_num(), other.initial.get(spec.name, torch.zeros(1)).nan_to_num()
    )} <= {Role.STATE, Role.METADATA, Role.SCHEDULE}  # fmt: skip


def test_turning_last_bits_of_an_output_does_not_choose_the_next_input():
    """With one row of 4,096 these 8,192 outputs, equal but for a few last bits, would repeat each other and hit any row wanted."""
    multipliers = hashrng.words(7, "multipliers", 32) | 1
    table = hashrng.normal(7, "table", (4096, 32)).to(torch.bfloat16)
    out = hashrng.normal(7, "out", (1, 32)).to(torch.bfloat16)
    bits = (torch.arange(8192)[:, None] >> torch.arange(13)) & 1
    words = out.view(torch.int16).repeat(8192, 1)
    words[:, :13] ^= bits.to(torch.int16)
    added = feedback(words.view(torch.bfloat16), multipliers, table)
    assert len(torch.unique(added, dim=0)) == 8192
    nearest = (added[1:] - added[0]).norm(dim=1).min() / added[0].norm()
    assert nearest > 0.3, "no output adds nearly what another adds"
    assert 0.8 < float(added.square().mean()) < 1.2, "of unit size"


def test_the_table_differs_from_run_to_run_by_the_signs_of_its_columns():
    weights = Weights(MODEL, SHAPE, new_seed(), STEPS)
    arena = Arena(layout(MODEL.problem.tensors(SHAPE), STEPS, 1))
    seen = []
    for _ in range(2):
        data = weights.draw(new_seed(), STEPS)
        prepare(weights, arena, data)
        seen.append(arena.tensors["table"].clone())
        assert torch.equal(seen[-1], data.table * data.signs) and set(data.signs.tolist()) <= {1.0, -1.0}
    assert torch.equal(seen[0].abs(), seen[1].abs()) and not torch.equal(seen[0], seen[1])
