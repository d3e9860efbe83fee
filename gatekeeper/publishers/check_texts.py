"""What only stands in GitHub's checks: titles and summaries of runs without a verdict, guidance, and findings beside their lines.

The rest of the words are in :mod:`gatekeeper.texts`. Pure functions, snapshot-tested.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gatekeeper.domain.policy import Check, Finding, Severity
from gatekeeper.domain.refusals import ENGINE, INTAKE
from gatekeeper.domain.verdict import Verdict
from gatekeeper.texts import code, failing, fit, next_step_plainly, sentence

NO_POLICIES = (ENGINE, INTAKE)
"""What stands in the place of a policy where none has spoken."""
CHECK_TITLE_LIMIT = 250
"""Characters of a check run's title; GitHub gives no figure, and longer ones do not fit its lists."""
ANNOTATION_LIMIT = 16 * 1024
"""Bytes of an annotation's message; GitHub takes 64 KiB, nobody reads that beside a line."""
ANNOTATION_TITLE_LIMIT = 200


def announcement(page: str) -> tuple[str, str]:
    """Return title and summary of the verdict's check while a head is being judged."""
    return (
        "gatekeeper is judging this head",
        "The policies read the change first; a probe and a race may follow, and those take a while. Nothing has to be done "
        f"for that. [What is happening now]({page})",
    )


def superseded(head_sha: str) -> tuple[str, str]:
    """Return title and summary of a check that was not finished when a newer head came."""
    return "a newer head is judged instead", f"This head was not judged to the end: {code(head_sha[:12])} was pushed."


def closed() -> tuple[str, str]:
    """Return title and summary of a check that was not finished when its pull request was closed."""
    return (
        "the pull request was closed",
        "This head was not judged to the end, because its pull request was closed. Reopening it starts again.",
    )


def silenced() -> tuple[str, str]:
    """Return title and summary of a check that was begun before the repository chose the shadow mode."""
    return (
        "shadow mode: nothing is shown here",
        "This repository now runs in shadow mode: verdicts are recorded and not shown.",
    )


def unshown(page: str) -> tuple[str, str]:
    """Return title and summary of a verdict whose text could not be made or was not taken: doubt blocks, and says so."""
    return (
        "gatekeeper could not decide: its answer could not be shown",
        f"Nothing in the pull request has to be changed for this; the operators have to look. [What is known]({page})",
    )


def stripped(page: str) -> str:
    """Return the summary of a check whose full text GitHub did not take."""
    return f"The full text could not be shown here. [It stands on the page of this pull request]({page})."


def shared_head(numbers: Sequence[int], number: int) -> str:
    """Return the remark of a commit that is the head of several pull requests: a check belongs to a commit, not to one of them."""
    others = ", ".join(f"#{each}" for each in numbers)
    return f"This commit is the head of {others}. A check belongs to a commit, so the hardest verdict is shown: that of #{number}."


def check_guidance(verdict: Verdict, check: Check | None, base_ref: str) -> str:
    """Return the text below a summary: how to see the same answer before pushing, and what each rule asks for.

    Args:
        verdict: the verdict.
        check: one of the four checks, or None for the verdict as a whole.
        base_ref: name of the base branch.
    """
    results = [each for each in verdict.results if check in (None, each.check) and each.severity is not Severity.OFF]
    policies = list(dict.fromkeys(each.policy for each in results if failing(each) and each.policy not in NO_POLICIES))
    lines = ["**Before the next push**, in a clone of the repository:", "", "```"]
    lines.append(f"gatekeeper check --repo . --base {_shell_word(base_ref)} --head HEAD")
    lines.extend(f"gatekeeper policies {policy}" for policy in policies)
    return "\n".join([*lines, "```"])


def _shell_word(text: str) -> str:
    """A name from outside as one word of a command that people may copy: quoted unless nothing in it means anything."""
    flat = " ".join(text.split())
    return flat if re.fullmatch(r"[A-Za-z0-9_./-]+", flat) else "'" + re.sub(r"['`\\]", "?", flat) + "'"


def annotation_title(finding: Finding) -> str:
    """Return the title of a finding beside its line."""
    return fit(f"{finding.code} ({finding.policy})" if finding.policy else finding.code, ANNOTATION_TITLE_LIMIT)


def annotation_message(finding: Finding) -> str:
    """Return a finding as plain text beside its line: what is wrong, expected and found, what to do next."""
    parts = [sentence(finding.message) or finding.code]  # GitHub takes no empty message
    if finding.expected:
        parts.append(f"Expected: {finding.expected}")
    if finding.found:
        parts.append(f"Found: {finding.found}")
    parts.append(next_step_plainly(finding))
    return fit("\n".join(part for part in parts if part), ANNOTATION_LIMIT)


def more_annotations(shown: int, count: int) -> str:
    """Return the remark that not every finding stands beside its line."""
    return f"{shown} of {count} findings are shown beside their lines."
