"""The demonstration's table can be read and copied at every width, and its progress tells waiting from running."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from gatekeeper.cli import demo_text
from gatekeeper.cli.demo_text import SHOWN_LETTERS, WIDE, Progress, state_of, verdicts
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import Answer

CODES = ("BENCH_NOT_COMPARED", "SCOPE_FEATURE_UNJUDGED", "COR_MISMATCH")
LONG = "an answer of every configuration that the manifest of this directory advertises, " * 8


def page(*codes: str, **more: object) -> dict[str, object]:
    findings = [
        {"code": code, "expected": LONG, "found": "0.3", "effect": "fail", "path": "vllm/core/scheduler.py", "line": 12}
        for code in codes
    ]
    checks = [{"check": "contributor-log", "outcome": "failed", "policies": [{"findings": findings}], "summary": "s"}]
    return {"outcome": "failed" if codes else "passed", "verdict": "1", "headline": "passed: all", "jobs": [],
            "checks": checks if codes else [], **more}  # fmt: skip


def shown(width: int) -> list[str]:
    answers = [Answer(pull, page(*CODES) if pull.expected == "failed" else page()) for pull in sample_pulls()]
    console = Console(file=StringIO(), width=width)
    for block in verdicts(answers, width):
        console.print(block, highlight=False)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_codes_are_whole_and_each_pull_request_has_a_line_of_its_own(width: int) -> None:
    lines = shown(width)
    assert all(len(line) <= width for line in lines)
    failed = [pull for pull in sample_pulls() if pull.expected == "failed"]
    for code in CODES[:2]:
        assert sum(code in line.split() for line in lines) == len(failed)
    for pull in sample_pulls():
        assert sum(line.startswith(f"#{pull.number} {pull.title[:30]}") for line in lines) == 1
    assert len(lines) < 130 and not any(LONG in line for line in lines)
    assert "(vllm/core/scheduler.py:12)" in "".join(line.strip() for line in lines)


def test_beside_each_other_where_there_is_room_and_under_each_other_where_not() -> None:
    row = {width: next(line for line in shown(width) if CODES[0] in line) for width in (WIDE - 1, WIDE)}
    assert "expected" not in row[WIDE - 1] and "expected" in row[WIDE] and "found" in row[WIDE]
    assert any("..." in line for line in shown(80)), f"cut after {SHOWN_LETTERS} letters"


def test_waiting_and_running_differ_and_show_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(demo_text.time, "monotonic", lambda: now[0])
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    progress = Progress(console)
    running, waiting = ({"jobs": [{"kind": "race", "state": state}]} for state in ("running", "queued"))
    progress.show({1: running, 2: waiting, 3: page()})
    now[0] += 83.0
    console.print(progress)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("1:23 since") and all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("#1 ") and lines[1].split()[-3:] == ["running", "race", "1:23"]
    assert lines[2].startswith("#2 ") and lines[2].split()[-3:] == ["waiting", "race", "1:23"]
    assert lines[3].split()[-1] == "passed"
    assert state_of({"jobs": [waiting["jobs"][0], running["jobs"][0]]}) == ("running", "race")


def test_a_pipe_gets_a_line_for_each_change() -> None:
    console = Console(file=StringIO(), width=150)
    progress = Progress(console)
    for state in ("queued", "queued", "running"):
        progress.show({7: {"jobs": [{"kind": "probe", "state": state}]}})
    said = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split("s  ")[1] for line in said] == ["#7: waiting: probe", "#7: running: probe"]
