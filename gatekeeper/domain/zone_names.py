"""What the names of a Python file stand for outside it: scope by scope, through imports, aliases and look-ups by text."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from gatekeeper.domain.hook_scopes import bound_names
from gatekeeper.domain.python_imports import import_targets

BUILTINS = frozenset({
    "exec", "eval", "compile", "__import__", "setattr", "delattr", "vars", "getattr", "open", "object", "type", "dict", "list", "set",
})  # fmt: skip
"""Builtins that have a dotted name here: their own."""
IMPORTS = ("importlib.import_module", "__import__", "importlib.__import__")


_ELSEWHERE = {ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom}
_GIVING = {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For}
_NAMING = {ast.Name, ast.Attribute, ast.Subscript, ast.NamedExpr, ast.Call, ast.IfExp, ast.BoolOp}
_PLAIN_BUILTINS = frozenset(dir(builtins))
_SILENT = {ast.Attribute, ast.Constant, ast.Call, ast.Expr, ast.BinOp, ast.Compare, ast.Subscript, ast.keyword, ast.Return, ast.arg,
           ast.arguments, ast.Tuple, ast.If, ast.UnaryOp, ast.BoolOp, ast.List, ast.Dict}  # fmt: skip
"""Four fifths of all nodes: they bind no name themselves."""


class Meanings:
    """The stack of scopes around the place that is being read. ``modules`` holds what ``import x.y`` statements named."""

    def __init__(self, path: str) -> None:
        self.modules: set[str] = set()
        self._path = path
        self._scopes: list[dict[str, str | None]] = []

    def enter(self, nodes: list[ast.AST], arguments: set[str]) -> None:
        """Begin a scope that holds ``nodes`` (see :func:`~gatekeeper.domain.hook_scopes.own_nodes`)."""
        names: dict[str, str | None] = dict.fromkeys(arguments)
        telling = [node for node in nodes if type(node) not in _SILENT]
        for node in telling:
            for name in bound_names(node):
                names[name] = None
        for node in telling:
            if type(node) in _ELSEWHERE:
                self._from_elsewhere(node, names)
        self._scopes.append(names)
        for node in telling:
            if type(node) not in _GIVING:
                continue
            for target, value in _given(node):
                meaning = self.dotted(value) if type(value) in _NAMING else None
                if meaning:
                    names[target] = meaning

    def _from_elsewhere(self, node: ast.AST, names: dict[str, str | None]) -> None:
        """Take out the names that belong to a scope around; give imported ones their meaning."""
        if isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                names.pop(name, None)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(import_targets(node, self._path))
            self.modules.update(alias.name for alias in node.names if isinstance(node, ast.Import))

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
            return self._item(node)
        if isinstance(node, ast.NamedExpr):
            return self.dotted(node.value)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            either = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return next((name for each in either if (name := self.dotted(each))), None)
        return self._call(node) if isinstance(node, ast.Call) and node.args else None

    def _call(self, node: ast.Call) -> str | None:
        called = self.dotted(node.func)
        if called == "type" and len(node.args) == 1:
            base = self.dotted(node.args[0])
            return base and f"{base}.__class__"
        if called in ("vars", "getattr"):
            base = self.dotted(node.args[0])
            name = _text(node.args[1]) if called == "getattr" and len(node.args) > 1 else None
            return f"{base}.{name}" if base and name else base
        return (_text(node.args[0]) or "?") if called in IMPORTS else None

    def _item(self, node: ast.Subscript) -> str | None:
        base = self.dotted(node.value)
        if base is None:
            return None
        name = _text(node.slice)
        if base == "sys.modules":
            own = isinstance(node.slice, ast.Name) and node.slice.id == "__name__"
            return None if own else name or f"{base}[]"
        if name and (base == "builtins" or base.endswith(".__dict__") or isinstance(node.value, ast.Call)):
            return f"{base.removesuffix('.__dict__')}.{name}"  # the namespace of a module, asked for one of its names
        return f"{base}[]"

    def _lookup(self, name: str) -> str | None:
        for names in reversed(self._scopes):
            if name in names:
                return names[name]
        if name == "__builtins__":
            return "builtins"
        if name in _PLAIN_BUILTINS:
            return name if name in BUILTINS else None
        everything = next((names["*"] for names in self._scopes if names.get("*")), None)
        return everything and f"{everything.removesuffix('*')}{name}"  # after a star import any name may be foreign


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) of a plain assignment, of each pair of one, and of a loop over written-out values: their first."""
    if isinstance(node, ast.For):
        if isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Tuple | ast.List) and node.iter.elts:
            yield node.target.id, node.iter.elts[0]
        return
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(node, ast.AnnAssign | ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            pairs = list(zip(target.elts, value.elts, strict=False))
        else:
            pairs = [(target, value)]
    for name, given in pairs:
        if isinstance(name, ast.Name) and given is not None:
            yield name.id, given


def _text(node: ast.AST) -> str | None:
    """Return the text that an expression is, also where it is put together from constants; else None."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _together([node.left, node.right])
    if isinstance(node, ast.JoinedStr):
        return _together([each.value if isinstance(each, ast.FormattedValue) else each for each in node.values])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
        between, parts = _text(node.func.value), node.args[0]
        texts = [_text(each) for each in parts.elts] if isinstance(parts, ast.Tuple | ast.List) else [None]
        return None if between is None or None in texts else between.join(text or "" for text in texts)
    return None


def _together(parts: list[ast.expr]) -> str | None:
    texts = [_text(part) for part in parts]
    return None if None in texts else "".join(text or "" for text in texts)
