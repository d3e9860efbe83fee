"""What the names of a Python file stand for outside it: scope by scope, through imports, aliases and look-ups by text.

Two passes. The first notes for each name which expressions were given to it, also by way of an own object's attribute, an own
function's parameter or answer, a loop, a ``with`` or a ``match``. The second asks, and only then is an expression followed: of the
names of a file few are ever asked for.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from gatekeeper.domain.hook_additions import within
from gatekeeper.domain.zone_texts import text_of

BUILTINS = frozenset({
    "exec", "eval", "compile", "__import__", "setattr", "delattr", "vars", "getattr", "open", "object", "type", "dict", "list", "set",
    "map", "filter", "__build_class__",
})  # fmt: skip
"""Builtins that have a dotted name here: their own."""
IMPORTS = ("importlib.import_module", "__import__", "importlib.__import__")
ANCESTORS = ("__mro__", "__bases__", "__base__", "mro")
INSIDES = (*ANCESTORS, "__globals__", "__builtins__")
"""Attributes by which own objects lead to those of others: base classes, and the names of a function's module."""

_PLAIN_BUILTINS = frozenset(dir(builtins))
_MODULE_TABLE = ("get", "pop", "setdefault", "__getitem__")
_PASSING = frozenset({"contextlib.nullcontext", "contextlib.closing", "copy.copy", "weakref.proxy"})
"""Calls that give back what they were given."""
_ITEMS = frozenset({"zip", "enumerate", "reversed", "sorted", "list", "tuple", "iter", "set", "next", "dict", "map", "filter",
                    "frozenset"})  # fmt: skip
_VIEWS = ("values", "items", "copy", "get", "pop")

Given = tuple[ast.AST, "Env"]
Env = tuple["Scope", ...]


class Scope:
    """One module, class, function or comprehension. ``given`` holds what was given to a name beside its meaning in ``names``."""

    __slots__ = ("asked", "given", "names")

    def __init__(self, arguments: set[str]) -> None:
        self.names: dict[str, str | None] = dict.fromkeys(arguments)
        self.given: dict[str, list[Given]] = {}
        self.asked: set[str] = set()

    def give(self, name: str, value: ast.AST, env: Env) -> None:
        """Note that a name gets the value of an expression."""
        self.names.setdefault(name)
        self.given.setdefault(name, []).append((value, env))


class Meanings:
    """What the names of one file stand for. ``modules`` holds what ``import x.y`` statements named."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.modules: set[str] = set()
        self.attributes: dict[str, list[Given]] = {}
        """What own objects' attributes were given, by their names."""
        self.answers: dict[str, list[Given]] = {}
        """What own functions return or yield, by their names."""
        self.env: Env = ()
        self._attributes: dict[str, str | None] = {}
        self._asking: set[int] = set()

    def dotted(self, node: ast.AST, env: Env | None = None) -> str | None:
        """Return what a chain of attributes, items and look-ups begins with outside this file, spelled out; else None."""
        env = self.env if env is None else env
        kind = type(node)
        if kind is ast.Name:
            return self._lookup(node.id, env)  # type: ignore[attr-defined]
        if kind is ast.Attribute:
            base = self.dotted(node.value, env)  # type: ignore[attr-defined]
            return f"{base}.{node.attr}" if base else self._own(node.attr)  # type: ignore[attr-defined]
        if isinstance(node, ast.Subscript):
            return self._item(node, env)
        if isinstance(node, ast.NamedExpr):
            return self.dotted(node.value, env)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            either = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return next((name for each in either if (name := self.dotted(each, env))), None)
        if isinstance(node, ast.Await | ast.Starred):
            return self.dotted(node.value, env)
        return self._call(node, env) if isinstance(node, ast.Call) else None

    def makers(self, node: ast.AST, env: Env | None = None) -> Iterator[str]:
        """Yield the dotted names of the calls whose result an expression is."""
        env = self.env if env is None else env
        if isinstance(node, ast.Call):
            if made := self.dotted(node.func, env):
                yield made
            return
        for value, around in self._values(node, env):
            if isinstance(value, ast.Call) and (made := self.dotted(value.func, around)):
                yield made

    def foreign(self, node: ast.AST) -> str | None:
        """Return the dotted name of something that belongs to somebody else, or None."""
        target = self.dotted(node)
        if target is None or target in BUILTINS or self.own(target):
            return None
        return target

    def own(self, dotted: str) -> bool:
        """Whether a dotted name lies in the directory."""
        return within(dotted.partition("[")[0], self.package)

    def _best(self, names: list[str | None]) -> str | None:
        """Of several meanings of one name, one that is not the directory's own goes first: any of them may be what runs."""
        known = [name for name in names if name]
        return next((name for name in known if not self.own(name)), known[0] if known else None)

    def _lookup(self, name: str, env: Env) -> str | None:
        for scope in reversed(env):
            names = scope.names
            if name in names:
                if name in scope.given and name not in scope.asked:
                    scope.asked.add(name)
                    values = [self.dotted(value, around) for value, around in scope.given[name]]
                    names[name] = self._best([names[name], *values])
                return names[name]
        if name == "__builtins__":
            return "builtins"
        if name in _PLAIN_BUILTINS:
            return name if name in BUILTINS else None
        everything = next((scope.names["*"] for scope in env if scope.names.get("*")), None)
        return everything and f"{everything.removesuffix('*')}{name}"  # after a star import any name may be foreign

    def _own(self, name: str) -> str | None:
        """Return the meaning of an attribute of something own."""
        if name in self.attributes:
            if name not in self._attributes:
                self._attributes[name] = None
                self._attributes[name] = self._best([self.dotted(*given) for given in self.attributes[name]])
            return self._attributes[name]
        return f"what {name} leads to" if name in INSIDES else None

    def _values(self, node: ast.AST, env: Env) -> list[Given]:
        """Return the expressions that were given to a name, to an attribute of something own, or that an own function returns."""
        if isinstance(node, ast.Name):
            return next((scope.given.get(node.id, []) for scope in reversed(env) if node.id in scope.names), [])
        if isinstance(node, ast.Attribute):
            return self.attributes.get(node.attr, [])
        if isinstance(node, ast.Call):
            return self.answers.get(called_name(node) or "", [])
        return []

    def _call(self, node: ast.Call, env: Env) -> str | None:
        called = self.dotted(node.func, env)
        if called is None:
            name = called_name(node)
            if name in self.answers:
                return self._through(node, self.answers[name])
            if name in _ITEMS or (name in _VIEWS and isinstance(node.func, ast.Attribute)):
                return self._element(node, env, None)
            return self._handed(node, env) if node.args and name not in _PLAIN_BUILTINS else None
        if called == "what mro leads to":
            return called
        if not node.args:
            return None
        if called == "type" and len(node.args) == 1:
            base = self.dotted(node.args[0], env)
            return base and f"{base}.__class__"
        if called in ("vars", "getattr"):
            base = self.dotted(node.args[0], env)
            name = text_of(node.args[1]) if called == "getattr" and len(node.args) > 1 else None
            if base is None:
                return self._own(name) if name else None
            return f"{base}.{name}" if name else base
        if called in IMPORTS:
            return text_of(node.args[0]) or "?"
        table, _, method = called.rpartition(".")
        if is_module_table(table) and method in _MODULE_TABLE:
            return self._module(node.args[0])
        return self.dotted(node.args[0], env) if called in _PASSING else self._handed(node, env)

    def _handed(self, node: ast.Call, env: Env) -> str | None:
        """Return a module that a call was handed: what somebody makes of a module may well be that module."""
        for each in node.args:
            if isinstance(each, ast.Name | ast.Attribute) and (name := self.dotted(each, env)) in self.modules:
                return name
        return None

    def _module(self, key: ast.expr) -> str | None:
        """Return which module an entry of the table of all modules is; None for the own one."""
        if isinstance(key, ast.Name) and key.id in ("__name__", "__package__"):
            return None
        return text_of(key) or "sys.modules[]"

    def _item(self, node: ast.Subscript, env: Env) -> str | None:
        if (
            isinstance(node.value, ast.Call)
            and called_name(node.value) in ("globals", "locals")
            and not node.value.args
        ):
            return self._lookup(text_of(node.slice) or "", env)
        base = self.dotted(node.value, env)
        if base is None:
            return self._element(node.value, env, node.slice)
        if is_module_table(base):
            return self._module(node.slice)
        name = text_of(node.slice)
        if name and (base == "builtins" or base.endswith(".__dict__") or isinstance(node.value, ast.Call)):
            return f"{base.removesuffix('.__dict__')}.{name}"  # the namespace of a module, asked for one of its names
        return f"{base}[]"

    def _through(
        self, node: ast.AST, values: list[Given], key: ast.expr | None = None, *, items: bool = False
    ) -> str | None:
        if id(node) in self._asking:
            return None  # it asks for itself
        self._asking.add(id(node))
        try:
            return self._best([self._element(*each, key) if items else self.dotted(*each) for each in values])
        finally:
            self._asking.discard(id(node))

    def _element(self, node: ast.AST, env: Env, key: ast.expr | None) -> str | None:
        """Return what the members of a list or a table written out in this file stand for; with a constant ``key``, that one."""
        if isinstance(node, ast.Dict):
            text = text_of(key)
            pairs = [
                (value, env)
                for name, value in zip(node.keys, node.values, strict=True)
                if text in (None, text_of(name))
            ]
            return self._best([self.dotted(*pair) for pair in pairs])
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            members = node.elts
            if isinstance(key, ast.Constant) and isinstance(key.value, int) and 0 <= key.value < len(members):
                members = members[key.value : key.value + 1]
            return self._best([self.dotted(each, env) for each in members])
        if isinstance(node, ast.Call):
            name = called_name(node)
            if isinstance(node.func, ast.Attribute) and name in _VIEWS:
                return self._through(node, [(node.func.value, env)], node.args[0] if node.args else None, items=True)
            if name in _ITEMS and node.args:
                return self._through(node, [(each, env) for each in node.args], items=True)
            return self._through(node, self.answers.get(name or "", []), key, items=True)
        if isinstance(node, ast.Name | ast.Attribute):
            values = self._values(node, env)
            return self._through(node, values, key, items=True) if values else None
        base = self.dotted(node, env)
        return base and f"{base}[]"


def called_name(node: ast.Call) -> str | None:
    """Return the last name of what is called."""
    function = node.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else None


def is_module_table(dotted: str) -> bool:
    """Whether a dotted name is ``sys.modules``, by whatever module one comes to ``sys``."""
    return dotted == "sys.modules" or dotted.endswith(".sys.modules")
