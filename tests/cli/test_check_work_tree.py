"""``gatekeeper check`` judges commits, and says what lies beside them in the work tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gatekeeper.cli import main
from gatekeeper.cli.check import run_check
from gatekeeper.git.worktree import WorkTree
from tests.checkout import checkout, git, put

RULES = 'schema = 1\n[[models]]\nname = "m"\nroot = "models/m"\nfree = ["fast"]\n'
BASE = {".github/gatekeeper.toml": RULES, "a.py": "1\n", "b.py": "2\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = checkout(tmp_path / "r", BASE)
    put(made, "a.py", "3\n")
    git(made, "commit", "-am", "change")
    return made


def test_what_is_not_committed_is_named_and_not_judged(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--repo", str(repo), "--base", "main", "--head"]
    assert run_check(repo, "main", "topic").uncommitted == ()
    put(repo, "b.py", "4\n")
    put(repo, "new/evil\x1b[2J.py", "5\n")
    put(repo, "models/m/fast/k.py", "6\n")
    git(repo, "add", "models")
    assert main([*arguments, "HEAD", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["uncommitted"] == ["b.py", "models/m/fast/k.py", "new/"]
    assert document["findings"] == []
    assert main([*arguments, "topic"]) == 0
    assert "not committed, so not checked: b.py, models/m/fast/k.py, new/" in capsys.readouterr().out.splitlines()
    git(repo, "add", "new")
    assert WorkTree(repo).uncommitted()[-1] == "new/evil\\x1b[2J.py"


def test_only_the_first_few_are_named(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(7):
        put(repo, f"n{number}.py", "")
    assert main(["check", "--repo", str(repo), "--base", "main", "--head", "HEAD"]) == 0
    assert "n4.py and 2 more" in capsys.readouterr().out


def test_a_work_tree_that_shows_another_commit_says_nothing(repo: Path) -> None:
    put(repo, "b.py", "4\n")
    git(repo, "branch", "other", "topic~1")
    put(repo, ".git/info/exclude", "*.pyc\n")
    assert run_check(repo, "topic", "other").uncommitted == ()
    git(repo, "checkout", "--quiet", "--", ".")
    put(repo, "ignored.pyc", "")
    assert run_check(repo, "main", "HEAD").uncommitted == ()
    git(repo, "config", "--replace-all", "core.bare", "true")
    assert run_check(repo / ".git", "main", "topic").uncommitted == ()
