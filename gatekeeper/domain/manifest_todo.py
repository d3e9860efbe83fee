"""What a manifest leaves undecided. ``gatekeeper init`` writes the mark; nobody but the author may take it away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gatekeeper.domain.manifest_rules import manifest_finding
from gatekeeper.domain.policy import Finding
from gatekeeper.domain.toml_lines import Path, TomlDocument, TomlProblem, dotted, shown

MARK = "TODO"
"""A text value that is this word, or starts with it and a colon, stands for a decision that nobody has made yet."""


def is_undecided(value: Any) -> bool:
    """Whether a value of a manifest is a mark rather than a decision."""
    return isinstance(value, str) and (value == MARK or value.startswith(f"{MARK}:"))


def split(
    document: TomlDocument, problems: list[TomlProblem], path: str, meanings: Mapping[str, str]
) -> tuple[list[Finding], list[TomlProblem]]:
    """Return ``SCOPE_MANIFEST_TODO`` for each mark of the manifest at ``path``, and the problems that are not about a mark.

    A mark is a finding also where the schema would take the text for a value, as it does for ``switch``. What is expected in
    its place is told by ``meanings`` (top-level key to what it means), or else by what the schema said about the value.
    """
    marks = {dotted(keys): (keys, value) for keys, value in _leaves(document.values) if is_undecided(value)}
    about_marks = [problem for problem in problems if _is_about(problem, marks)]
    told = {problem.keys: problem.expected for problem in about_marks} | dict(meanings)
    findings = [
        manifest_finding(
            "TODO",
            f"`{name}` is still to be decided",
            told.get(name, "the author's decision in place of the mark"),
            shown(value),
            path,
            document.line(*keys),
        )
        for name, (keys, value) in marks.items()
    ]
    return findings, [problem for problem in problems if problem not in about_marks]


def _is_about(problem: TomlProblem, marks: Mapping[str, tuple[Path, Any]]) -> bool:
    """Whether a problem is that a mark is no value. A key that the schema refuses stays wrong whatever is decided."""
    return problem.kind == "value" and problem.keys in marks and problem.found == shown(marks[problem.keys][1])


def _leaves(values: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield every value that holds no others, with its keys. The reader bounds the depth."""
    stack: list[tuple[Path, Any]] = [((), values)]
    while stack:
        keys, value = stack.pop()
        if isinstance(value, dict):
            stack.extend(((*keys, name), inner) for name, inner in value.items())
        elif isinstance(value, list):
            stack.extend(((*keys, index), inner) for index, inner in enumerate(value))
        else:
            yield keys, value
