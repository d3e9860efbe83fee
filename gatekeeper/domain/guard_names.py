"""Which names of a hook file can only be true where the opt-in said yes.

A name is a *guard* if every place of the file that binds it gives it the guard function's answer, another guard or a constant
that is false, or lies inside a region that only runs behind a guard. This is a fixpoint over the whole file, by name and not by
scope: one other binding anywhere, be it a parameter or a loop variable, takes the quality away.

What this file cannot show is who else binds an attribute. ``self.cache = None`` of the stock file is filled in by somebody, so a
name that the stock file uses is a guard only if it was one there by the guard's own answer, and an attribute only if no file
elsewhere speaks of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gatekeeper.domain.hook_syntax import Key, is_plain, is_quiet, key_of, read_key
from gatekeeper.domain.python_imports import import_targets

Elsewhere = Callable[[str], bool]
"""Whether a word is spoken of outside this model's hook files and the specialised directory."""


class Guard(NamedTuple):
    """The opt-in of a specialised directory: function ``function`` of the module ``module``, both below ``package``.

    An empty ``function`` stands for any function of the package: which one is meant is unknown while there is no manifest.
    """

    package: str
    module: str
    function: str


@dataclass(frozen=True)
class _Binding:
    value: ast.expr | None
    imported: str | None
    tests: tuple[ast.expr, ...]


@dataclass
class Names:
    """What one hook file's names stand for."""

    guard: Guard | None
    imports: dict[str, str] = field(default_factory=dict)
    """Names that only imports bind, all to the same dotted target."""
    guards: set[Key] = field(default_factory=set)
    none_or_guarded: set[Key] = field(default_factory=set)
    """Guards that are None, and not merely false, where the opt-in said no."""

    def dotted(self, node: ast.expr) -> str | None:
        """Return the dotted import target that a chain of attributes names, or None."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def asks_the_guard(self, node: ast.expr) -> bool:
        """Whether an expression is a call of the guard function with arguments that run nothing."""
        if self.guard is None or not isinstance(node, ast.Call):
            return False
        called, guard = self.dotted(node.func) or "", self.guard
        asked = (
            called == f"{guard.module}.{guard.function}" if guard.function else called.startswith(guard.package + ".")
        )
        return (
            asked
            and all(is_plain(argument) for argument in node.args)
            and all(keyword.arg is not None and is_plain(keyword.value) for keyword in node.keywords)
        )

    def is_test(self, node: ast.expr) -> bool:
        """Whether an expression is false, and runs nothing of its own, wherever the opt-in said no."""
        if read_key(node) in self.guards:
            return True
        if isinstance(node, ast.NamedExpr):
            return self.is_test(node.value)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            first = next((at for at, value in enumerate(node.values) if self.is_test(value)), None)
            return first is not None and all(is_quiet(value) for value in node.values[:first])
        if isinstance(node, ast.BoolOp):
            return all(self.is_test(value) for value in node.values)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.comparators[0], ast.Constant):
            against = node.comparators[0].value
            if isinstance(node.ops[0], ast.IsNot) and against is None:
                return read_key(node.left, none=True) in self.none_or_guarded
            return isinstance(node.ops[0], ast.Is) and against is True and self.is_test(node.left)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool":
            return len(node.args) == 1 and not node.keywords and self.is_test(node.args[0])
        return self.asks_the_guard(node)

    def is_value(self, node: ast.expr, *, none: bool = False) -> bool:
        """Whether an expression's value is false (with ``none``: None) wherever the opt-in said no."""
        if isinstance(node, ast.Constant):
            return node.value is None if none else not node.value
        if isinstance(node, ast.IfExp):
            either = self.is_value(node.orelse, none=none)
            return either and (self.is_test(node.test) or (is_quiet(node.test) and self.is_value(node.body, none=none)))
        return read_key(node, none=True) in self.none_or_guarded if none else self.is_test(node)


def names_of(
    tree: ast.Module,
    path: str,
    guard: Guard | None,
    *,
    stock: Names | None = None,
    stock_words: frozenset[str] = frozenset(),
    elsewhere: Elsewhere = lambda _: False,
) -> Names:
    """Work out the names of a parsed hook file at ``path``.

    ``stock`` and ``stock_words`` describe the file as it was; without ``stock``, this is that file. There a name that only
    constants were given to is none of ours.
    """
    bindings: dict[Key, list[_Binding]] = {}
    _collect(tree, path, (), bindings)
    names = Names(guard)
    for key, made in bindings.items():
        targets = {binding.imported for binding in made if not _is_none(binding.value)}
        if not key.attribute and len(targets) == 1 and (target := next(iter(targets))):
            names.imports[key.name] = target
    while True:
        before = len(names.guards) + len(names.none_or_guarded)
        for key, made in bindings.items():
            for none, found, known in (
                (False, names.guards, stock and stock.guards),
                (True, names.none_or_guarded, stock and stock.none_or_guarded),
            ):
                if key in found or not all(_holds(names, binding, none=none) for binding in made):
                    continue
                if stock is None:
                    ours = any(not isinstance(binding.value, ast.Constant) or binding.tests for binding in made)
                else:
                    ours = key.name not in stock_words or key in (known or ())
                if ours and not (key.attribute and elsewhere(key.name)):
                    found.add(key)
        if before == len(names.guards) + len(names.none_or_guarded):
            return names


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _holds(names: Names, binding: _Binding, *, none: bool) -> bool:
    if any(names.is_test(test) for test in binding.tests):
        return True
    return binding.value is not None and names.is_value(binding.value, none=none)


def _collect(node: ast.AST, path: str, tests: tuple[ast.expr, ...], into: dict[Key, list[_Binding]]) -> None:
    """Record every binding at or below ``node``; ``tests`` are the conditions of the branches around it."""
    valued = _valued(node)
    for key in valued:
        into.setdefault(key, []).append(_Binding(getattr(node, "value", None), None, tests))
    if isinstance(node, ast.Import | ast.ImportFrom):
        for name, target in import_targets(node, path):
            into.setdefault(Key(name), []).append(_Binding(None, target, tests))
    for key in () if valued else _bound_otherwise(node):
        into.setdefault(key, []).append(_Binding(None, None, tests))
    for label, child in ast.iter_fields(node):
        if valued and label in ("target", "targets"):
            continue
        inner = (*tests, node.test) if isinstance(node, ast.If) and label == "body" else tests
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST):
                _collect(each, path, inner, into)


def _valued(node: ast.AST) -> list[Key]:
    """Return the keys that an assignment gives one value to; none if any of its targets is something else."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    keys = [key for target in targets if (key := key_of(target))]
    return keys if len(keys) == len(targets) else []


def _bound_otherwise(node: ast.AST) -> list[Key]:
    """Return what a node binds in a way that says nothing good about the value."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [Key(node.id)]
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return [Key(node.attr, attribute=True)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        # A method or class attribute is reached through self as well.
        return [Key(node.name), Key(node.name, attribute=True)]
    if isinstance(node, ast.arg):
        return [Key(node.arg)]
    if isinstance(node, ast.Global | ast.Nonlocal):
        return [Key(name) for name in node.names]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [Key(node.name)]
    if isinstance(node, ast.MatchMapping) and node.rest:
        return [Key(node.rest)]
    return []
