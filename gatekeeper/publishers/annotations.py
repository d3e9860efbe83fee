"""Findings as annotations beside the lines of the diff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gatekeeper.domain.documents import raw_path
from gatekeeper.domain.policy import Effect, Finding, PolicyResult, Severity
from gatekeeper.publishers.check_texts import annotation_message, annotation_title

_LEVELS = {Effect.FAIL: "failure", Effect.HOLD: "warning", Effect.NOTE: "notice"}
_ORDER = ("failure", "warning", "notice")
HIGHEST_LINE = 2_147_483_647


def beside_lines(results: Sequence[PolicyResult]) -> tuple[dict[str, Any], ...]:
    """Return every finding that points to a file, the gravest first; what somebody has waived is left out.

    A finding without a line points to the first one. What an advisory policy found is a warning at most.
    """
    found = [
        made
        for result in results
        if result.severity is not Severity.OFF
        for finding in result.findings
        if (made := _annotation(result, finding)) is not None
    ]
    return tuple(
        sorted(found, key=lambda each: (_ORDER.index(each["annotation_level"]), each["path"], each["start_line"]))
    )


def _annotation(result: PolicyResult, finding: Finding) -> dict[str, Any] | None:
    path = _path(finding.path)
    if path is None or finding.waived_by:
        return None
    level = _LEVELS[finding.effect]
    if level == "failure" and result.severity is not Severity.BLOCKING:
        level = "warning"
    line = min(finding.line or 1, HIGHEST_LINE)
    return {
        "path": path,
        "start_line": line,
        "end_line": line,
        "annotation_level": level,
        "title": annotation_title(finding),
        "message": annotation_message(finding),
    }


def _path(shown: str | None) -> str | None:
    """Return a path as GitHub spells it; None for one that it cannot show: bytes that are no UTF-8, control characters."""
    if not shown:
        return None
    try:
        path = raw_path(shown).decode("utf-8")
    except ValueError:
        return None
    return path if path.isprintable() and not path.startswith("/") else None
