"""Who imports what across the edge of a specialised directory. A byte search first; only the files it finds are parsed."""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gatekeeper.domain.globs import matched_directory
from gatekeeper.domain.hook_additions import within
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.source import SourceTree

LARGEST = 4 * 1024 * 1024


def package_of(directory: str) -> str:
    """Return the dotted name of a directory."""
    return directory.replace("/", ".")


def importers(tree: SourceTree, directory: str) -> dict[str, int]:
    """Return the paths of Python files outside ``directory`` that import from it, with the line of the first such import."""
    package = package_of(directory)
    found: dict[str, int] = {}
    for path in tree.grep(posixpath.basename(directory).encode(), whole_word=True):
        if path.startswith(directory + "/"):
            continue
        lines = [line for target, line in imports_of(tree.read(path), path) if within(target, package)]
        if lines:
            found[path] = min(lines)
    return found


@lru_cache(maxsize=4096)
def imports_of(source: bytes, path: str) -> tuple[tuple[str, int], ...]:
    """Return (dotted target, line) of every import of a file, in functions too. A file that does not parse imports nothing."""
    if len(source) > LARGEST:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(_statements(parse_python(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[tuple[str, int]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.extend((target, node.lineno) for _, target in import_targets(node, path))
    return tuple(found)


def _statements(module: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement at every depth. Expressions, nine tenths of a tree, hold none: a lambda's body is an expression."""
    pending: list[ast.AST] = [module]
    while pending:
        node = pending.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, None)
            if isinstance(below, list):
                pending.extend(below)


def foreign(
    targets: Iterable[tuple[str, int]],
    configuration: RepositoryConfiguration,
    directory: str,
    root: str,
    tree: SourceTree,
) -> list[tuple[str, int, str]]:
    """Return (target, line, why) of imports that reach into what is private to somebody else.

    Private are the directories of another model or vendor (a root around the own directory is none), and modules and names of
    this repository with a leading underscore; these belong to the package that holds them, and are open to the code below it.
    Of a target that is imported more than once, the first line counts.
    """
    found = []
    first: dict[str, int] = {}
    for target, line in targets:
        first.setdefault(target, line)
    for target, line in first.items():
        place = target.replace(".", "/")
        if within(target, package_of(directory)) or within(target, package_of(root)):
            continue
        roots = (matched_directory(model.root, place) for model in configuration.models)
        other = next((each for each in roots if each and not within(package_of(directory), package_of(each))), None)
        if other is not None and (entry := tree.entry(other)) is not None and entry.kind == "tree":
            found.append((target, line, f"it belongs to {other}"))
            continue
        barred = next((each for each in _hidden(target) if not within(package_of(directory), each[0])), None)
        if barred and tree.entry(target.partition(".")[0]) is not None:
            found.append((target, line, f"{barred[1]} is private to {barred[0] or 'the repository'}"))
    return found


def _hidden(target: str) -> list[tuple[str, str]]:
    """Return (package or module that holds it, name) of each component with one leading underscore."""
    parts = target.split(".")
    hidden = [at for at, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
    return [(".".join(parts[:at]), parts[at]) for at in hidden]
