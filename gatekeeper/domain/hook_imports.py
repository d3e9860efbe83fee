"""Is what a hook file imports from the specialised directory there? If not, the stock model cannot be loaded by anybody."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gatekeeper.domain.guards import HookFault
from gatekeeper.domain.hook_additions import within
from gatekeeper.domain.hook_scopes import bound_names, own_nodes
from gatekeeper.domain.python_imports import import_targets, one_by_one
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.source import SourceTree

_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def missing_imports(new: bytes, path: str, package: str, tree: SourceTree) -> Iterator[HookFault]:
    """Yield a fault for each import of a hook file from ``package`` that finds nothing in ``tree``.

    An import in a ``try`` may find nothing. A file that does not parse imports nothing here.
    """
    try:
        imports = list(_imports(parse_python(new)))
    except _UNREADABLE:
        return
    for node in imports:
        for one in one_by_one(node):
            _, target = next(import_targets(one, path))
            target = one.names[0].name if isinstance(one, ast.Import) else target
            if within(target, package) and not _is_there(target, isinstance(one, ast.Import), tree):
                yield HookFault(
                    line=node.lineno, message="an import from the directory finds nothing", found=f"no {target}",
                    expected="a module of the directory, or a name that one binds at its top level",
                )  # fmt: skip


def _imports(module: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    pending: list[ast.AST] = [module]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.Try | ast.TryStar | ast.expr):
            pending.extend(ast.iter_child_nodes(node))


def _is_there(target: str, whole: bool, tree: SourceTree) -> bool:
    """Whether a dotted name is a module, or (unless ``whole``) a name that a module may bind."""
    place = target.replace(".", "/")
    if tree.entry(f"{place}.py") or ((entry := tree.entry(place)) and entry.kind == "tree"):
        return True
    module, _, name = place.rpartition("/")
    return not whole and any(_binds(tree, path, name) for path in (f"{module}/__init__.py", f"{module}.py"))


def _binds(tree: SourceTree, path: str, name: str) -> bool:
    try:
        nodes = list(own_nodes(list(parse_python(tree.read(path)).body)))
    except KeyError:
        return False
    except _UNREADABLE:
        return True  # that it cannot be read is for others to say
    names = {bound for node in nodes for bound in bound_names(node)}
    made = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "globals" for node in nodes
    )
    return made or not names.isdisjoint((name, "*", "__getattr__"))
