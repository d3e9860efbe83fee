"""Does the guard look at the switch that the manifest names? Only whether it speaks of it can be read off the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.hook_additions import within
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.source import SourceTree

_WORD = re.compile(r"[a-z_][a-z0-9_]{3,}")
_MOST_FILES = 20


def speaks_of(tree: SourceTree, guard: Guard, switch: str) -> bool:
    """Whether the guard's module, or a module of the directory that it imports, uses a word of the switch's description.

    Words are names, attributes and words of texts that are no docstrings, of at least four letters, in any case. A description
    without such a word, as in ``x=1``, asks for nothing.
    """
    wanted = set(_WORD.findall(switch.casefold()))
    if not wanted:
        return True
    pending, seen = [guard.module], set[str]()
    while pending and len(seen) < _MOST_FILES:
        module = pending.pop(0)
        if module in seen:
            continue
        seen.add(module)
        found = _parsed(tree, module)
        if found is None:
            continue
        path, parsed = found
        if not wanted.isdisjoint(_words(parsed)):
            return True
        pending.extend(_imported(parsed, path, guard.package))
    return False


def _parsed(tree: SourceTree, module: str) -> tuple[str, ast.Module] | None:
    stem = module.replace(".", "/")
    for path in (f"{stem}/__init__.py", f"{stem}.py"):
        try:
            return path, parse_python(tree.read(path))
        except (KeyError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _imported(parsed: ast.Module, path: str, package: str) -> Iterator[str]:
    """Yield the names below ``package`` that a module imports, and what each lies in: either may be a module."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for _, target in import_targets(node, path):
                for name in (target, target.rpartition(".")[0]):
                    if within(name, package):
                        yield name


def _words(parsed: ast.Module) -> Iterator[str]:
    documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = list(ast.walk(parsed))
    docstrings = {
        id(node.body[0]) for node in nodes if isinstance(node, documented) and ast.get_docstring(node) is not None
    }
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and id(node) in docstrings}
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id.casefold()
        elif isinstance(node, ast.Attribute):
            yield node.attr.casefold()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield from _WORD.findall(node.value.casefold())
