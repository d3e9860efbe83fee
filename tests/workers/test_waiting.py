"""Pairs that start before their blocks: in order, so many at a time, frozen when one of them is to be timed, closed at the end."""

from __future__ import annotations

import os

import pytest

from gatekeeper.domain.race import RaceStatus
from gatekeeper.domain.samples import Arm
from tests.workers.conftest import MODELS, ROOT, toy_order
from workers.devices.cpu import CpuDevice
from workers.loop.blocks import Plan
from workers.protocol import ArmFailed
from workers.race import race
from workers.waiting import Waiting

PLANS = [Plan(pair, False, Arm.BASELINE) for pair in range(5)]


class Side:
    """Plays an arm's process."""

    def __init__(self, told, name, fails):
        self.told, self.name, self.fails, self.process = told, name, fails, self

    def ready(self):
        if self.fails:
            raise ArmFailed("RUN_NO_RESULT", "an answer", "none")
        self.told.append(f"ready {self.name}")

    def freeze(self):
        self.told.append(f"freeze {self.name}")

    def close(self):
        self.told.append(f"close {self.name}")


@pytest.fixture
def told():
    return []


def waiting(told, together, fails=()):
    def start(plan):
        told.append(f"start {plan.pair}")
        return {Arm.CANDIDATE: Side(told, plan.pair, plan.pair in fails)}

    return Waiting(start, together)


def test_one_at_a_time_starts_when_the_one_before_is_done_and_is_left_running(told):
    pairs = waiting(told, 1)
    taken = []
    for index in range(3):
        taken.append(pairs.take(PLANS[index:3])[Arm.CANDIDATE].name)
        told.append("block")
        pairs.fill(PLANS[index + 1 : 3])
    assert taken == [0, 1, 2]
    assert told == ["start 0", "block", "start 1", "block", "start 2", "block"]


def test_several_start_side_by_side_and_all_stand_still_before_a_block(told):
    pairs = waiting(told, 2)
    for index in range(3):
        assert pairs.take(PLANS[index:3])[Arm.CANDIDATE].name == index
        told.append("block")
        pairs.fill(PLANS[index + 1 : 3])
    together = ["ready 0", "freeze 0", "ready 1", "freeze 1"]
    assert told == ["start 0", "start 1", *together, "block", "block", "start 2", "ready 2", "freeze 2", "block"]


def test_one_that_does_not_start_is_handed_to_its_block_and_stops_no_other(told):
    pairs = waiting(told, 2, fails={0})
    assert pairs.take(PLANS[:2])[Arm.CANDIDATE].name == 0
    assert told[-2:] == ["ready 1", "freeze 1"]


def test_what_no_block_has_taken_is_closed(told):
    pairs = waiting(told, 3)
    pairs.take(PLANS)
    pairs.close()
    pairs.close()
    assert told[-2:] == ["close 1", "close 2"]


class Several(CpuDevice):
    """The machine itself, where several pairs start at once."""

    together = 3


def test_a_race_whose_pairs_start_together_ends_as_ever():
    before = os.sched_getaffinity(0)
    try:
        result = race(toy_order(), models=MODELS, root=ROOT, device=Several())
    finally:
        os.sched_setaffinity(0, before)
    assert result.status is RaceStatus.FINISHED, result.faults
    assert len(result.configurations[0].blocks) == 2 and not result.faults
