"""What the README promises at its top: terms explained where they first stand, what races today, and a verdict as it really is."""

from __future__ import annotations

import re
from pathlib import Path

from gatekeeper.cli.check import run_check
from gatekeeper.cli.demo_text import verdicts
from gatekeeper.demo.pulls import sample_pulls
from gatekeeper.demo.run import Answer
from gatekeeper.demo.upstream import build

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
TOP = README.partition("## How it works")[0]


def test_what_races_today_and_what_it_costs_stand_before_how_it_works() -> None:
    assert "Only the CPU races today" in TOP.partition("## Two commands")[0]
    assert re.search(r"set-up, once \| \d+ s", TOP) and re.search(r"`make demo` \| \d+ s", TOP) and "GB" in TOP


def test_terms_are_explained_where_they_first_stand() -> None:
    for term in ("specialised directory", "mandatory features", "stock path"):
        assert README.index(f"*{term}*") == README.index(term) - 1
    assert "`kimi_k3`, is " in TOP


def test_the_example_is_what_the_demonstration_says(tmp_path: Path) -> None:
    example = next(block for block in re.findall(r"```\n(.*?)```", TOP, re.S) if block.startswith("#"))
    pull = sample_pulls()[1]
    built = build(tmp_path / "up.git", {pull.number: (pull.title, pull.changes)})
    checked = run_check(built.path, "main", built.heads[pull.number])
    findings = [f.model_dump(mode="json") for r in checked.results for f in r.findings if r.policy == "isolation"]
    checks = [{"check": "isolation", "outcome": "failed", "policies": [{"findings": findings}]}]
    answer = Answer(pull, {"outcome": "failed", "verdict": "1", "checks": checks, "jobs": []})
    shown = [str(getattr(block, "renderable", block)) for block in verdicts([answer], 80)]
    lines = [line.strip() for line in example.splitlines()]
    assert lines[:4] == [line.strip() for line in shown if line]
