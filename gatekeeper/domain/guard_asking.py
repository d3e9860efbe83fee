"""How hook files get at the guard: the imports that they run, and what they then call. The probe does the same."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from pydantic import Field

from gatekeeper.domain.documents import Value
from gatekeeper.domain.guard_names import Guard, names_of
from gatekeeper.domain.hook_additions import within
from gatekeeper.domain.python_imports import import_targets, one_by_one
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.source import SourceTree

_MOST_STATEMENTS = 100
_UNREADABLE = (KeyError, SyntaxError, ValueError, RecursionError, MemoryError)


class GuardAsking(Value):
    """What one file does to ask the guard: import statements with absolute names, in order, and the call's dotted name."""

    statements: tuple[str, ...] = Field(max_length=_MOST_STATEMENTS)
    call: str = Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$", max_length=400)


def plain_asking(guard: str) -> GuardAsking:
    """Return how a hook file asks ``module:function`` as a rule: ``from package import module``."""
    module, _, function = guard.partition(":")
    package, _, name = module.rpartition(".")
    statement = f"from {package} import {name}" if package else f"import {name}"
    return GuardAsking(statements=(statement,), call=f"{name}.{function}")


def askings(tree: SourceTree, paths: Iterable[str], guard: Guard) -> tuple[GuardAsking, ...]:
    """Return how the files at ``paths`` ask the guard, each way once. A file that does not parse asks nothing."""
    found: dict[GuardAsking, None] = {}
    for path in paths:
        try:
            module = parse_python(tree.read(path))
            names = names_of(module, path, guard)
        except _UNREADABLE:
            continue
        wanted = f"{guard.module}.{guard.function}"
        called = [node.func for node in ast.walk(module) if isinstance(node, ast.Call)]
        calls = dict.fromkeys(ast.unparse(each) for each in called if names.dotted(each) == wanted)
        statements = tuple(_statements(module, path, guard.package))[:_MOST_STATEMENTS]
        found.update(dict.fromkeys(GuardAsking(statements=statements, call=call) for call in calls))
    return tuple(found)


def _statements(node: ast.AST, path: str, package: str) -> Iterator[str]:
    """Yield the imports from the package, or of what it lies in, in the order of the file; not those for type checkers only."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for one in one_by_one(node):
            bound, target = next(import_targets(one, path))
            whole = one.names[0].name if isinstance(one, ast.Import) else target
            if "*" in whole or not (within(whole, package) or within(package, whole)):
                continue
            if isinstance(one, ast.Import):
                yield ast.unparse(one)
            elif not target.startswith("."):
                parent, _, name = target.rpartition(".")
                yield f"from {parent} import {name} as {bound}"
        return
    if isinstance(node, ast.expr):
        return
    checking = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    skipped = node.body if checking and isinstance(node, ast.If) else []
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _statements(child, path, package)
