"""Path patterns, compared component by component and in time linear in the path; no regular expression is involved.

A component of a pattern is literal, holds ``*`` (any run of characters) or ``?`` (one character), or is ``**`` (any number of
components, none included). A pattern *covers* a path if it matches the path or one of the directories above it, so that
``core`` covers ``core/a.py`` and never ``core_extra/a.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_ANY_DEPTH = "**"
_FORBIDDEN = "[]{}!\\"


def components(path: str) -> tuple[str, ...]:
    """Split a shown path at its slashes. A git path never starts or ends with one."""
    return tuple(path.split("/"))


def pattern_fault(pattern: str) -> str | None:
    """Say what is wrong with a pattern, or None. The answer is a phrase that fits behind "found"."""
    parts = components(pattern)
    if not pattern.strip() or pattern != pattern.strip():
        return "an empty pattern" if not pattern.strip() else "white space at an end"
    if pattern.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "an absolute pattern, or a component that is empty, '.' or '..'"
    if any(character in _FORBIDDEN or ord(character) < 0x20 for character in pattern):
        return f"one of the characters {' '.join(_FORBIDDEN)}, which have no meaning here"
    if any(_ANY_DEPTH in part and part != _ANY_DEPTH for part in parts):
        return "'**' as a part of a component; it stands alone"
    return None


@lru_cache(maxsize=65536)
def component_matches(pattern: str, name: str) -> bool:
    """Whether one component pattern matches one name. At most ``len(pattern) * len(name)`` comparisons."""
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    at_pattern = at_name = 0
    star = mark = -1
    while at_name < len(name):
        if at_pattern < len(pattern) and pattern[at_pattern] == "*":
            star, mark = at_pattern, at_name
            at_pattern += 1
        elif at_pattern < len(pattern) and pattern[at_pattern] in ("?", name[at_name]):
            at_pattern += 1
            at_name += 1
        elif star >= 0:
            mark += 1
            at_pattern, at_name = star + 1, mark
        else:
            return False
    return not pattern[at_pattern:].strip("*")


def matches(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether a pattern matches the whole path, component by component."""
    at_pattern = at_path = 0
    star = mark = -1
    while at_path < len(path):
        if at_pattern < len(pattern) and pattern[at_pattern] == _ANY_DEPTH:
            star, mark = at_pattern, at_path
            at_pattern += 1
        elif at_pattern < len(pattern) and component_matches(pattern[at_pattern], path[at_path]):
            at_pattern += 1
            at_path += 1
        elif star >= 0:
            mark += 1
            at_pattern, at_path = star + 1, mark
        else:
            return False
    return all(part == _ANY_DEPTH for part in pattern[at_pattern:])


def covers(pattern: str, path: str) -> bool:
    """Whether a pattern matches the path or a directory above it."""
    return matches((*components(pattern), _ANY_DEPTH), components(path))


def matched_directory(pattern: str, path: str) -> str | None:
    """Return the leading part of ``path`` that a pattern without ``**`` matches, or None.

    The result may be the whole path; whether that is a directory is for the caller to find out.
    """
    parts = components(pattern)
    names = components(path)
    if len(names) < len(parts):
        return None
    fits = all(component_matches(part, name) for part, name in zip(parts, names, strict=False))
    return "/".join(names[: len(parts)]) if fits else None


class GlobSet:
    """Several patterns, asked together. Patterns that start with a literal component are found through it."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._by_first: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        self._others: list[tuple[str, tuple[str, ...]]] = []
        for pattern in patterns:
            parts = components(pattern)
            entry = (pattern, (*parts, _ANY_DEPTH))
            if any(character in parts[0] for character in "*?"):
                self._others.append(entry)
            else:
                self._by_first.setdefault(parts[0], []).append(entry)

    def first(self, path: str) -> str | None:
        """Return a pattern that covers ``path``, or None."""
        names = components(path)
        candidates = [*self._by_first.get(names[0], []), *self._others]
        return next((pattern for pattern, parts in candidates if matches(parts, names)), None)
