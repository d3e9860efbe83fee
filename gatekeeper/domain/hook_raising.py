"""Can an added expression raise while the opt-in says no? Then the stock model breaks for everybody.

What is evaluated then may only look up what is surely there: names that are bound on every way to this place, attributes that
the stock code looks up itself, and the guard with the arguments that it takes.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from gatekeeper.domain.guard_names import Names
from gatekeeper.domain.hook_bound import Bound
from gatekeeper.domain.hook_scopes import Scope
from gatekeeper.domain.hook_syntax import read_key
from gatekeeper.domain.python_source import parse_python

_GENERIC = {"list": 1, "set": 1, "frozenset": 1, "type": 1, "dict": 2, "tuple": 0}
_TYPING = {
    **dict.fromkeys(("Optional", "Type", "List", "Set", "FrozenSet", "Sequence", "Iterable", "Iterator", "Collection", "Deque",
                     "Awaitable", "AsyncIterator", "AsyncIterable", "MutableSequence", "Final", "ClassVar"), 1),
    **dict.fromkeys(("Dict", "Mapping", "MutableMapping", "DefaultDict", "OrderedDict", "Callable"), 2),
    **dict.fromkeys(("Union", "Tuple", "Literal"), 0),
}  # fmt: skip
"""Number of what stands in brackets; 0: any."""
_BARE = {
    *_TYPING,
    "Any",
    "Hashable",
    "Sized",
    "NoReturn",
    "Never",
    "Self",
    "LiteralString",
    "Annotated",
    "Protocol",
    "TYPE_CHECKING",
}
_WELL_KNOWN = {"torch.Tensor", "torch.dtype", "torch.device", "torch.nn.Module", "torch.nn.Parameter", "torch.Size"}
_LIBRARIES = ("typing.", "typing_extensions.", "collections.abc.")
_QUOTE = "an annotation may fail when it is evaluated: quote it"


@dataclass(frozen=True)
class Raising:
    """Judges expressions of one hook file: ``names`` and ``bound`` of the file as it would be, ``stock`` as it was."""

    names: Names
    bound: Bound
    stock: ast.Module
    known: frozenset[str]
    chains: frozenset[str]
    """Attributes that the stock file looks up anywhere, spelled out."""
    asked: ast.arguments | None = None
    """What the guard takes."""

    def fault(self, node: ast.expr, at: ast.stmt, scope: Scope) -> str | None:
        """Return how evaluating an expression could raise while the opt-in says no, or None."""
        for part in self._evaluated(node):
            if isinstance(part, ast.Name) and not self.bound.at(at, part.id):
                return f"nothing surely binds {part.id} here"
            if isinstance(part, ast.Attribute) and (fault := self._attribute(part, at, scope)):
                return fault
            if isinstance(part, ast.UnaryOp) and not _is_number(part):
                return f"{ast.unparse(part)} may raise"
            if isinstance(part, ast.Call) and self.names.asks_the_guard(part) and (fault := self._call(part)):
                return fault
        return None

    def _evaluated(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the parts of an expression that run while the opt-in says no; of a chain of attributes, the whole and its root."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for value in node.values:
                yield from self._evaluated(value)
                if self.names.is_test(value):
                    return
        elif isinstance(node, ast.IfExp):
            parts = [node.orelse] if self.names.is_test(node.test) else [node.body, node.orelse]
            for each in (node.test, *parts):
                yield from self._evaluated(each)
        elif isinstance(node, ast.Attribute):
            yield node
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            yield from self._evaluated(root)
        else:
            yield node
            for child in ast.iter_child_nodes(node):
                inner = child.value if isinstance(child, ast.keyword) else child
                if isinstance(inner, ast.expr) and not (isinstance(node, ast.NamedExpr) and inner is node.target):
                    yield from self._evaluated(inner)

    def _attribute(self, node: ast.Attribute, at: ast.stmt, scope: Scope) -> str | None:
        dotted, text = self.names.dotted(node), ast.unparse(node)
        guard = self.names.guard
        if dotted is not None and guard is not None and dotted.startswith(guard.package + "."):
            wanted = f"{guard.module}.{guard.function}"
            return None if not guard.function or wanted == dotted else f"nobody can see here that {text} is there"
        if dotted in _WELL_KNOWN or (dotted or "").startswith(_LIBRARIES):
            return None if dotted in _WELL_KNOWN or node.attr in _BARE else f"nobody can see here that {text} is there"
        if text in scope.chains or (text.partition(".")[0] not in scope.bound and text in self.chains):
            return None
        if isinstance(node.value, ast.Name) and node.value.id == "self" and scope.owner:
            if self.bound.at(at, text) or self.bound.made(scope.owner, node.attr):
                return None
            ours = read_key(node) in self.names.guards | self.names.none_or_guarded
            if scope.inherits and not ours:
                return None  # what is inherited cannot be seen here
            return (
                f"{text} is not set on every way: ask getattr(self, {node.attr!r}, False)"
                if ours
                else f"nothing sets {text}"
            )
        return f"the stock code does not look up {text} here, so it may be missing"

    def _call(self, node: ast.Call) -> str | None:
        """Return what is wrong with the number and names of the arguments that the guard is asked with."""
        takes = self.asked
        if takes is None:
            return None
        positional = [each.arg for each in (*takes.posonlyargs, *takes.args)]
        given = len(node.args)
        if given > len(positional) and takes.vararg is None:
            return f"the guard takes {len(positional)} argument(s) and is asked with {given}"
        named = {keyword.arg for keyword in node.keywords}
        open_names = {each.arg for each in (*takes.args, *takes.kwonlyargs)}
        if odd := sorted(str(name) for name in named - open_names if takes.kwarg is None):
            return f"the guard takes no argument {odd[0]}"
        if twice := sorted(named.intersection(positional[:given])):  # type: ignore[type-var]
            return f"the guard gets its argument {twice[0]} twice"
        needed = positional[: len(positional) - len(takes.defaults)][given:]
        needed += [
            each.arg for each, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if default is None
        ]
        missing = [name for name in needed if name not in named]
        return f"the guard is asked without its argument {missing[0]}" if missing else None

    def annotation(self, node: ast.expr, at: ast.stmt, scope: Scope) -> str | None:
        """Return how evaluating an annotation could raise, or None."""
        if isinstance(node, ast.Constant):
            return None
        if isinstance(node, ast.Name | ast.Attribute):
            return self.fault(node, at, scope)
        if isinstance(node, ast.BinOp):
            return self._union(node, at, scope)
        if isinstance(node, ast.Subscript):
            return self._generic(node, at, scope)
        return _QUOTE

    def _union(self, node: ast.BinOp, at: ast.stmt, scope: Scope) -> str | None:
        sides = (node.left, node.right)
        if not isinstance(node.op, ast.BitOr) or all(isinstance(side, ast.Constant) for side in sides):
            return _QUOTE
        for side in sides:
            if isinstance(side, ast.Constant):
                if side.value is not None:
                    return _QUOTE
            elif isinstance(side, ast.Name | ast.Attribute) and not self._is_class(side):
                return _QUOTE
            elif fault := self.annotation(side, at, scope):
                return fault
        return None

    def _is_class(self, node: ast.expr) -> bool:
        """Whether a name is a class, as far as can be seen: a builtin one, one of this file, or an import spelled like one."""
        if isinstance(node, ast.Name) and node.id not in self.names.imports:
            builtin = isinstance(getattr(builtins, node.id, None), type)
            return builtin or any(
                isinstance(each, ast.ClassDef) and each.name == node.id for each in ast.walk(self.stock)
            )
        last = (self.names.dotted(node) or "").rpartition(".")[2]
        return last[:1].isupper() or self.names.dotted(node) in _WELL_KNOWN

    def _generic(self, node: ast.Subscript, at: ast.stmt, scope: Scope) -> str | None:
        dotted = self.names.dotted(node.value) or ""
        name = dotted.rpartition(".")[2]
        if isinstance(node.value, ast.Name) and not dotted:
            wanted = _GENERIC.get(node.value.id)
        else:
            wanted = _TYPING.get(name) if dotted.startswith(_LIBRARIES) else None
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if wanted is None or not inside or (wanted and len(inside) != wanted):
            return _QUOTE
        if fault := self.fault(node.value, at, scope):
            return fault
        if name == "Literal":
            return None if all(isinstance(each, ast.Constant) for each in inside) else _QUOTE
        if name == "Callable":
            first = inside[0]
            if not isinstance(first, ast.List) and not (isinstance(first, ast.Constant) and first.value is ...):
                return _QUOTE
            inside = [*(first.elts if isinstance(first, ast.List) else []), inside[1]]
        for each in inside:
            if isinstance(each, ast.Constant) and not _is_type_text(each):
                return _QUOTE
            if not isinstance(each, ast.Constant) and (fault := self.annotation(each, at, scope)):
                return fault
        return None

    def base(self, node: ast.expr, at: ast.stmt, scope: Scope, registers: bool) -> str | None:
        """Return why a class cannot surely be derived from ``node``; ``registers``: whether classes of the repository do so."""
        if not self._is_class(node) or (
            isinstance(node, ast.Name) and node.id in ("bool", "slice", "range", "memoryview")
        ):
            return f"{ast.unparse(node)} may be no class to derive from"
        classes = {each.name: each for each in ast.walk(self.stock) if isinstance(each, ast.ClassDef)}
        current = classes.get(node.id) if isinstance(node, ast.Name) else None
        for _ in range(len(classes)):
            if current is None:
                break
            hooks = any(isinstance(each, ast.FunctionDef) and each.name == "__init_subclass__" for each in current.body)
            if hooks or current.keywords:
                return f"{current.name} runs code for every class derived from it"
            first = current.bases[0] if current.bases else None
            current = classes.get(first.id) if isinstance(first, ast.Name) else None
        dotted = self.names.dotted(node) or ""
        if registers and dotted and not dotted.startswith((*_LIBRARIES, "torch.", "abc.", "enum.", "contextlib.")):
            return f"{dotted} may run code for every class derived from it"
        return self.fault(node, at, scope)


def _is_number(node: ast.UnaryOp) -> bool:
    value = node.operand.value if isinstance(node.operand, ast.Constant) else None
    if isinstance(node.op, ast.Not):
        return isinstance(node.operand, ast.Constant)
    kinds = (int,) if isinstance(node.op, ast.Invert) else (int, float, complex)
    return isinstance(value, kinds)


def _is_type_text(node: ast.Constant) -> bool:
    """Whether a constant may stand in the brackets of a type: None, ``...``, or a text that is an expression."""
    if isinstance(node.value, str):
        try:
            body = parse_python(node.value.strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return len(body) == 1 and isinstance(body[0], ast.Expr)
    return node.value is None or node.value is ...
