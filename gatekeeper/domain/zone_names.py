"""What the names of a Python file stand for outside it: scope by scope, through imports, aliases and look-ups by text."""

from __future__ import annotations

import ast

from gatekeeper.domain.hook_scopes import bound_names
from gatekeeper.domain.python_imports import import_targets

BUILTINS = frozenset({"exec", "eval", "compile", "__import__", "setattr", "delattr", "vars", "getattr"})
"""Builtins that have a dotted name here: their own."""
IMPORTS = ("importlib.import_module", "__import__", "importlib.__import__")


class Meanings:
    """The stack of scopes around the place that is being read. ``modules`` holds what ``import x.y`` statements named."""

    def __init__(self, path: str) -> None:
        self.modules: set[str] = set()
        self._path = path
        self._scopes: list[dict[str, str | None]] = []

    def enter(self, nodes: list[ast.AST], arguments: set[str]) -> None:
        """Begin a scope that holds ``nodes`` (see :func:`~gatekeeper.domain.hook_scopes.own_nodes`)."""
        bound = (name for node in nodes for name in bound_names(node))
        names: dict[str, str | None] = dict.fromkeys([*arguments, *bound])
        for node in nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                for name in node.names:
                    names.pop(name, None)
            if isinstance(node, ast.Import | ast.ImportFrom):
                names.update(import_targets(node, self._path))
            if isinstance(node, ast.Import):
                self.modules.update(alias.name for alias in node.names)
        self._scopes.append(names)
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                target = None if isinstance(node.value, ast.Call) else self.dotted(node.value)
                if target:
                    names[node.targets[0].id] = target

    def leave(self) -> None:
        """End the innermost scope."""
        self._scopes.pop()

    def dotted(self, node: ast.AST) -> str | None:
        """Return what a chain of attributes, items and look-ups begins with outside this file, spelled out; else None."""
        if isinstance(node, ast.Name):
            return self._lookup(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return base and f"{base}.{node.attr}"
        if isinstance(node, ast.Subscript):
            base = self.dotted(node.value)
            if base == "sys.modules" and isinstance(node.slice, ast.Name) and node.slice.id == "__name__":
                return None  # this very module
            return base and f"{base}[]"
        if not isinstance(node, ast.Call) or not node.args:
            return None
        called = self.dotted(node.func)
        if called in ("vars", "getattr"):
            base = self.dotted(node.args[0])
            name = _text(node.args[1]) if called == "getattr" and len(node.args) > 1 else None
            return f"{base}.{name}" if base and name else base
        return (_text(node.args[0]) or "?") if called in IMPORTS else None

    def _lookup(self, name: str) -> str | None:
        for names in reversed(self._scopes):
            if name in names:
                return names[name]
        return "builtins" if name == "__builtins__" else name if name in BUILTINS else None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
