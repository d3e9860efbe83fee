"""``gatekeeper race``: what it refuses, what it writes, and its exit statuses."""

from __future__ import annotations

import json
import sys
import threading

import click
import pytest
import torch

from gatekeeper.backends.machine import Machine
from gatekeeper.catalog import load_catalog
from gatekeeper.cli import main, race_harness
from gatekeeper.cli.race import RULES, quiet_machine
from gatekeeper.cli.race_arguments import row_counts, source
from gatekeeper.cli.race_harness import run
from gatekeeper.cli.race_text import EXIT, reason_lines
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.decision import Reason
from gatekeeper.domain.errors import GatekeeperError, Postponed, Rejected, Retryable
from gatekeeper.domain.race import InstalledSource, LocalSource, RaceOrder, RaceOutcome, RaceRequest

KIMI = "kernels_under_test.kimi_k3"


@pytest.fixture
def order():
    """A race of the house candidate, as the command orders it."""
    model, target = load_catalog().models["kimi_k3"], load_catalog().targets["cpu"]
    request = RaceRequest(
        purpose="local", model="kimi_k3", problem="tiny", suite=model.suite, target=target,
        candidate=InstalledSource(entry_point=model.candidate), baseline=InstalledSource(entry_point=model.baseline),
        configurations=(Configuration(rows=1, context=64, page_size=8),), rules=RULES,
    )  # fmt: skip
    return RaceOrder(request=request, alpha=0.01)


def test_a_spec_is_a_module_or_a_path_and_a_module(tmp_path):
    where = f"{KIMI}.candidate.gate:candidate"
    assert source(where) == InstalledSource(entry_point=where)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").touch()
    assert source(f"{tmp_path}::a.b:c") == LocalSource(path=str(tmp_path), entry_point="a.b:c")
    for wrong in ("a.b", "a b:c", "::", "x::y"):
        with pytest.raises(click.UsageError, match="found"):
            source(wrong)


def test_rows_are_positive_whole_numbers():
    assert row_counts("8, 1,8") == [1, 8]
    for wrong in ("", "0", "1,x", "-1"):
        with pytest.raises(click.UsageError, match="found"):
            row_counts(wrong)


@pytest.mark.parametrize("arguments", [["--model", "none"], ["--model", "kimi_k3", "--target", "none"], []])
def test_wrong_usage_exits_with_64(arguments):
    assert main(["race", *arguments]) == 64


def test_only_better_exits_with_0():
    statuses = {outcome: EXIT.get(outcome, 1) for outcome in RaceOutcome}
    assert [outcome for outcome, status in statuses.items() if status == 0] == [RaceOutcome.BETTER]
    assert (statuses[RaceOutcome.HELD], statuses[RaceOutcome.VOID], statuses[RaceOutcome.WRONG]) == (2, 3, 1)


def test_a_wrong_candidate_exits_with_1_and_says_why(tmp_path):
    file = tmp_path / "race.json"
    candidate = f"{KIMI}.mutants.states:null_slot_written"
    assert main(["race", "--model", "kimi_k3", "--candidate", candidate, "--rows", "2", "--json", str(file)]) == 1
    document = json.loads(file.read_text())
    assert (document["outcome"], document["race"]) == ("failed", "wrong")
    assert "COR_STRAY_WRITE" in {finding["code"] for finding in document["findings"]}


RACE = ["race", "--model", "kimi_k3"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rows", "100000"], "expected --rows from 1 to 64 (problem tiny); found 100000"),
        (["--context", "999999999999"], "expected --context from 8 to 4096 (problem tiny); found 999999999999"),
        (["--context", "7"], "expected --context from 8 to 4096"),
        (["--page-size", "999999"], "expected --page-size as one of 4, 8 (problem tiny); found 999999"),
        (["--page-size", "7"], "as one of 4, 8"),
        (["--page-size", "9999", "--problem", "verify"], "expected --page-size from 1 to 4096 (problem verify)"),
        (["--dcp", "99999"], "expected --dcp as one of 1, 2"),
        (["--dcp", "3"], "expected --dcp as one of 1, 2"),
        (["--problem", "nope"], "expected --problem as one of opening, tiny, tp8, verify, whole; found 'nope'"),
        (["--model", "nope"], "expected --model as one of kimi_k3; found 'nope'"),
        (["--target", "nope"], "expected --target as one of "),
        (["--target", "gb300"], "can be raced on, cpu, sm_90a; found 'gb300' of sm_103a"),
        (["--target", "h200", "--problem", "tiny"], "expected --problem as one of rank_kda; found 'tiny'"),
        (["--target", "h200", "--page-size", "8"], "expected --page-size as one of 32, 64 (problem rank_kda); found 8"),
        (["--target", "h200", "--context", "255"], "expected --context from 256 to 131072 (problem rank_kda)"),
        (["--target", "h200", "--rows", "65"], "expected --rows from 1 to 64 (problem rank_kda); found 65"),
        (["--candidate", f"{KIMI}.candidate.gat:candidate"], "candidate/gat.py"),
        (["--candidate", "/nowhere::a:b"], "expected PATH of '/nowhere::a:b' as a directory"),
        (["--candidate", ".::no.such:candidate"], "no/such.py"),
        (["--rows", "1,²"], "positive whole numbers"),
    ],
)
def test_a_wrong_argument_is_wrong_usage_with_its_range_and_a_file(arguments, expected, tmp_path, capsys):
    file = tmp_path / "race.json"
    assert main([*RACE, *arguments, "--json", str(file)]) == 64
    said = capsys.readouterr().err
    assert expected in said and "Traceback" not in said
    document = json.loads(file.read_text())
    assert document["outcome"] == "error" and document["findings"][0]["code"] == "WRONG_USAGE"
    assert expected in document["findings"][0]["message"]


def test_a_module_of_the_checkout_without_its_path_is_recognised(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "gate.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main([*RACE, "--candidate", "mine.gate:candidate"]) == 64
    assert "did you mean .::mine.gate:candidate?" in capsys.readouterr().err


def test_a_machine_without_the_targets_device_could_not_decide_and_says_what_it_is(tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a device")
    file = tmp_path / "race.json"
    assert main(["race", "--model", "kimi_k3", "--target", "h200", "--rows", "1", "--json", str(file)]) == 3
    said = capsys.readouterr().err
    assert "RACE_DEVICE" in said and "sm_90a" in said and "no CUDA device" in said
    assert json.loads(file.read_text())["findings"][0]["code"] == "RACE_DEVICE"


def test_what_only_the_harness_knows_about_a_problem_is_wrong_usage_too(tmp_path, capsys):
    file = tmp_path / "race.json"
    assert main([*RACE, "--problem", "tp8", "--page-size", "32", "--rows", "1", "--json", str(file)]) == 64
    assert "tensor_parallel must be one of [8], found 1" in capsys.readouterr().err
    assert "tensor_parallel" in json.loads(file.read_text())["findings"][0]["message"]


def test_a_module_that_cannot_be_imported_is_called_that(tmp_path, capsys):
    (tmp_path / "gate.py").write_text("import no_such_module\n")
    file = tmp_path / "race.json"
    assert main([*RACE, "--candidate", f"{tmp_path}::gate:candidate", "--rows", "1", "--json", str(file)]) == 1
    told = capsys.readouterr()
    assert "expected an entry point that can be imported; found ModuleNotFoundError" in told.out
    assert json.loads(file.read_text())["outcome"] == "failed"
    lines = told.err.splitlines()
    assert lines and all(" s  " in line for line in lines), "a line for each step where nobody sees a bar"


@pytest.mark.parametrize(
    ("script", "kind", "found"),
    [
        ("print('ValueError: page_size', file=sys.stderr); sys.exit(1)", GatekeeperError, "ValueError: page_size"),
        ("sys.exit(3)", Retryable, "no message"),
        ("print('{\"event\": \"error\", \"code\": \"X_Y\", \"found\": \"it\"}', file=sys.stderr); sys.exit(2)", Rejected, "it"),
        ("import os; os.kill(os.getpid(), 9)", GatekeeperError, "no message"),
    ],
)  # fmt: skip
def test_the_end_of_a_harness_carries_the_last_line_that_it_said(script, kind, found, order):
    with pytest.raises(kind) as ended:
        run(order, (sys.executable, "-c", f"import sys; sys.stdin.read(); {script}"))
    assert ended.value.found == found and (found != "no message" or "harness" in ended.value.message)


def test_a_fault_of_the_harness_is_written_too(tmp_path, monkeypatch):
    monkeypatch.setattr(race_harness.run, "__defaults__", ((sys.executable, "-c", "raise ValueError('page 7')"),))
    file = tmp_path / "race.json"
    assert main([*RACE, "--json", str(file)]) == 3
    [finding] = json.loads(file.read_text())["findings"]
    assert (finding["code"], finding["found"]) == ("RACE_HARNESS", "ValueError: page 7")


def test_a_result_that_could_not_be_written_is_refused_before_the_race(tmp_path, capsys):
    assert main(["race", "--model", "kimi_k3", "--json", str(tmp_path / "no" / "x.json")]) == 64
    said = capsys.readouterr().err
    assert "existing directory" in said and "x.json" in said


def test_a_race_by_hand_waits_for_a_probe_and_keeps_the_next_one_away(tmp_path, capsys):
    machine = Machine(tmp_path / "shared")
    racing, over = threading.Event(), threading.Event()

    def race() -> None:
        with quiet_machine(machine):
            racing.set()
            over.wait(10)

    thread = threading.Thread(target=race)
    with machine.probing():
        thread.start()
        assert not racing.wait(0.7)
    assert racing.wait(5)
    with pytest.raises(Postponed), machine.probing():
        pass
    over.set()
    thread.join(5)
    assert capsys.readouterr().err == "waiting: a probe runs or waits on this machine\n"


def test_equal_reasons_of_a_configuration_are_told_once_with_their_number():
    def reason(where, message="step 0 not written", found="step 0 not"):
        return Reason(code="COR_UNWRITTEN", outcome=RaceOutcome.WRONG, where=where, message=message,
                      expected="every step written", found=found)  # fmt: skip

    lines = reason_lines(
        [
            reason("rows=1"),
            reason("rows=8"),
            reason("rows=8", "step 0 not written, seed 0a"),
            reason("rows=8"),
            reason("rows=8", "tensor out", "step 3 not"),
        ]
    )
    assert lines == [
        "COR_UNWRITTEN at rows=1: step 0 not written; expected every step written; found step 0 not",
        "COR_UNWRITTEN at rows=8: step 0 not written; expected every step written; found step 0 not",
        "  4 times in all: tensor out; --json tells all",
    ]
