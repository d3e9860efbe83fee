"""What an import statement binds, and to what."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator


def import_targets(node: ast.Import | ast.ImportFrom, path: str) -> Iterator[tuple[str, str]]:
    """Yield (bound name, dotted target) of each alias; relative imports are resolved from the file's own ``path``.

    A relative import from above the top, which fails when it runs, gets a target that starts with dots and lies nowhere.
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (first, first)
        return
    module = node.module or ""
    if node.level:
        parents = posixpath.dirname(path).split("/")
        if node.level <= len(parents):
            module = ".".join([*parents[: len(parents) - node.level + 1], *([module] if module else [])])
        else:
            module = "." * node.level + module
    for alias in node.names:
        yield alias.asname or alias.name, f"{module}.{alias.name}"


def one_by_one(node: ast.Import | ast.ImportFrom) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield a statement of its own for each alias."""
    for alias in node.names:
        one: ast.Import | ast.ImportFrom = (
            ast.Import(names=[alias])
            if isinstance(node, ast.Import)
            else ast.ImportFrom(module=node.module, names=[alias], level=node.level)
        )
        yield ast.copy_location(one, node)
