"""How much a change adds to a hook file, counted so that writing it more densely does not make it smaller."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from gatekeeper.domain.lines import count_lines
from gatekeeper.domain.python_source import parse_python

WIDTH = 120
"""Bytes of one line for the budget; a longer line counts as several."""
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def added_lines(old: bytes, new: bytes) -> int:
    """Return the added lines of :data:`WIDTH` bytes, or the added statements if these are more (``a(); b(); c()``)."""
    return max(count_lines(_folded(old), _folded(new)).added, _added_statements(old, new))


def _folded(data: bytes) -> bytes:
    """Break long lines, and those that end in a carriage return alone."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(part for line in lines for part in _parts(line))


def _parts(line: bytes) -> Iterator[bytes]:
    yield line[:WIDTH]
    for start in range(WIDTH, len(line), WIDTH):
        yield line[start : start + WIDTH]


def _added_statements(old: bytes, new: bytes) -> int:
    """Return how many statements of the new file the old one does not have; 0 where one of them is not Python."""
    try:
        added = Counter(_statements(parse_python(new)))
        added.subtract(Counter(_statements(parse_python(old))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0  # not Python, or not to be judged: the file's own findings say so
    return sum(count for count in added.values() if count > 0)


def _statements(tree: ast.Module) -> Iterator[str]:
    """Yield each statement without those inside it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            own = [value for name, value in ast.iter_fields(node) if name not in _BODIES]
            yield " ".join([type(node).__name__, *(_shown(value) for value in own)])


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_shown(each) for each in value)
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)
