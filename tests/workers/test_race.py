"""Whole races of the toy model: every ending is the right outcome, told by correctness and protocol, never by measured speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import RaceOutcome, RaceResult, RaceStatus
from tests.workers.conftest import MODELS, ROOT, toy_order
from workers.cgroups import own_groups
from workers.launch import descendants
from workers.loop.untimed import runs_for
from workers.race import LARGEST_ORDER, race


@pytest.fixture(autouse=True)
def same_cores():
    """A race pins its harness; the tests after it get their cores back."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def run(candidate="stock:baseline", **changes) -> RaceResult:
    return race(toy_order(candidate, **changes), models=MODELS, root=ROOT)


def codes(result: RaceResult) -> set[str]:
    return {fault.code for fault in result.faults} | {f.code for record in result.configurations for f in record.faults}


def test_identical_arms_finish_and_are_not_better():
    result = run()
    assert result.status is RaceStatus.FINISHED
    assert result.outcome not in (RaceOutcome.BETTER, RaceOutcome.WRONG, RaceOutcome.VOID, RaceOutcome.HELD)
    record = result.configurations[0]
    assert {error.check for error in record.errors} == {"chain", "resumed", "timed"}
    assert {error.tensor for error in record.errors} == {"out", "state"}
    assert {proof.name for proof in record.self_proofs} == {"zeros", "previous", "echo", "one_element"}
    assert all(proof.refused for proof in record.self_proofs)
    seeds = [run.seed for block in record.blocks for group in block.groups for run in group.runs]
    assert len(set(seeds)) * 2 == len(seeds)
    assert [block.swapped for block in record.blocks[:2]] in ([True, False], [False, True])


def test_a_short_context_shortens_no_run_but_its_own():
    result = run(configurations=tuple(Configuration(rows=2, context=count, page_size=4) for count in (1, 3, 64)))
    assert result.status is RaceStatus.FINISHED, result.faults
    steps = [
        {run.steps for block in record.blocks for group in block.groups for run in group.runs}
        for record in result.configurations
    ]
    assert steps[0] == {1} and steps[1] <= {1, 2, 3} and steps[2] <= {4, 5, 6, 7, 8}
    chains = [{e.check: e for e in record.errors}["chain"] for record in result.configurations]
    assert [chain.steps / (chain.sequences / 2) for chain in chains] == [1, 3, 32]


def test_where_no_context_holds_a_run_nothing_is_raced_and_the_text_says_why():
    result = run(configurations=(Configuration(rows=2, context=3, page_size=4),))
    assert (result.status, result.outcome) == (RaceStatus.ABANDONED, RaceOutcome.VOID)
    (fault,) = result.faults
    assert (fault.code, fault.found) == ("BENCH_CONTEXT_SHORT", "at most 3") and "at least 4" in fault.expected


@pytest.mark.parametrize(
    ("candidate", "code"),
    [
        ("zeros", None),
        ("skipearly", None),
        ("phaseswitch", None),
        ("notfinite", "COR_NONFINITE"),
        ("nullslot", "COR_STRAY_WRITE"),
        ("outofbounds", "COR_STRAY_WRITE"),
        ("writeweights", "RUN_NO_RESULT"),
        ("latewriter", "COR_UNWRITTEN"),
        ("exitzero", "RUN_NO_RESULT"),
        ("systemexits", "RUN_NO_RESULT"),
        ("raises", "RUN_RAISED"),
        ("crashes", "RUN_NO_RESULT"),
        ("speaks", "RUN_PROTOCOL"),
        ("strayfirst", "COR_STRAY_WRITE"),
        ("twocores", "RUN_RAISED"),
        ("leftover", "COR_NOT_DETERMINISTIC"),
    ],
)
def test_a_wrong_candidate_is_wrong_for_its_own_reason(candidate, code):
    result = run(f"variants:{candidate}")
    assert (result.status, result.outcome) == (RaceStatus.STOPPED, RaceOutcome.WRONG), result.faults
    assert not any(record.blocks for record in result.configurations)
    if code is not None:
        assert code in codes(result), codes(result)


def test_a_baseline_that_crashes_voids_the_race():
    result = run(baseline="variants:crashes")
    assert (result.status, result.outcome) == (RaceStatus.ABANDONED, RaceOutcome.VOID)


def test_truncating_the_memory_does_nothing():
    result = run("variants:shrink")
    assert result.outcome not in (RaceOutcome.WRONG, RaceOutcome.VOID, RaceOutcome.BETTER)


def test_a_spinning_thread_is_still_while_the_other_arm_is_timed():
    assert "TIM_IDLE_INTERFERENCE" not in codes(run("variants:spins"))


def test_a_declined_configuration_ends_the_race_with_a_clean_reason():
    result = run("variants:declines")
    assert result.outcome is RaceOutcome.DECLINED
    assert result.supports[0].reason == "[31monly one row"


def test_outside_the_scope_a_candidate_must_decline():
    outside = (Configuration(rows=16, context=64, page_size=4),)
    assert run("variants:servesall", refused=outside).outcome is RaceOutcome.WRONG
    honest = run(refused=outside)
    assert honest.outcome not in (RaceOutcome.WRONG, RaceOutcome.DECLINED)
    assert [(answer.asked_as, answer.declined) for answer in honest.supports] == [
        ("advertised", False),
        ("refused", True),
    ]


def test_a_daemon_is_noted_and_held():
    result = run("variants:daemon")
    assert "JAIL_LEFTOVER" in codes(result)
    assert result.outcome is not RaceOutcome.BETTER


def test_a_used_up_deadline_is_void():
    assert run(longest=1).outcome is RaceOutcome.VOID


def test_chains_bring_requests_together_and_not_rows():
    shapes = [(1, 1), (8, 1), (8, 8), (64, 1)]
    made = [Configuration(rows=rows, query_tokens=tokens, context=64, page_size=4) for rows, tokens in shapes]
    assert [runs_for(configuration, 16) for configuration in made] == [16, 2, 16, 2]


def test_a_candidate_that_uses_up_the_time_itself_is_no_void_race():
    result = run("variants:slowbuild", longest=12)
    assert (result.status, result.outcome) == (RaceStatus.STOPPED, RaceOutcome.WRONG), result.faults
    assert "RUN_TIMEOUT" in codes(result)


def test_the_arm_sees_constants_only_and_the_harness_no_implementation(tmp_path):
    os.environ["GK_CANARY"] = "secret"
    try:
        order = toy_order("variants:looks")
        script = (
            "import sys, json\n"
            "from pathlib import Path\n"
            "from gatekeeper.domain.race import RaceOrder\n"
            "from workers.race import race\n"
            "order = RaceOrder.model_validate_json(sys.stdin.read())\n"
            f"result = race(order, models=Path({str(MODELS)!r}), root=Path({str(ROOT)!r}))\n"
            "loaded = [n for n in sys.modules if '.arms' in n or '.candidate' in n or '.baseline' in n]\n"
            "print(json.dumps([loaded, result.faults[0].found]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=order.model_dump_json(),
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
    finally:
        del os.environ["GK_CANARY"]
    loaded, seen = json.loads(done.stdout)
    assert loaded == []
    assert "GK_CANARY" not in seen and "OMP_NUM_THREADS" in seen


def test_the_command_reads_an_order_and_writes_a_result():
    order = toy_order("variants:raises").model_dump_json()
    command = [sys.executable, "-m", "workers.race", "--models", str(MODELS)]
    done = subprocess.run(command, input=order, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert RaceResult.model_validate_json(done.stdout).outcome is RaceOutcome.WRONG
    assert json.loads(done.stderr.splitlines()[0])["event"] == "start"
    bad = subprocess.run(command, input="{}", capture_output=True, text=True, cwd=ROOT)
    assert bad.returncode == 2 and json.loads(bad.stderr.splitlines()[-1])["code"] == "RACE_ORDER"


def test_a_race_leaves_no_process_no_group_and_no_file(monkeypatch):
    place = Path(tempfile.mkdtemp(prefix="traces-"))  # its own, since other tests may race meanwhile
    place.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def traces():
        groups = [path for found in own_groups().values() for path in found.glob(f"gatekeeper-{os.getpid()}-*")]
        return {*place.iterdir(), *groups, *descendants(os.getpid())}

    before = traces()
    assert run("variants:crashes").outcome is RaceOutcome.WRONG
    assert traces() <= before
    place.rmdir()


def test_each_line_has_one_answer_whatever_it_holds() -> None:
    lines = b"no order\n" + b"x" * (2 * LARGEST_ORDER + 3) + b"\n" + b"{}\n"
    done = subprocess.run([sys.executable, "-m", "workers.race", "--lines"], input=lines, capture_output=True, cwd=ROOT)
    answers = [json.loads(line)["error"] for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [answer["code"] for answer in answers] == ["RACE_ORDER"] * 3
    assert "at most" in answers[1]["message"]
