"""What the trusted half of the probe reads off a directory's text: which modules of others it imports, what its guard is.

Modules of others are loaded before the first look: what a library does to the process as it loads is the library's doing.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gatekeeper.domain.guard_asking import plain_asking
from gatekeeper.domain.guard_function import Located, locate
from gatekeeper.domain.guards import guard_of
from gatekeeper.domain.import_graph import package_of
from gatekeeper.domain.manifest import MANIFEST_NAME
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.race import ProbeRequest
from gatekeeper.domain.source import TreeEntry

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


class _Folder:
    """The files of a folder, as far as the guard's definition is looked for in them."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def entry(self, path: str) -> TreeEntry | None:
        file = self._place / path
        kind = "blob" if file.is_file() else "tree" if file.is_dir() else None
        return TreeEntry(path=path, mode="100644", kind=kind, id="0" * 40) if kind else None

    def read(self, path: str) -> bytes:
        file = self._place / path
        if not file.is_file():
            raise KeyError(path)
        return file.read_bytes()


def guard_order(request: ProbeRequest, tree: Path) -> dict[str, Any]:
    """Return what the jailed half has to know of the guard: how it is asked, its switch, and where its definition lies."""
    if request.guard is None:
        return {"guard": None}
    guard = guard_of(request.guard, package_of(request.source.directory))
    found = locate(_Folder(tree), guard) if guard else None  # type: ignore[arg-type]
    judged = None
    if isinstance(found, Located):
        judged = {"file": found.path, "module": found.hops[-1][0], "name": found.function.name}
    ways = (plain_asking(request.guard), *request.askings)
    return {"guard": request.guard, "askings": [each.model_dump(mode="json") for each in dict.fromkeys(ways)],
            "judged": judged, "switch": _switch(tree / request.source.directory)}  # fmt: skip


def _switch(directory: Path) -> str:
    """Return the switch that the manifest names; an empty text where there is none."""
    try:
        found = tomllib.loads((directory / MANIFEST_NAME).read_text(encoding="utf-8")).get("switch")
    except (OSError, ValueError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""
