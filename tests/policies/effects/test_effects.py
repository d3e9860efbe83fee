"""The policy `effects`: each row gets its code and its line of text, each twin and all honest code passes; nothing is told twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper.domain.policy import Effect, Outcome
from gatekeeper.domain.zone_code import read_code
from policies.merge import effects
from tests.git_builder import Content, GitBuilder
from tests.policies.effects.rows import HONEST, LOAD, ROWS, UNREAD
from tests.policies.isolation.scenes import BASE, HOOK, INSIDE, Answer, judge, start, waiver

PATH = "kernels/cand/act.py"
BATTERY = {"eff-patch-on-import", "eff-patch-indirect", "eff-aten-override", "eff-global-mode", "eff-torch-globals",
           "eff-import-hooks", "eff-package-walk", "eff-pickle-config", "eff-dynamic-code", "eff-late-trigger",
           "eff-threads-left"}  # fmt: skip
"""Rows that text can show. Rows about names and types of files are isolation's: ``tests/policies/isolation/attacks.py``."""


def codes(text: str) -> set[str]:
    found = read_code(text.encode(), PATH, "kernels.cand")
    return {each.code for each in found.seen} | ({UNREAD} if found.unread else set())


def test_every_row_of_the_battery_that_text_can_show_is_here() -> None:
    assert {name.split()[0] for name in ROWS if name.startswith("eff-")} == BATTERY


def test_there_is_no_false_pass_and_no_false_block_over_all_rows() -> None:
    passed = [name for name, (code, trick, _) in ROWS.items() if code not in codes(trick)]
    blocked = [name for name, (_, _, twin) in ROWS.items() if codes(twin)]
    assert (passed, blocked) == ([], [])
    assert {name: codes(text) for name, text in HONEST.items() if codes(text)} == {}


def change(folder: Path, files: dict[str, Content], **arguments) -> Answer:
    git, base = start(folder)
    return judge(git.path, base, git.commit({**INSIDE, **files}, parent=base), **arguments)


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("eff-") or ROWS[name][0] == UNREAD])
def test_rows_as_pull_requests(name: str, tmp_path: Path) -> None:
    code, trick, twin = ROWS[name]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    answer = change(tmp_path / "a", {PATH: trick})
    (finding, *_) = answer.find(code, PATH)
    assert answer.outcome is (Outcome.FAILED if code == LOAD else Outcome.PENDING), answer.findings
    assert finding.waivable_by and (finding.line or code == UNREAD)
    assert change(tmp_path / "b", {PATH: twin}).outcome is Outcome.PASSED


def test_one_statement_is_told_by_one_policy(tmp_path: Path) -> None:
    """`effects` says what code does, `isolation` where it reaches by import and with which letters it is written."""
    text = "import core.a\ncore.a.value_1 = 2\nfrom others.cand import k\nv\u0430lue = 1\n"
    answer = change(tmp_path, {PATH: text})
    told = sorted((finding.code, finding.line) for finding in answer.findings)
    assert told == [("ISO_FOREIGN_MUTATION", 2), ("ISO_PRIVATE_IMPORT", 3), ("SRC_HIDDEN_TEXT", 4)]


def guarded(line: str) -> str:
    start = "import core.a\nfrom kernels.cand.gate import enabled\n"
    body = HOOK.removeprefix("import core.a\n").replace(
        "        y = core.a.run(x)\n", f"        if enabled(x):\n            {line}\n        y = core.a.run(x)\n"
    )
    return start + body


def test_what_hooks_do_behind_the_guard_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    answer = change(tmp_path / "a", {"kernels/hook.py": guarded("core.a.value_1 = 2")})
    assert answer.find("ISO_FOREIGN_MUTATION", "kernels/hook.py") and answer.outcome is Outcome.PENDING
    twin = change(tmp_path / "b", {"kernels/hook.py": guarded("return core.a.run(x)")})
    assert twin.outcome is Outcome.PASSED, twin.findings


def test_what_the_stock_hook_did_before_is_not_this_changes_doing(tmp_path: Path) -> None:
    git, base = start(tmp_path)
    old = HOOK + "\n\ncore.a.value_1 = 2\n"
    before = git.commit({"kernels/hook.py": old}, parent=base)
    after = "# a comment\n" + old
    assert (
        judge(git.path, before, git.commit({**INSIDE, "kernels/hook.py": after}, parent=before)).outcome
        is Outcome.PASSED
    )


def test_a_waiver_for_this_policy_counts_and_one_for_isolation_does_not(tmp_path: Path) -> None:
    git, base = start(tmp_path)
    head = git.commit({**INSIDE, PATH: ROWS["eff-patch-on-import"][1]}, parent=base)
    code = "ISO_FOREIGN_MUTATION"
    assert (
        judge(git.path, base, head, evidence=[waiver(head, code, "olga", policy="effects")]).outcome is Outcome.PASSED
    )
    other = judge(git.path, base, head, evidence=[waiver(head, code, "olga", policy="isolation")])
    assert other.outcome is Outcome.PENDING


def test_too_many_files_to_read_are_held_and_not_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_file", None)  # reading one would raise
    git, base = start(tmp_path)
    head = git.commit({**INSIDE, **{f"kernels/cand/n{n}.py": "x = 1\n" for n in range(3)}}, parent=base)
    answer = judge(git.path, base, head, effects={"max_files": 3})
    assert answer.outcome is Outcome.PENDING and [each.expected for each in answer.find(UNREAD)] == [
        "at most 3 changed files"
    ]


def test_a_file_too_large_to_read_is_held(tmp_path: Path) -> None:
    answer = change(tmp_path, {PATH: "x = 1\n" * 100}, effects={"max_file_bytes": 599})
    assert [each.found for each in answer.find(UNREAD, PATH)] == ["600 bytes"]


def test_a_set_says_which_codes_fail(tmp_path: Path) -> None:
    git, base = start(tmp_path)
    head = git.commit({**INSIDE, PATH: "exec('1')\n"}, parent=base)
    strict = judge(git.path, base, head, effects={"refuse": ["SRC_DYNAMIC_CODE"]})
    assert strict.outcome is Outcome.FAILED and strict.find("SRC_DYNAMIC_CODE")[0].effect is Effect.FAIL
    assert judge(git.path, base, head).outcome is Outcome.PENDING


def test_many_findings_are_cut_and_the_cut_keeps_the_worst(tmp_path: Path) -> None:
    lines = [f"core.a.value_{n} = {n}" for n in range(30)]
    files: dict[str, Content] = {PATH: "import core.a, pickle\n" + "\n".join(lines) + "\npickle.load(None)\n"}
    answer = change(tmp_path, files, effects={"max_findings": 10})
    assert len(answer.findings) == 11 and answer.outcome is Outcome.FAILED
    (rest,) = answer.find("EFF_MORE_FINDINGS")
    assert rest.found == "31"


def test_where_no_listed_directory_is_touched_there_is_nothing_to_read(tmp_path: Path) -> None:
    git: GitBuilder
    git, base = start(tmp_path)
    ordinary = judge(git.path, base, git.commit({"core/a.py": "exec('1')\n"}, parent=base))
    assert ordinary.outcome is Outcome.PASSED
    odd = judge(git.path, base, git.commit({"core/fast_track.toml": BASE["kernels/cand/fast_track.toml"]}, parent=base))
    assert not odd.find("EFF_NOT_READ")
