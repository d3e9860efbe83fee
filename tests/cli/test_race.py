"""``gatekeeper race``: what it refuses, what it writes, and its exit statuses."""

from __future__ import annotations

import json
import threading

import click
import pytest

from gatekeeper.backends.machine import Machine
from gatekeeper.cli import main
from gatekeeper.cli.race import EXIT, quiet_machine, row_counts, source
from gatekeeper.domain.errors import Postponed
from gatekeeper.domain.race import InstalledSource, LocalSource, RaceOutcome

KIMI = "kernels_under_test.kimi_k3"


def test_a_spec_is_a_module_or_a_path_and_a_module(tmp_path):
    assert source("a.b:c") == InstalledSource(entry_point="a.b:c")
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


def test_code_that_is_not_there_could_not_be_decided(tmp_path):
    assert main(["race", "--model", "kimi_k3", "--candidate", f"{tmp_path}/no::a:b", "--rows", "1"]) == 3


def test_a_result_that_could_not_be_written_is_refused_before_the_race(tmp_path, capsys):
    assert main(["race", "--model", "kimi_k3", "--json", str(tmp_path / "no" / "x.json")]) == 64
    said = capsys.readouterr().err
    assert "existing directory" in said and "x.json" in said


def test_a_refusal_of_the_harness_is_told_once(capsys):
    assert main(["race", "--model", "kimi_k3", "--problem", "huge"]) == 3
    said = capsys.readouterr().err
    assert said.count("RACE_MODEL") == 1 and said.count("expected") == 1 and "huge" in said


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
