"""Each publisher, twice over the same verdict: one visible result."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gatekeeper import texts
from gatekeeper.domain.policy import Check, Outcome
from gatekeeper.domain.verdict import Verdict, decide
from gatekeeper.publishers.log import LogPublisher
from gatekeeper.publishers.page import PagePublisher
from tests.web import seed


def failed() -> Verdict:
    shot = seed.snapshot(2, "t")
    results = (
        seed.result(Check.ISOLATION, Outcome.FAILED, "2 changes are outside", (seed.OUTSIDE, seed.HOOK)),
        *(seed.result(check) for check in list(Check)[1:]),
    )
    return decide(
        snapshot=shot.digest(), policy_set=seed.SET, policy_set_name="demo", evidence=(), results=results, supersedes=None,
        now=seed.NOW,
    )  # fmt: skip


def test_the_log_says_a_verdict_once() -> None:
    verdict, publisher = failed(), LogPublisher()
    with capture_logs() as records:
        external = publisher.publish(seed.snapshot(2, "t"), verdict.digest(), verdict, {})
        again = publisher.publish(seed.snapshot(2, "t"), verdict.digest(), verdict, external)
    assert again == external == {"digest": verdict.digest()}
    assert len(records) == 1
    assert records[0]["text"] == "demo/vllm#2 failed: isolation, 2 findings (ISO_HOOK_UNGUARDED, ISO_PATH_OUTSIDE)"
    assert (records[0]["log_level"], records[0]["isolation"], records[0]["contributor_log"]) == (
        "warning",
        "failed",
        "passed",
    )


@pytest.mark.parametrize("base", ["https://gate.example", "https://gate.example/"])
def test_the_page_has_one_address(base: str) -> None:
    verdict, publisher = failed(), PagePublisher(base)
    first = publisher.publish(seed.snapshot(2, "t"), verdict.digest(), verdict, {})
    assert publisher.publish(seed.snapshot(2, "t"), verdict.digest(), verdict, first) == first
    assert first["url"] == "https://gate.example/pulls/demo/vllm/2" and first["outcome"] == "failed"


def documentation_only() -> Verdict:
    shot = seed.snapshot(6, "t")
    results = (
        seed.result(Check.ISOLATION, summary="no specialised tree touched"),
        *(seed.result(check, None, "no specialised tree touched") for check in (Check.SCOPE, Check.BENCHMARKS)),
    )
    return decide(
        snapshot=shot.digest(), policy_set=seed.SET, policy_set_name="demo", evidence=(), results=results, supersedes=None,
        now=seed.NOW,
    )  # fmt: skip


def test_a_check_that_had_nothing_to_judge_is_not_told_as_one_that_passed() -> None:
    verdict = documentation_only()
    assert verdict.outcome is Outcome.PASSED and all(check.outcome is Outcome.PASSED for check in verdict.checks)
    assert texts.verdict_title(verdict) == "passed: isolation; nothing to judge: scope, benchmarks, contributor log"
    assert [texts.check_title(check) for check in verdict.checks] == [
        "Isolation passed", "Scope: nothing to judge", "Benchmarks: nothing to judge", "Contributor log: nothing to judge",
    ]  # fmt: skip
    assert "No policy of this policy set asks for a contributor log." in texts.check_summary(
        verdict, Check.CONTRIBUTOR_LOG
    )
    assert "so this says nothing about the change" in texts.check_summary(verdict, Check.SCOPE)
    assert "| Scope | – nothing to judge |" in texts.verdict_summary(verdict)


SNAPSHOTS = Path(__file__).parent / "texts"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("verdict_failed", texts.verdict_summary(failed(), page="https://gate.example/pulls/demo/vllm/2")),
        ("check_failed", texts.check_summary(failed(), Check.ISOLATION)),
        ("check_passed", texts.check_summary(failed(), Check.SCOPE)),
    ],
)
def test_texts_read_as_they_were_agreed(name: str, text: str) -> None:
    assert text + "\n" == (SNAPSHOTS / f"{name}.md").read_text(encoding="utf-8")


def test_a_sentence_leaves_names_as_they_are() -> None:
    told = {"cpu, rows=1: too large": "cpu, rows=1: too large.", "on cpu: wrong": "On cpu: wrong.", "gone.": "Gone."}
    assert {text: texts.sentence(text) for text in told} == told


def test_titles() -> None:
    verdict = failed()
    assert texts.verdict_title(verdict) == "failed: isolation, 2 findings"
    assert [texts.check_title(check) for check in verdict.checks] == [
        "Isolation failed", "Scope passed", "Benchmarks passed", "Contributor log passed",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["a`b", "``", "`", "a\n# b", "<b>|x|</b>", "@everyone"])
def test_text_from_outside_stays_in_its_code_span(text: str) -> None:
    shown = texts.code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    inner = shown[len(fence) : -len(fence)]
    assert fence and fence not in inner.replace("`" * (len(fence) + 1), "") and "\n" not in shown
    assert not texts.plain("@everyone <b> [x](y)").replace("\\", "").startswith("@e")


def test_long_texts_are_cut_at_a_line() -> None:
    text = texts.cut("line of text\n" * 10_000)
    assert len(text) <= texts.GITHUB_SUMMARY_LIMIT and text.endswith("shows all of it.")
