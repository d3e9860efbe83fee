"""Where an added statement of a hook file stands, and what it would do to the scope around it even if it never ran.

A binding makes a name local to the whole function, ``yield`` makes the function a generator and ``global`` moves every assignment
of the name: all three at compile time, so no guard holds them back.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gatekeeper.domain.hook_noticed import lists_names

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}
_COMPREHENSIONS = {ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp}
_BINDING = {
    ast.NamedExpr, ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.ExceptHandler,
    ast.MatchAs, ast.MatchStar, ast.MatchMapping,
}  # fmt: skip
_WORDLESS = {"ctx", "op", "ops"}
"""Fields with contexts and operators: a third of all nodes, and nobody asks for them."""
_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _WORDLESS)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


@dataclass(frozen=True)
class Scope:
    """The scope that a body belongs to. ``bound`` and ``generator`` describe the stock function, for a function's scope."""

    kind: str = "module"
    bound: frozenset[str] = frozenset()
    generator: bool = False
    inherits: bool = False
    """Whether the innermost class around has bases, whose attributes cannot be seen here."""
    owner: str = ""
    """The innermost class around."""
    chains: frozenset[str] = frozenset()
    """Attributes that the stock function looks up, and those of ``self`` in its class, spelled out."""
    listed: bool = False
    """Whether the stock function looks at all of its names."""
    caught: bool = False
    """Whether an error of an added statement is caught by an added ``try``."""

    def inside(self, node: ast.AST) -> Scope:
        """Return the scope of the body of a stock statement."""
        if isinstance(node, ast.ClassDef):
            alone = all(isinstance(base, ast.Name) and base.id == "object" for base in node.bases) and not node.keywords
            own = frozenset(each for each in attributes(node) if each.startswith("self."))
            return Scope("class", inherits=not alone, owner=node.name, chains=own)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            chains, listed = self.chains | attributes(node), lists_names(node)
            return Scope(
                "function",
                frozenset(_locals(node)),
                _yields(node.body),
                self.inherits,
                self.owner,
                chains,
                listed,
            )
        return self

    def compile_time_fault(self, node: ast.AST, known: frozenset[str]) -> str | None:
        """Return what ``node`` would do to this function's scope without running, or None."""
        if self.kind != "function":
            return None
        for inner in own_nodes([node]):
            if isinstance(inner, ast.Global | ast.Nonlocal):
                return f"declares {', '.join(inner.names)} for the whole function"
            if isinstance(inner, ast.Yield | ast.YieldFrom) and not self.generator:
                return "makes the stock function a generator"
            for name in bound_names(inner):
                if name in known and name not in self.bound:
                    return f"makes {name} local to the whole function"
        return None


def attributes(node: ast.AST) -> frozenset[str]:
    """Return every chain of names and attributes at or below a node, spelled out."""
    return frozenset(
        ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.Attribute) and _is_chain(each)
    )


def _is_chain(node: ast.expr) -> bool:
    return _is_chain(node.value) if isinstance(node, ast.Attribute) else isinstance(node, ast.Name)


def own_nodes(body: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a body that belong to its own scope: not those of inner functions, lambdas and classes."""
    pending = body[::-1]
    while pending:
        node = pending.pop()
        yield node
        kind = type(node)
        if kind in _SCOPES:
            continue
        if kind in _COMPREHENSIONS:
            # Only := reaches out of a comprehension.
            pending.extend(inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
            continue
        for name in _FIELDS[kind]:
            value = getattr(node, name, None)
            if type(value) is list:
                pending.extend(each for each in value if isinstance(each, ast.AST))
            elif isinstance(value, ast.AST):
                pending.append(value)


def bound_names(node: ast.AST) -> list[str]:
    """Return the names that one node binds in its own scope."""
    if type(node) not in _BINDING:
        return []
    if isinstance(node, ast.NamedExpr):
        return [node.target.id]
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    return []


def _locals(function: Function) -> set[str]:
    every = function.args
    arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs]
    names = {argument.arg for argument in (*arguments, *(one for one in (every.vararg, every.kwarg) if one))}
    moved: set[str] = set()
    for node in own_nodes(list(function.body)):
        names.update(bound_names(node))
        if isinstance(node, ast.Global | ast.Nonlocal):
            moved.update(node.names)
    return names - moved


def _yields(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(list(body)))


def known_names(tree: ast.Module) -> frozenset[str]:
    """Return every word of a stock file that a new name must not take: names, attributes, keywords, builtins, short texts."""
    words = set(dir(builtins))
    for node in ast.walk(tree):
        words.update(bound_names(node))
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            words.add(node.arg)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            words.update(node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            words.add(node.value)
    return frozenset(words)


def all_bound(tree: ast.Module) -> frozenset[str]:
    """Return every name that a file binds in any of its scopes, and the builtins."""
    words = set(dir(builtins)) | {"__file__", "__name__", "__doc__", "__package__", "__spec__"}
    for node in ast.walk(tree):
        words.update([node.arg] if isinstance(node, ast.arg) else bound_names(node))
    return frozenset(words)


def new_name_fault(name: str, known: frozenset[str]) -> str | None:
    """Return why ``name`` is not a new one, or None."""
    if re.fullmatch(r"__.*__", name):
        return f"{name} has a meaning of its own to Python"
    if name in known:
        return f"the name {name} is used already"
    return None
