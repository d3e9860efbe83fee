"""``gatekeeper check``: exit statuses, JSON, and output that a terminal cannot be made to obey."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gatekeeper.cli import main
from gatekeeper.cli.check import EXIT_STATUS, Checked, plain_lines, run_check
from gatekeeper.domain.policy import (
    ApprovalRequirement,
    Check,
    Effect,
    Finding,
    Outcome,
    PolicyResult,
    Severity,
)
from tests.git_builder import GitBuilder

DIGEST = "sha256:" + "0" * 64
RULES = 'schema = 1\n[[models]]\nname = "m"\nroot = "models/m"\nfree = ["cand"]\n'


@pytest.fixture
def repo(tmp_path: Path) -> GitBuilder:
    made = GitBuilder(tmp_path / "r.git")
    base = made.commit({".github/gatekeeper.toml": RULES, "models/m/cand/k.py": "k\n"}, branch="main")
    made.commit({"models/m/cand/k.py": "2\n"}, parent=base, branch="topic")
    return made


def _result(outcome: Outcome | None, **more: object) -> PolicyResult:
    values = {"policy": "p", "check": Check.SCOPE, "severity": Severity.BLOCKING, "title": "t", "summary": "s"}
    return PolicyResult.model_validate({**values, "outcome": outcome, "parameters": DIGEST, **more})


def _checked(repo: GitBuilder, *results: PolicyResult) -> Checked:
    return Checked(run_check(repo.path, "main", "topic").snapshot, results, ("kernel_is_right",))


def test_wrong_usage_is_64_and_an_unknown_revision_is_3(repo: GitBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--repo", str(repo.path)]) == 64
    assert main(["check", "--repo", str(repo.path), "--base", "main", "--head", "nope"]) == 3
    assert "LOCAL_REVISION" in capsys.readouterr().err


def test_json_has_the_promised_shape_and_the_status_follows_the_outcome(
    repo: GitBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["check", "--repo", str(repo.path), "--base", "main", "--head", "topic", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert status == EXIT_STATUS[Outcome(document["outcome"])]
    assert isinstance(document["findings"], list)
    assert "kernel_is_right" in document["not_checked"]


def test_a_faulty_policy_file_cannot_be_decided(repo: GitBuilder, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("nonsense = 1\n")
    arguments = [
        "check",
        "--repo",
        str(repo.path),
        "--base",
        "main",
        "--head",
        "topic",
        "--policy",
        str(tmp_path / "p.toml"),
    ]
    assert main(arguments) == 3


def test_outcomes(repo: GitBuilder) -> None:
    hold = Finding(code="ISO_X", message="m", effect=Effect.HOLD)
    wants = _result(Outcome.PENDING, requirements=(ApprovalRequirement(head_sha="1" * 40, author="a"),))
    assert _checked(repo).outcome is Outcome.ERROR
    assert _checked(repo, _result(None)).outcome is Outcome.ERROR
    assert _checked(repo, _result(Outcome.PASSED), _result(None)).outcome is Outcome.PASSED
    assert _checked(repo, wants).outcome is Outcome.PASSED
    assert _checked(repo, _result(Outcome.PENDING, findings=(hold,))).outcome is Outcome.PENDING
    assert _checked(repo, _result(Outcome.PASSED), _result(Outcome.FAILED)).outcome is Outcome.FAILED
    advisory = _result(Outcome.FAILED, severity=Severity.ADVISORY)
    assert _checked(repo, _result(Outcome.PASSED), advisory).outcome is Outcome.PASSED


def test_control_characters_never_reach_a_terminal(repo: GitBuilder) -> None:
    evil = Finding(code="ISO_X", message="a\x1b[2Jb", path="k\\x0a.py", line=3)
    lines = plain_lines(_checked(repo, _result(Outcome.FAILED, findings=(evil,))))
    assert all(line.isprintable() for line in lines)
    assert any("ISO_X k\\x0a.py:3: a\\x1b[2Jb" in line for line in lines)
    assert "not checked here: kernel_is_right: needs evidence" in lines
