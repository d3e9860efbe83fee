"""Which names of a file are surely bound when one of its statements begins, also attributes of ``self`` that were just set.

A name that only some ways bind, or that is bound later or in another function, is an error for whoever comes by without it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from gatekeeper.domain.hook_scopes import bound_names, own_nodes

_ALWAYS = frozenset({*dir(builtins), "__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Names = frozenset[str]
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Bound:
    """What is surely bound where, in one parsed file."""

    def __init__(self, module: ast.Module) -> None:
        self._at: dict[tuple[int, int], Names] = {}
        self._made: dict[str, Names] = {}
        self._pending: list[tuple[Function, str | None, Names]] = []
        self._starred = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in module.body)
        self._known = {name for node in ast.walk(module) for name in bound_names(node)}
        end = self._body(module.body, frozenset(), _ALWAYS, frozenset(), None)
        for function, owner, around in self._pending:
            self._function(function, end | around | _ALWAYS, owner)

    def at(self, node: ast.stmt, name: str) -> bool:
        """Whether a name, or ``self.x``, is surely bound when a statement begins."""
        if self._starred and name not in self._known:
            return True  # a star import of the stock file may have brought it
        return name in self._at.get((node.lineno, node.col_offset), _ALWAYS)

    def made(self, owner: str, attribute: str) -> bool:
        """Whether a class's ``__init__`` sets an attribute on every way."""
        return f"self.{attribute}" in self._made.get(owner, frozenset())

    def _function(self, function: Function, outer: Names, owner: str | None) -> None:
        every = function.args
        arguments = [
            *every.posonlyargs,
            *every.args,
            *every.kwonlyargs,
            *(one for one in (every.vararg, every.kwarg) if one),
        ]
        given = frozenset(argument.arg for argument in arguments)
        local = {name for node in own_nodes(list(function.body)) for name in bound_names(node)}
        moved = {
            name
            for node in own_nodes(list(function.body))
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        end = self._body(function.body, given, outer, frozenset(local - moved), None)
        if owner is not None and function.name == "__init__":
            returns = [node for node in own_nodes(list(function.body)) if isinstance(node, ast.Return)]
            ends = [self._at.get((node.lineno, node.col_offset), frozenset()) for node in returns]
            self._made[owner] = end.intersection(*ends) if ends else end

    def _body(self, body: list[ast.stmt], sure: Names, outer: Names, local: Names, owner: str | None) -> Names:
        """Record what is bound before each statement of a body; return what is bound after it."""
        for node in body:
            self._at[node.lineno, node.col_offset] = sure | (outer - local)
            sure = self._after(node, sure, outer, local, owner)
        return sure

    def _after(self, node: ast.stmt, sure: Names, outer: Names, local: Names, owner: str | None) -> Names:
        def into(body: list[ast.stmt], start: Names) -> Names:
            return self._body(body, start, outer, local, owner)

        if isinstance(node, _FUNCTIONS):
            if outer is _ALWAYS or owner is not None:
                around = frozenset() if outer is _ALWAYS else outer - local
                self._pending.append((node, owner, around))  # runs when the module is there
            else:
                self._function(node, sure | (outer - local), None)
            return sure | {node.name}
        if isinstance(node, ast.ClassDef):
            self._body(node.body, frozenset(), sure | (outer - local), frozenset(), node.name)
            return sure | {node.name}
        if isinstance(node, ast.If):
            start = sure | _walrus(node.test)
            checking = ast.unparse(node.test).endswith("TYPE_CHECKING")
            ways = [(node.orelse, into(node.orelse, start)), (node.body, into(node.body, start))]
            return _common(ways[:1] if checking else ways, start)
        if isinstance(node, ast.Try):
            body = into(node.orelse, into(node.body, sure))
            handlers = [
                (each.body, into(each.body, sure | ({each.name} if each.name else set()))) for each in node.handlers
            ]
            gone = {each.name for each in node.handlers if each.name}
            return into(node.finalbody, _common([([*node.body, *node.orelse], body), *handlers], sure) - gone)
        if isinstance(node, ast.With | ast.AsyncWith):
            names = {name for item in node.items if item.optional_vars for name in _targets(item.optional_vars)}
            return into(node.body, sure | names)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            names = set() if isinstance(node, ast.While) else set(_targets(node.target))
            into(node.body, sure | names | (_walrus(node.test) if isinstance(node, ast.While) else frozenset()))
            into(node.orelse, sure)
            return sure
        if isinstance(node, ast.Match):
            for case in node.cases:
                into(case.body, sure | {name for inner in ast.walk(case.pattern) for name in bound_names(inner)})
            return sure
        return _simple(node, sure)


def _simple(node: ast.stmt, sure: Names) -> Names:
    if isinstance(node, ast.Assign):
        return sure | {name for target in node.targets for name in _targets(target)} | _walrus(node.value)
    if isinstance(node, ast.AnnAssign):
        return sure | set(_targets(node.target)) | _walrus(node.value) if node.value else sure
    if isinstance(node, ast.Import | ast.ImportFrom):
        return sure | set(bound_names(node))
    if isinstance(node, ast.Delete):
        return sure - {name for target in node.targets for name in _targets(target)}
    return sure | _walrus(node.value) if isinstance(node, ast.Expr) else sure


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        yield f"self.{node.attr}"
    elif isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from _targets(each)
    elif isinstance(node, ast.Starred):
        yield from _targets(node.value)


def _walrus(node: ast.expr | None) -> Names:
    """Return the names that an expression binds whatever its parts say."""
    if isinstance(node, ast.NamedExpr):
        return _walrus(node.value) | {node.target.id}
    if isinstance(node, ast.BoolOp):
        return _walrus(node.values[0])
    if isinstance(node, ast.IfExp):
        return _walrus(node.test)
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) or node is None:
        return frozenset()
    return frozenset().union(*(_walrus(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)))


def _common(ways: Iterable[tuple[list[ast.stmt], Names]], start: Names) -> Names:
    """Return what all ways that go on bind."""
    going = [sure for body, sure in ways if not (body and isinstance(body[-1], _LEAVING))]
    return going[0].intersection(*going[1:]) if going else start
