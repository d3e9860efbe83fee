"""``gatekeeper check``: exit statuses, JSON, and output that a terminal cannot be made to obey."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gatekeeper.cli import main
from gatekeeper.cli.check import EXIT_STATUS, Checked, plain_lines, run_check, show
from gatekeeper.cli.check_text import SHOWN_NOTES, SHOWN_PLACES
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
    assert "not checked here: kernel_is_right: needs a race: `gatekeeper race` runs one here" in lines


def _on_a_terminal(checked: Checked, width: int = 60) -> str:
    told = StringIO()
    show(checked, Console(file=told, force_terminal=True, color_system=None, width=width, highlight=False))
    return told.getvalue()


def test_a_missing_configuration_is_one_line_that_says_where_it_belongs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = GitBuilder(tmp_path / "r.git")
    base = bare.commit({"models/m/cand/k.py": "k\n"}, branch="main")
    bare.commit({"models/m/cand/k.py": "2\n"}, parent=base, branch="topic")
    assert main(["check", "--repo", str(bare.path), "--base", "main", "--head", "topic"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "CONFIG_MISSING" in told.err
    assert ".github/gatekeeper.toml" in told.err
    assert "--policy" in told.err


def test_a_clone_that_lacks_a_needed_object_decides_nothing(
    repo: GitBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = repo.blob("2\n")
    (repo.path / "objects" / gone[:2] / gone[2:]).unlink()
    assert main(["check", "--repo", str(repo.path), "--base", "main", "--head", "topic"]) == 3
    told = capsys.readouterr().err
    assert "ISO_SHALLOW" in told
    assert gone in told


def test_what_fails_comes_with_the_way_to_mend_it(repo: GitBuilder) -> None:
    checked = run_check(repo.path, "main", "topic")
    assert checked.outcome is Outcome.FAILED
    lines = plain_lines(checked)
    failed = [line.split(": ")[1] for line in lines if line.startswith("failed: ")]
    told = [line.removeprefix("how to fix ").split(": ")[0] for line in lines if line.startswith("how to fix ")]
    assert told == failed
    assert "manifest_is_valid" in failed
    assert any("docs/fast_track.md" in line for line in lines if line.startswith("how to fix manifest_is_valid"))
    assert "how to fix manifest_is_valid" in _on_a_terminal(checked)


@pytest.mark.parametrize(
    ("effect", "owners", "mark"),
    [
        (Effect.FAIL, (), "[fails]"),
        (Effect.FAIL, ("@a",), "[fails unless waived by @a]"),
        (Effect.HOLD, (), "[waits for a person]"),
        (Effect.HOLD, ("@a", "@b"), "[waits for @a or @b]"),
        (Effect.HOLD, tuple(f"@o{n}" for n in range(20)), "[waits for @o0 or @o1 or @o2 or 17 others]"),
        (Effect.NOTE, ("@a",), "[note]"),
    ],
)
def test_each_finding_says_what_it_does_and_who_could_let_it_pass(
    repo: GitBuilder, effect: Effect, owners: tuple[str, ...], mark: str
) -> None:
    finding = Finding(code="ISO_X", message="m", effect=effect, waivable_by=owners)
    checked = _checked(repo, _result(Outcome.FAILED, findings=(finding,)))
    assert any(line.endswith(mark) for line in plain_lines(checked))
    assert mark[1:-1] in _on_a_terminal(checked, width=200)


def test_notes_alike_never_bury_what_matters(repo: GitBuilder) -> None:
    notes = [Finding(code="ISO_N", message="n", path=f"a/{n}.py", effect=Effect.NOTE) for n in range(57)]
    fails = [Finding(code="ISO_F", message="f", path=f"b/{n}.py", found=f"b/{n}.py") for n in range(30)]
    checked = _checked(repo, _result(Outcome.FAILED, findings=(*notes, *fails)))
    plain = plain_lines(checked)
    assert sum("ISO_N a/" in line for line in plain) == SHOWN_NOTES
    assert sum("ISO_F b/" in line for line in plain) == 30
    assert "  ISO_N: 54 more notes of this code; --json tells all [note]" in plain
    shown = _on_a_terminal(checked)
    assert (shown.count("a/"), shown.count("b/")) == (SHOWN_NOTES, SHOWN_PLACES)
    assert f"and {57 - SHOWN_NOTES} more places" in shown
    assert f"and {30 - SHOWN_PLACES} more places" in shown
    assert (shown.count("ISO_N"), shown.count("ISO_F")) == (1, 1)


def test_on_a_terminal_a_path_stays_in_one_piece_and_controls_are_spelt_out(repo: GitBuilder) -> None:
    path = "/".join(["a_directory_with_a_long_name"] * 5) + "/kernel.py"
    finding = Finding(code="ISO_X", message="m\x1b[2J", expected="[red]e", found="f\x07", path=path, line=7)
    shown = _on_a_terminal(_checked(repo, _result(Outcome.FAILED, findings=(finding,))))
    assert f"    {path}:7\n" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "expected: [red]e" in shown


def test_a_static_check_does_not_load_what_only_races_need() -> None:
    asked = "import sys, gatekeeper.cli.check as check; check.open_named_book('default'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert "policies.merge.kernel_is_faster" in loaded
    assert not {"numpy", "scipy", "torch"} & set(loaded)
