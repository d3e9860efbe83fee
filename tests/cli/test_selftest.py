"""``gatekeeper selftest``: what it refuses, what it writes, and its exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gatekeeper.cli import main, selftest
from gatekeeper.domain.planted import Answer, Planted, read_index

LINES = """mutants = [
  { name = "fault", at = "states:fault", kind = "fault", expected = "wrong", seen_by = "chain", class = "6" },
  { name = "twin", at = "controls:twin", kind = "honest", expected = "right", seen_by = "chain", class = "order" },
]"""


def got(**outcomes: str) -> dict[str, Answer]:
    codes = {"wrong": ("COR_MISMATCH",)}
    return {n: Answer(name=n, outcome=o, codes=codes.get(o, ()), seconds=1.0) for n, o in outcomes.items()}


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        (got(fault="wrong", twin="right"), 0),
        (got(fault="right", twin="right"), 1),
        (got(fault="wrong", twin="wrong"), 1),
        (got(fault="void", twin="right"), 3),
        (got(fault="void", twin="wrong"), 1),
    ],
)
def test_the_status_is_0_only_if_everything_is_as_it_must_be(answers: dict[str, Answer], status: int) -> None:
    corpus = read_index(LINES, "index.toml")
    assert selftest.status_of(corpus, answers) == status
    document = selftest.document(corpus, answers, status, 2.0)
    assert document["outcome"] == {0: "passed", 1: "failed", 3: "error"}[status]
    surprises = [line["surprise"] for line in document["mutants"]]  # type: ignore[attr-defined]
    assert (surprises == [None, None]) == (status == 0)


@pytest.mark.parametrize(
    "arguments", [["--model", "none"], ["--target", "none"], ["--only", "nobody"], ["--json", "/nowhere/x.json"]]
)
def test_wrong_usage_exits_with_64(arguments: list[str]) -> None:
    assert main(["selftest", *arguments]) == 64


def test_a_void_race_is_repeated_and_then_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def void(planted: Planted, _order: object) -> Answer:
        asked.append(planted.name)
        return Answer(name=planted.name, outcome="void", codes=(), seconds=0)

    monkeypatch.setattr(selftest, "_once", void)
    monkeypatch.setattr(selftest, "order", lambda *_a, **_k: None)
    planted = read_index(LINES, "index.toml")[0]
    assert selftest.judged(planted, None, None, quick=True).outcome == "void"  # type: ignore[arg-type]
    assert asked == ["fault"] * selftest.TRIES


def test_a_planted_fault_is_stopped_and_its_honest_twin_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "selftest.json"
    names = ["null_slot_written", "core_in_float64"]
    assert (
        main(["selftest", "--quick", "--json", str(file), *(part for name in names for part in ("--only", name))]) == 0
    )
    document = json.loads(file.read_text())
    assert document["outcome"] == "passed"
    assert {line["name"]: line["got"] for line in document["mutants"]} == dict(
        zip(names, ("wrong", "right"), strict=True)
    )
    assert "COR_STRAY_WRITE" in document["mutants"][0]["codes"]
    shown = capsys.readouterr().out
    assert "ok  null_slot_written" in shown and "as it must be" in shown
