"""Planted mutants: what a pinned chain sees, what only masks or one-step checks can see, and the honest twins."""

import importlib
import os
import time
import tomllib
from pathlib import Path

import pytest
import torch

from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3 import mutants
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.mutants import timing
from kernels_under_test.kimi_k3.mutants.seam import of_baseline
from kernels_under_test.kimi_k3.reference import oracle
from tests.kernels_under_test.kimi_k3.chain import errors, run, strayed, worse

INDEX = tomllib.loads((Path(mutants.__file__).parent / "index.toml").read_text())["mutants"]
SHAPE, STEPS = Shape(8, 1, 80, 4, decode_context_parallel=2), 48


def entry(mutant):
    module, attribute = mutant["entry_point"].split(":")
    return getattr(importlib.import_module(module), attribute)


def listed(**wanted):
    return [pytest.param(m, id=m["name"]) for m in INDEX if all(m[k] == v for k, v in wanted.items())]


def figures(problem, arm):
    one = run(arm, problem, SHAPE, steps=STEPS, seed=4)
    return one, errors(problem, one, oracle().follow(problem, SHAPE, one.initial, one.x, one.ids))


@pytest.fixture(scope="module")
def stock(tiny):
    return figures(tiny, baseline)


def test_the_index_is_complete_and_well_formed() -> None:
    assert len({m["name"] for m in INDEX}) == len(INDEX)
    for mutant in INDEX:
        assert set(mutant) == {"name", "entry_point", "kind", "expected", "seen_by"}
        assert mutant["kind"] in ("fault", "cheat", "slow", "honest")
        assert mutant["expected"] in ("wrong", "not_better", "better")
        assert mutant["seen_by"] in ("chain", "one_step", "guard", "clock")
        assert callable(entry(mutant).build)
    files = [p for p in Path(mutants.__file__).parent.glob("*.py") if p.stem not in ("__init__", "seam")]
    assert {m["entry_point"].split(":")[0].rsplit(".", 1)[1] for m in INDEX} == {p.stem for p in files}


@pytest.mark.parametrize("mutant", listed(seen_by="chain"))
def test_a_pinned_chain_sees_the_fault(tiny, stock, mutant) -> None:
    _, found = figures(tiny, entry(mutant))
    assert worse(found, stock[1]), found


@pytest.mark.parametrize("mutant", listed(kind="honest"))
def test_honest_controls_are_not_seen(tiny, stock, mutant) -> None:
    one, found = figures(tiny, entry(mutant))
    assert worse(found, stock[1]) == []
    assert strayed(tiny, one) == []


@pytest.mark.parametrize("mutant", listed(seen_by="guard"))
def test_a_stray_write_is_named_by_the_mask(tiny, mutant) -> None:
    assert strayed(tiny, run(entry(mutant), tiny, SHAPE, steps=4)) == ["layers.8.recurrent_state"]


@pytest.mark.parametrize("mutant", listed(seen_by="one_step"))
def test_faults_left_to_the_one_step_check_do_change_the_states(tiny, mutant) -> None:
    """A chain may miss them, but they are real: from one start state, one step ends elsewhere than the candidate's."""
    honest = run(entry(next(m for m in INDEX if m["name"] == "candidate_again")), tiny, SHAPE, steps=1)
    found = run(entry(mutant), tiny, SHAPE, steps=1)
    name = "layers.8.recurrent_state"
    one, other = (r.tensors[name][r.initial["slots"].long()] for r in (found, honest))
    assert (one - other).norm() / other.norm() > 1e-4


@pytest.mark.parametrize("mutant", listed(expected="not_better"))
def test_clock_cheats_and_slow_twins_give_the_stock_output(tiny, mutant) -> None:
    arm = entry(mutant) if mutant["name"] != "spin_while_idle" else of_baseline(around=timing.spinning(0.1))
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
    assert usage.ru_utime + usage.ru_stime > 0.03


def test_sleeping_once_costs_the_first_call_only(tiny) -> None:
    def seconds(steps: int) -> float:
        start = time.monotonic()
        run(timing.sleep_in_first_call, tiny, Shape(1, 1, 16, 4), steps=steps)
        return time.monotonic() - start

    assert seconds(1) > timing.WARM_UP_SECONDS
    assert seconds(8) - seconds(1) < timing.WARM_UP_SECONDS
