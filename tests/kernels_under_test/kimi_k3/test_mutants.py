"""Planted mutants: what a pinned chain sees, what only masks or one-step checks can see, and the honest twins."""

import importlib
import os
import time
from pathlib import Path

import pytest
import torch

from gatekeeper.domain.planted import Kind, read_index
from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3 import mutants
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.mutants import timing
from kernels_under_test.kimi_k3.mutants.seam import of_baseline
from kernels_under_test.kimi_k3.reference import oracle
from tests.kernels_under_test.kimi_k3.chain import bits, errors, run, strayed, worse

HERE = Path(mutants.__file__).parent
INDEX = read_index((HERE / "index.toml").read_text(), "index.toml")
SHAPE, STEPS = Shape(8, 1, 80, 4, decode_context_parallel=2), 48


def entry(mutant):
    file, attribute = mutant.at.split(":")
    return getattr(importlib.import_module(f"{mutants.__name__}.{file}"), attribute)


def listed(**wanted):
    return [pytest.param(m, id=m.name) for m in INDEX if all(getattr(m, k) == v for k, v in wanted.items())]


def one_of_each_file(**wanted):
    """The whole corpus takes minutes and is `gatekeeper selftest`'s business; here each way of planting is shown once."""
    first = {}
    for param in listed(**wanted):
        first.setdefault(param.values[0].at.split(":")[0], param)
    return list(first.values())


def figures(problem, arm):
    one = run(arm, problem, SHAPE, steps=STEPS, seed=4)
    return one, errors(problem, one, oracle().follow(problem, SHAPE, one.initial, one.x, one.ids))


@pytest.fixture(scope="module")
def stock(tiny):
    return figures(tiny, baseline)


def test_the_index_is_complete_and_every_entry_can_be_built() -> None:
    assert all(callable(entry(mutant).build) for mutant in INDEX)
    files = {path.stem for path in HERE.glob("*.py")} - {"__init__", "seam", "stages"}
    assert {mutant.at.split(":")[0] for mutant in INDEX} == files
    assert sum(mutant.kind is not Kind.HONEST for mutant in INDEX) >= 80
    assert sum(mutant.kind is Kind.HONEST for mutant in INDEX) >= 8


@pytest.mark.parametrize("mutant", [param for param in listed() if param.values[0].at.split(":")[0] != "process"])
def test_every_mutant_takes_a_step(tiny, mutant) -> None:
    """A mutant that fails to build would be stopped for the wrong reason."""
    arm = entry(mutant) if mutant.name != "spin_while_idle" else of_baseline(around=timing.spinning(0.1))
    assert run(arm, tiny, Shape(2, 1, 16, 4, decode_context_parallel=2), steps=1).out.shape == (1, 2, 128)


@pytest.mark.parametrize("mutant", one_of_each_file(seen_by="chain", kind=Kind.FAULT))
def test_a_pinned_chain_sees_the_fault(tiny, stock, mutant) -> None:
    _, found = figures(tiny, entry(mutant))
    assert worse(found, stock[1]), found


@pytest.mark.parametrize("mutant", listed(kind=Kind.HONEST))
def test_honest_controls_are_not_seen(tiny, stock, mutant) -> None:
    one, found = figures(tiny, entry(mutant))
    assert worse(found, stock[1]) == []
    assert strayed(tiny, one) == []


@pytest.mark.parametrize(
    "mutant", [p for p in listed(seen_by="guard") if p.id in ("null_slot_written", "spare_slot_written")]
)
def test_a_stray_write_is_named_by_the_mask(tiny, mutant) -> None:
    assert strayed(tiny, run(entry(mutant), tiny, SHAPE, steps=4)) == ["layers.8.recurrent_state"]


@pytest.mark.parametrize(
    ("name", "tensor"), [("write_behind_the_output", "out"), ("write_far_behind_the_ids", "expert_ids")]
)
def test_a_write_beside_an_output_stays_in_its_slack_and_is_named(tiny, name, tensor) -> None:
    """In memory without slack it would hit whatever the test process keeps there."""
    mutant = next(m for m in INDEX if m.name == name)
    assert strayed(tiny, run(entry(mutant), tiny, SHAPE, steps=2)) == [tensor]


TRIES = (
    (Shape(3, 1, 40, 4, decode_context_parallel=2), "padded", 6),
    (Shape(3, 1, 8, 8), "normal", 4),
    (Shape(8, 1, 80, 4, decode_context_parallel=2), "x8", 12),
)
"""Shape, regime and steps at which a planted fault must show: for the first of them is a tail, a padded row and two shards, in the
second a page holds the whole context of one shard, and in the third states are large and one request lies in slot 1."""


@pytest.fixture(scope="module")
def honest_runs(tiny):
    return {
        arm: [run(arm, tiny, shape, steps=steps, seed=SLOT_ONE, regime=regime) for shape, regime, steps in TRIES]
        for arm in (baseline, candidate)
    }


SLOT_ONE = 4


@pytest.mark.parametrize(
    "mutant", [param for param in listed(kind=Kind.FAULT) if param.values[0].at.split(":")[0] != "process"]
)
def test_no_planted_fault_is_the_same_as_what_it_was_planted_in(tiny, honest_runs, mutant) -> None:
    """One that changes nothing could only be stopped by mistake."""
    arm = entry(mutant)
    assert 1 in honest_runs[candidate][2].initial["slots"].tolist()
    for index, (shape, regime, steps) in enumerate(TRIES):
        found = run(arm, tiny, shape, steps=steps, seed=SLOT_ONE, regime=regime)
        if not any(_same(found, runs[index]) for runs in honest_runs.values()) or strayed(tiny, found):
            return
    pytest.fail("every output, state and surrounding byte is that of an honest run")


def _same(one, other) -> bool:
    pairs = [(one.out, other.out), (one.ids, other.ids)]
    pairs += [(one.tensors[spec], other.tensors[spec]) for spec in one.initial]
    return all(torch.equal(bits(a), bits(b)) for a, b in pairs)


@pytest.mark.parametrize(
    "mutant",
    [p for p in listed(seen_by="one_step") if p.values[0].at.split(":")[0] == "states" or p.id == "l2_eps_off"],
)
def test_faults_left_to_the_one_step_check_do_change_the_states(tiny, mutant) -> None:
    """A chain may miss them, but they are real: from one start state, one step ends elsewhere than the candidate's."""
    honest = run(entry(next(m for m in INDEX if m.name == "candidate_again")), tiny, SHAPE, steps=1)
    found = run(entry(mutant), tiny, SHAPE, steps=1)
    name = "layers.8.recurrent_state"
    one, other = (r.tensors[name][r.initial["slots"].long()] for r in (found, honest))
    assert (one - other).norm() / other.norm() > 1e-4


@pytest.mark.parametrize("mutant", [p for p in listed(seen_by="clock") if p.values[0].expected == "not_better"])
def test_clock_cheats_and_slow_twins_give_the_stock_output(tiny, mutant) -> None:
    arm = entry(mutant) if mutant.name != "spin_while_idle" else of_baseline(around=timing.spinning(0.1))
    found, wanted = (run(one, tiny, SHAPE, steps=4) for one in (arm, baseline))
    assert torch.equal(found.out, wanted.out)
    assert torch.equal(found.ids, wanted.ids)


def test_slow_twins_run_more_stages() -> None:
    calls = []

    class Counting:
        stages = ("layer.7/shared_gate_up", "layer.7/attention", "layer.7/shared_down")

        def __init__(self) -> None:
            self._runs = [lambda name=name: calls.append(name) for name in self.stages]

    timing._repeating("/shared_gate_up", "/shared_down")(Counting(), {}, {}, None)()
    assert [calls.count(stage) for stage in Counting.stages] == [2, 1, 2]


def test_sealed_memory_survives_the_truncating_cheat(tiny) -> None:
    """Unsealed memory does not: that is what the seal is for."""
    import fcntl

    sealed, plain = (os.memfd_create(name, os.MFD_ALLOW_SEALING) for name in ("sealed", "plain"))
    try:
        for fd in (sealed, plain):
            os.ftruncate(fd, 4096)
        fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        run(timing.truncate_memory, tiny, Shape(1, 1, 16, 4), steps=1)
        assert os.fstat(sealed).st_size == 4096
        assert os.fstat(plain).st_size == 0
    finally:
        os.close(sealed)
        os.close(plain)


def test_the_spinning_cheat_burns_a_core_while_idle_and_ends_in_time(tiny) -> None:
    run(of_baseline(around=timing.spinning(0.4)), tiny, Shape(1, 1, 16, 4), steps=1)
    time.sleep(0.6)
    child, status, usage = os.wait3(0)
    assert child > 0
    assert os.waitstatus_to_exitcode(status) == 0
    assert usage.ru_utime + usage.ru_stime > 0.005


def test_sleeping_once_costs_the_first_call_only(tiny, monkeypatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(timing.time, "sleep", slept.append)
    run(timing.sleep_in_first_call, tiny, Shape(1, 1, 16, 4), steps=8)
    assert slept == [timing.WARM_UP_SECONDS]
