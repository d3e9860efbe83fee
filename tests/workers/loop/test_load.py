"""Repeats beside a competing load: the load is really there, only then, and what differs under it alone is seen."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.samples import Arm
from workers.launch import descendants
from workers.loop import untimed
from workers.loop.load import competing
from workers.loop.runs import Snapshot


def test_a_busy_process_stands_on_each_core_and_is_gone_afterwards():
    cpu = min(os.sched_getaffinity(0))
    before = set(descendants(os.getpid()))
    with competing((cpu,)):
        (busy,) = set(descendants(os.getpid())) - before
        assert os.sched_getaffinity(busy) == {cpu}
        first = _ticks(busy)
        time.sleep(0.3)
        assert _ticks(busy) > first
    assert set(descendants(os.getpid())) == before


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])


def test_bits_that_differ_only_beside_a_load_are_seen(monkeypatch):
    loaded = []

    @contextmanager
    def noted(cpus):
        loaded.append(cpus)
        yield
        loaded.pop()

    monkeypatch.setattr(untimed, "competing", noted)

    def shot(arm, number, data):
        value = float(bool(loaded) and arm is Arm.CANDIDATE)
        return Snapshot(arm, data, 1, {"out": torch.full((1, 2), value)}, {}, ())

    block = SimpleNamespace(
        course=SimpleNamespace(cores=SimpleNamespace(arms=(0,))),
        draw=lambda number, steps: SimpleNamespace(steps=1),
        shot=shot,
    )
    plan = SimpleNamespace(loads=[SimpleNamespace(steps=1)])
    found = list(untimed.run_again(plan, block, [Configuration(rows=1, context=8, page_size=4)]))
    assert [(one.arm, one.tensor) for one in found] == [(Arm.CANDIDATE, "out")]
