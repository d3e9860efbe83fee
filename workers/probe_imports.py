"""Which modules of others a directory imports as it is loaded. Read off the text by the trusted half of the probe.

They are loaded before the first look: what a library does to the process as it loads is the library's doing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.python_source import parse_python

_MOST_BYTES = 4 * 1024 * 1024
USED = (b"torch.compile",)
"""Calls that make a library load more of itself as they are used for the first time; named in place of a module."""
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def imported_by(tree: Path, directory: str) -> tuple[str, ...]:
    """Return the dotted names that the files of ``directory`` import outside functions, its own top-level package left out.

    A name may be a module or something in one, or one of :data:`USED`. A file that does not parse imports nothing.
    """
    own = directory.partition("/")[0]
    found: set[str] = set()
    for path in sorted((tree / directory).rglob("*.py")):
        data = path.read_bytes()
        if len(data) > _MOST_BYTES:
            continue
        try:
            statements = list(_running(parse_python(data).body))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found.update(call.decode() for call in USED if call in data)
        place = path.relative_to(tree).as_posix()
        for node in statements:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.update(target.removesuffix(".*") for _, target in import_targets(node, place))
    return tuple(sorted(name for name in found if name.partition(".")[0] not in (own, "__future__")))


def _running(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run as a module is loaded; what is for type checkers only does not."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        checking = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for name in _BODIES:
            if checking and name == "body":
                continue
            for inner in getattr(node, name, []):
                yield from _running(inner.body if not isinstance(inner, ast.stmt) else [inner])


def packages(tree: Path, directory: str) -> tuple[str, ...]:
    """Return the dotted names of the packages in ``directory``, itself included: whoever walks packages loads these."""
    folders = [path.parent.relative_to(tree) for path in (tree / directory).rglob("__init__.py")]
    return tuple(sorted(".".join(folder.parts) for folder in folders))
