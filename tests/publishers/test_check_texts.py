"""What people read in checks, as it was agreed, and that nothing from outside works as Markdown or as a command in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatekeeper import texts
from gatekeeper.domain.policy import Check, Outcome
from gatekeeper.publishers import check_texts
from gatekeeper.publishers.checks import waits_for_people, wanted_runs
from gatekeeper.publishers.wanted import Wanted
from tests.publishers.test_checks import APPROVAL, PROBE, findings, result, shot, verdict

AGREED = Path(__file__).parent / "texts"
PAGE = "https://gate.example/pulls/acme/kernels/1"
FAILED = verdict(result(Check.ISOLATION, Outcome.FAILED, findings=findings(2)))
WAITING = verdict(result(Check.BENCHMARKS, Outcome.PENDING, APPROVAL, PROBE))


def whole(run: Wanted) -> str:
    """Return a run as one page: what is in its fields, in the order in which GitHub shows them."""
    beside = "\n".join(
        f"{each['annotation_level']} {each['path']}:{each['start_line']} {each['title']}\n{each['message']}\n"
        for each in run.annotations
    )
    said = f"{run.name}: {run.conclusion or 'in progress'}"
    return f"{said}\n# {run.title}\n\n{run.summary}\n\n---\n\n{run.text}\n\n{beside}".strip() + "\n"


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("run_verdict_failed", wanted_runs(shot(), FAILED, [shot()], PAGE)[4]),
        ("run_isolation_failed", wanted_runs(shot(), FAILED, [shot()], PAGE)[0]),
        ("run_verdict_waits", wanted_runs(shot(), WAITING, [shot()], PAGE)[4]),
        ("run_verdict_shared", wanted_runs(shot(), verdict(mode="warn"), [shot(), shot(12)], PAGE)[4]),
    ],
)
def test_runs_read_as_they_were_agreed(name: str, run: Wanted) -> None:
    assert whole(run) == (AGREED / f"{name}.md").read_text(encoding="utf-8")


def test_runs_without_a_verdict_read_as_they_were_agreed() -> None:
    said = {
        "announcement": check_texts.announcement(PAGE),
        "superseded": check_texts.superseded("b" * 40),
        "closed": check_texts.closed(),
        "silenced": check_texts.silenced(),
        "unshown": check_texts.unshown(PAGE),
        "stripped": ("", check_texts.stripped(PAGE)),
    }
    page = "\n".join(f"# {name}: {title}\n\n{summary}\n" for name, (title, summary) in said.items())
    assert page == (AGREED / "runs_without_a_verdict.md").read_text(encoding="utf-8")


def test_who_is_waited_for() -> None:
    assert waits_for_people(WAITING)
    assert not waits_for_people(verdict(result(Check.BENCHMARKS, Outcome.PENDING, PROBE)))
    assert not waits_for_people(verdict())


@pytest.mark.parametrize("branch", ["main; rm -rf /", "$(id)", "`id`", "a'b", "x\n```\n# y"])
def test_a_branch_name_is_no_command(branch: str) -> None:
    guidance = check_texts.check_guidance(verdict(), None, branch)
    assert guidance.count("```") == 2 and guidance.endswith("```")
    line = guidance.splitlines()[3]
    word = line.removeprefix("gatekeeper check --repo . --base ").removesuffix(" --head HEAD")
    assert word.startswith("'") and word.endswith("'") and word.count("'") == 2 and "`" not in word


@pytest.mark.parametrize("length", [0, 100, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("text", ["a line of text\n", "\u2603", "\U0001f680 x\n", "x"])
def test_texts_fit_in_bytes_and_end_in_whole_characters(text: str, length: int) -> None:
    long = (text * (length // len(text) + 1))[:length]
    shown = texts.fit(long)
    assert len(shown.encode()) <= texts.GITHUB_SUMMARY_LIMIT and "\ufffd" not in shown
    assert shown == long or shown.endswith("shows all of it.")
    short = texts.fit(long, 50)
    assert len(short.encode()) <= 50 and (short == long or short.endswith("..."))


def test_an_open_block_of_code_is_closed_where_it_is_cut() -> None:
    shown = texts.fit("```\n" + "x = 1\n" * 20_000 + "```\n")
    assert shown.count("```") == 2 and shown.index("```", 3) < shown.index("The rest does not fit")


def test_what_json_and_databases_cannot_hold_is_replaced() -> None:
    assert texts.printable("a\x00b\x1b[31m\ud800\ttab\nline") == "a\ufffdb\ufffd[31m\ufffd\ttab\nline"
