"""The scopes of a Python file, each with its own nodes, and what is given to whom in them: the first pass of a reading."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gatekeeper.domain.hook_scopes import bound_names, own_nodes
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.zone_names import Env, Meanings, Scope, called_name
from gatekeeper.domain.zone_texts import text_of

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_HOLDING = {*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef}
_FOLLOWED = {ast.Name, ast.Attribute, ast.Subscript, ast.NamedExpr, ast.Call, ast.IfExp, ast.BoolOp, ast.Tuple, ast.List, ast.Set,
             ast.Dict, ast.Lambda, ast.Await, ast.Starred}  # fmt: skip
"""Expressions that may stand for something foreign."""
_ANY = ast.Constant(None)
_SILENT = {ast.Attribute, ast.Constant, ast.Expr, ast.BinOp, ast.Compare, ast.Subscript, ast.keyword, ast.arg, ast.arguments,
           ast.Tuple, ast.If, ast.UnaryOp, ast.BoolOp, ast.List, ast.Dict, ast.Slice, ast.JoinedStr}  # fmt: skip
"""Most of all nodes: they bind no name themselves and hand nothing on."""


@dataclass(eq=False)
class Place:
    """One scope: its nodes, the scopes around it and itself, and whether it runs as the file is imported."""

    nodes: list[ast.AST]
    env: Env
    at_import: bool
    inner: list[tuple[ast.AST, Place]] = field(default_factory=list)
    """The definitions and comprehensions that stand in it, in their order."""


@dataclass(eq=False)
class _Own:
    """A function of this file, to whose parameters calls give something."""

    arguments: ast.arguments
    scope: Scope
    bound: bool
    """Whether its first parameter is the object that it is called on."""


class Gathering:
    """Builds the places of one file and fills the meanings that they share."""

    def __init__(self, meanings: Meanings, path: str) -> None:
        self._meanings = meanings
        self._path = path
        self._functions: dict[str, list[_Own | _Later]] = {}
        self._lambdas: dict[int, _Own] = {}
        self._calls: list[tuple[ast.Call, Env]] = []
        self._classes: set[str] = set()

    def module(self, body: list[ast.stmt]) -> Place:
        """Return the place of a module, with all that lie in it."""
        place = self._place(list(own_nodes(list(body))), Scope(set()), (), at_import=True)
        for call, env in self._calls:
            self._link(call, env)
        return place

    def _place(
        self, nodes: list[ast.AST], scope: Scope, around: Env, *, at_import: bool, owner: ast.AST | None = None
    ) -> Place:
        env = (*around, scope)
        place = Place(nodes, env, at_import)
        telling = [node for node in nodes if type(node) not in _SILENT]
        names, moved = scope.names, set()
        for node in telling:
            for name in bound_names(node):
                names.setdefault(name)
            if isinstance(node, ast.Global | ast.Nonlocal):
                moved.update(node.names)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names.update(import_targets(node, self._path))
                self._meanings.modules.update(alias.name for alias in node.names if isinstance(node, ast.Import))
        for name in moved:
            names.pop(name, None)
        for node in telling:
            self._gather(node, env, moved, owner)
        for node in telling:
            if type(node) in _HOLDING:
                place.inner.append((node, self._inner(node, env, owner, at_import=at_import)))
        return place

    def _gather(self, node: ast.AST, env: Env, moved: set[str], owner: ast.AST | None) -> None:
        """Note what one node gives, returns or hands over."""
        if isinstance(node, ast.Call):
            self._calls.append((node, env))
        elif giving := _GIVING.get(type(node)):
            for target, value in giving(node):
                if type(value) in _FOLLOWED:
                    self._give(target, value, env, moved, owner)
        elif isinstance(node, ast.Return | ast.Yield) and node.value and type(node.value) in _FOLLOWED:
            self._answer(owner, node.value, env)

    def _answer(self, owner: ast.AST | None, value: ast.AST, env: Env) -> None:
        if not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        self._meanings.answers.setdefault(owner.name, []).append((value, env))
        if any(
            isinstance(each, ast.Name | ast.Attribute) and "property" in ast.unparse(each)
            for each in owner.decorator_list
        ):
            self._meanings.attributes.setdefault(owner.name, []).append((value, env))

    def _inner(self, node: ast.AST, env: Env, owner: ast.AST | None, *, at_import: bool) -> Place:
        if isinstance(node, ast.ClassDef):
            self._classes.add(node.name)
            nodes = list(own_nodes(list(node.body)))
            return self._place(nodes, Scope(set()), env, at_import=at_import, owner=node)
        if isinstance(node, FUNCTIONS):
            every = [each.arg for each in _arguments(node.args)]
            scope, body = Scope(set(every)), node.body if not isinstance(node, ast.Lambda) else [ast.Expr(node.body)]
            own = _Own(node.args, scope, isinstance(owner, ast.ClassDef) and not _static(node))
            self._lambdas[id(node)] = own
            if not isinstance(node, ast.Lambda):
                self._functions.setdefault(node.name, []).append(own)
            self._defaults(node.args, scope, env)
            return self._place(list(own_nodes(list(body))), scope, env, at_import=False, owner=node)
        nodes = list(ast.walk(node))
        scope = Scope({each.arg for each in nodes if isinstance(each, ast.arg)})
        for each in nodes:
            if isinstance(each, ast.comprehension):
                for target, value in _loop(each):
                    self._give(target, value, (*env, scope), set(), None)
        place = Place(nodes, (*env, scope), at_import)
        self._calls.extend((each, place.env) for each in nodes if isinstance(each, ast.Call))
        return place

    def _give(self, target: ast.expr, value: ast.AST, env: Env, moved: set[str], owner: ast.AST | None) -> None:
        """Note what one target of an assignment gets."""
        if isinstance(target, ast.Name):
            scope = env[0] if target.id in moved else env[-1]
            scope.give(target.id, value, env)
            if isinstance(owner, ast.ClassDef):
                self._meanings.attributes.setdefault(target.id, []).append((value, env))
            if isinstance(value, ast.Lambda):
                self._meanings.answers.setdefault(target.id, []).append((value.body, env))
                self._functions.setdefault(target.id, []).append(_Later(value, self._lambdas))
        elif isinstance(target, ast.Attribute):
            self._meanings.attributes.setdefault(target.attr, []).append((value, env))
        elif isinstance(target, ast.Tuple | ast.List):
            pairs = zip(target.elts, value.elts, strict=False) if isinstance(value, ast.Tuple | ast.List) else (
                (each, ast.Subscript(value, ast.Constant(place), ast.Load())) for place, each in enumerate(target.elts)  # type: ignore[arg-type]
            )  # fmt: skip
            for each, given in pairs:
                self._give(each, given, env, moved, owner)
        elif isinstance(target, ast.Starred):
            self._give(target.value, value, env, moved, owner)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Call):
            name = text_of(target.slice)
            if name and called_name(target.value) == "globals":
                env[0].give(name, value, env)

    def _defaults(self, arguments: ast.arguments, scope: Scope, env: Env) -> None:
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
                 *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]  # fmt: skip
        for argument, default in pairs:
            if type(default) in _FOLLOWED and default is not None:
                scope.give(argument.arg, default, env)

    def _link(self, call: ast.Call, env: Env) -> None:
        """Give what a call hands over to the parameters of the function of this file that it may reach."""
        if not call.args and not call.keywords:
            return
        name = called_name(call)
        if name in self._functions:
            for own in self._functions[name]:
                self._pass(own.found if isinstance(own, _Later) else own, call, env, own_class=False)
        if name in self._classes:
            for own in self._functions.get("__init__", []):
                self._pass(own.found if isinstance(own, _Later) else own, call, env, own_class=True)
        if name in self._classes or name == "SimpleNamespace":
            for keyword in call.keywords:
                if keyword.arg and type(keyword.value) in _FOLLOWED:
                    self._meanings.attributes.setdefault(keyword.arg, []).append((keyword.value, env))
        elif name in ("setattr", "__setattr__") and 2 <= len(call.args) <= 3 and (text := text_of(call.args[-2])):
            self._meanings.attributes.setdefault(text, []).append((call.args[-1], env))
        elif isinstance(call.func, ast.Lambda) and id(call.func) in self._lambdas:
            self._pass(self._lambdas[id(call.func)], call, env, own_class=False)

    def _pass(self, own: _Own | None, call: ast.Call, env: Env, *, own_class: bool) -> None:
        if own is None:
            return
        names = [each.arg for each in (*own.arguments.posonlyargs, *own.arguments.args)]
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        by_class = isinstance(receiver, ast.Name) and receiver.id in self._classes
        names = names[1:] if own.bound and (own_class or (receiver is not None and not by_class)) else names
        rest = own.arguments.vararg
        for place, value in enumerate(call.args):
            if type(value) in _FOLLOWED:
                if place < len(names):
                    if names[place] not in ("self", "cls"):
                        own.scope.give(names[place], value, env)
                elif rest is not None:
                    own.scope.give(rest.arg, ast.List([value], ast.Load()), env)
        for keyword in call.keywords:
            if keyword.arg and type(keyword.value) in _FOLLOWED and keyword.arg in own.scope.names:
                own.scope.give(keyword.arg, keyword.value, env)


class _Later:
    """A lambda that was given a name: its scope is made when its place is."""

    def __init__(self, node: ast.Lambda, known: dict[int, _Own]) -> None:
        self._node, self._known = node, known

    @property
    def found(self) -> _Own | None:
        """The function, once all places are made."""
        return self._known.get(id(self._node))


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (each for each in (arguments.vararg, arguments.kwarg) if each)


def _static(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in getattr(node, "decorator_list", ()))


def _loop(node: ast.For | ast.AsyncFor | ast.comprehension) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield (target, value) for each member of a written-out list that a loop runs over, or for any member of something else."""
    if isinstance(node.iter, ast.Tuple | ast.List | ast.Set):
        yield from ((node.target, each) for each in node.iter.elts)
    else:
        yield node.target, ast.Subscript(node.iter, _ANY, ast.Load())


def _match(node: ast.Match) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield (name, value) of what the patterns of a ``match`` take out of its subject."""
    parts = [node.subject, *(node.subject.elts if isinstance(node.subject, ast.Tuple | ast.List) else ())]
    for case in node.cases:
        for each in ast.walk(case.pattern):
            if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
                yield from ((ast.Name(each.name, ast.Store()), part) for part in parts)


_GIVING: dict[type, Callable[..., Iterator[tuple[ast.expr, ast.AST]]]] = {
    ast.Assign: lambda node: ((target, node.value) for target in node.targets),
    ast.AnnAssign: lambda node: iter(((node.target, node.value),)),
    ast.NamedExpr: lambda node: iter(((node.target, node.value),)),
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.With: lambda node: ((each.optional_vars, each.context_expr) for each in node.items if each.optional_vars),
    ast.AsyncWith: lambda node: ((each.optional_vars, each.context_expr) for each in node.items if each.optional_vars),
    ast.Match: _match,
}
