"""What the names of one file may stand for: modules and what these hold, as dotted names.

By name and not by scope, and every value that a name is ever given counts: who looks for what may be changed must not miss an alias.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gatekeeper.domain.python_imports import import_targets

_MOST_ROUNDS = 6
_IMPORTING = {"importlib.import_module", "importlib.__import__", "importlib.reload", "__import__"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Places:
    """The dotted names that expressions of a parsed file at ``path``, which is the module ``own``, may stand for."""

    def __init__(self, module: ast.Module, path: str, own: str) -> None:
        self.own = own
        self._package = own if path.endswith("/__init__.py") else own.rpartition(".")[0]
        self._names: dict[str, set[str]] = {}
        nodes = list(ast.walk(module))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, target in import_targets(node, path):
                    self._names.setdefault(name, set()).add(target)
        for node in module.body:
            if isinstance(node, _FUNCTIONS):
                self._names.setdefault(node.name, set()).add(f"{own}.{node.name}")
        functions = _functions(nodes)
        given = [pair for node in nodes for pair in _given(node, functions)]
        for _ in range(_MOST_ROUNDS):
            if not any([self._give(name, value) for name, value in given]):
                break

    def _give(self, name: str, value: ast.expr) -> bool:
        found = self.of(value)
        known = self._names.setdefault(name, set()) if found else set()
        news = found - known
        known |= news
        return bool(news)

    def of(self, node: ast.expr | None) -> set[str]:
        """Return every dotted name that an expression, or a member of what it lists, may stand for."""
        match node:
            case ast.Name():
                return self._names.get(node.id, set())
            case ast.Attribute():
                return self._names.get(_key(node), set()) | {f"{base}.{node.attr}" for base in self.of(node.value)}
            case ast.Subscript():
                return self._item(self.of(node.value), node.slice)
            case ast.Tuple() | ast.List() | ast.Set():
                return self._all(node.elts)
            case ast.Dict():
                return self._all(node.values)
            case ast.BoolOp():
                return self._all(node.values)
            case ast.IfExp():
                return self.of(node.body) | self.of(node.orelse)
            case ast.NamedExpr() | ast.Starred() | ast.Await():
                return self.of(node.value)
            case ast.Call():
                return self._call(node)
        return set()

    def _all(self, nodes: list[ast.expr]) -> set[str]:
        return {found for node in nodes for found in self.of(node)}

    def _item(self, bases: set[str], key: ast.expr) -> set[str]:
        word = self.word(key)
        found = set()
        for base in bases:
            if base == "sys.modules" and word:
                found.add(word)
            elif base.endswith(".__dict__") and word:
                found.add(f"{base.removesuffix('.__dict__')}.{word}")
            elif base != "sys.modules":
                found.add(base)  # one of what is listed there
        return found

    def word(self, node: ast.expr | None) -> str | None:
        """Return the text that an expression is; this module's name for ``__name__``."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self.word(node.left), self.word(node.right)]
            return None if None in parts else "".join(part for part in parts if part)
        if isinstance(node, ast.JoinedStr):
            parts = [self.word(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values]
            return None if None in parts else "".join(part for part in parts if part)
        names = {"__name__": self.own, "__package__": self._package}
        return names.get(node.id) if isinstance(node, ast.Name) else None

    def _call(self, node: ast.Call) -> set[str]:
        called = self.called(node)
        first = node.args[0] if node.args else None
        second = node.args[1] if len(node.args) > 1 else None
        if called == "getattr":
            name = self.word(second)
            return {f"{base}.{name}" for base in self.of(first)} if name else set()
        if called == "vars":
            return {f"{base}.__dict__" for base in self.of(first)} if first else {f"{self.own}.__dict__"}
        if called == "globals":
            return {f"{self.own}.__dict__"}
        if called in _IMPORTING:
            word = self.word(first)
            if word is None:
                return self.of(first)  # importlib.reload(module)
            if word.startswith("."):
                level = len(word) - len(word.lstrip("."))
                parents = (self.word(second) or self._package).split(".")
                word = ".".join([*parents[: len(parents) - level + 1], word.lstrip(".")])
            return {word.partition(".")[0] if called == "__import__" and len(node.args) < 4 else word}
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault", "__getitem__"):
            return self._item(self.of(node.func.value), first) if first else set()
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items", "copy"):
            return {base for base in self.of(node.func.value) if base != "sys.modules"}
        return set()

    def called(self, node: ast.Call) -> str:
        """Return the dotted name of what is called; of a name that nothing here gives a meaning, the name."""
        found = sorted(self.of(node.func))
        return found[0] if found else ast.unparse(node.func)[:80]


def _key(node: ast.expr) -> str:
    return f"self.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""


def _functions(nodes: list[ast.AST]) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            found.setdefault(node.name, []).append(node)
    return found


def _given(node: ast.AST, functions: dict[str, list[Function]]) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, expression that it may be given) of one node; an argument of a call is given to the parameter."""
    match node:
        case ast.Assign():
            for target in node.targets:
                yield from _spread(target, node.value)
        case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            yield from _spread(node.target, value)
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield from _spread(node.target, node.iter)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _spread(target, node.context_expr)
        case ast.Match():
            for inner in (inner for case in node.cases for inner in ast.walk(case.pattern)):
                if isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name:
                    yield inner.name, node.subject
        case ast.Call():
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from (pair for function in functions.get(name, ()) for pair in _passed(node, function))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield from _defaults(node.args)


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    every = [*arguments.posonlyargs, *arguments.args]
    yield from zip([each.arg for each in reversed(every)], reversed(arguments.defaults), strict=False)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from ((each.arg, value) for each, value in keywords if value)


def _spread(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute) and _key(target):
        yield _key(target), value
    elif isinstance(target, ast.Starred):
        yield from _spread(target.value, value)
    elif isinstance(target, ast.Tuple | ast.List):
        paired = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for at, each in enumerate(target.elts):
            yield from _spread(each, value.elts[at] if paired else value)  # type: ignore[attr-defined]


def _passed(node: ast.Call, function: Function) -> Iterator[tuple[str, ast.expr]]:
    every = [*function.args.posonlyargs, *function.args.args]
    if isinstance(node.func, ast.Attribute):
        every = every[1:] if every and every[0].arg in ("self", "cls") else every
    for at, value in enumerate(node.args):
        if at < len(every):
            yield every[at].arg, value
        elif function.args.vararg:
            yield function.args.vararg.arg, value
    yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
