"""The second pass over a Python file: what each of its nodes does to others, asked with the meanings that the first one gathered."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.domain import risky_names as risky
from gatekeeper.domain.python_imports import import_targets
from gatekeeper.domain.risky_attributes import frame_words, kind_of
from gatekeeper.domain.zone_calls import CODE, LAST_NAMES, MODE, MUTATION, Told, code_of, flat, risky_value, switch_of
from gatekeeper.domain.zone_names import IMPORTS, Meanings, called_name, is_module_table
from gatekeeper.domain.zone_scopes import FUNCTIONS, Gathering, Place
from gatekeeper.domain.zone_texts import is_below, is_opaque, text_of

_HANDED = {"exec", "eval", "compile", "__import__", "setattr", "delattr"}
_BUILT = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
_ENTERING = ("enter_context", "enter_async_context")


@dataclass(frozen=True)
class Seen:
    """One place: its reason code, line, what stands there, which explanation fits, and whether it runs as the file is imported."""

    code: str
    line: int
    found: str
    why: str = ""
    at_import: bool = False


@dataclass
class Reading:
    """What one file does. ``imports`` holds (dotted target, line) of every import, by statement and by call."""

    seen: list[Seen] = field(default_factory=list)
    imports: list[tuple[str, int]] = field(default_factory=list)
    names: list[Seen] = field(default_factory=list)
    """Names with letters that look like others."""
    unread: str | None = None
    """Why the file could not be read; None if it could."""


class Scan:
    """Reads one parsed file at ``path`` in the directory of dotted name ``package``."""

    def __init__(self, path: str, package: str, module: ast.Module) -> None:
        self.reading = Reading()
        self._path = path
        self._asleep = list(_asleep(module))
        self._at_import = True
        self._meanings = Meanings(package)
        self._told: set[int] = set()
        """Nodes about which nothing more is to be said: they belong to something told already, or are known to be harmless."""
        self._scoped: set[int] = set()
        """Calls that a ``with`` or a decorator takes back."""
        self._stacks: set[str] = set()
        """Names that a ``with`` gave to a stack of contexts."""
        self._in_stacks: list[Seen] = []
        """Contexts of PyTorch in stacks that a ``with`` closes, unless the stack is taken out of it."""
        self._kept = False
        self._visit(Gathering(self._meanings, path).module(module.body))
        self.reading.seen.extend(self._in_stacks if self._kept else ())

    def _visit(self, place: Place) -> None:
        """Read one module, class, function or comprehension, then what is defined inside it."""
        self._meanings.env, self._at_import = place.env, place.at_import
        for node in place.nodes:
            if act := _ACTS.get(type(node)):
                act(self, node)
        for node, inner in place.inner:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                self._outer(node)
            self._visit(inner)
            self._meanings.env, self._at_import = place.env, place.at_import

    def _outer(self, node: ast.AST) -> None:
        """Read what belongs to a definition but runs around it: decorators, defaults, bases."""
        parts: list[ast.expr] = list(getattr(node, "decorator_list", ()))
        self._scoped.update(map(id, parts))
        if isinstance(node, ast.ClassDef):
            parts += [*node.bases, *(keyword.value for keyword in node.keywords)]
            for base in node.bases:
                name = self._meanings.dotted(base) or ""
                if name in risky.TORCH_MODES or name in risky.BACKGROUND:
                    code = MODE if name in risky.TORCH_MODES else "EFF_BACKGROUND_WORK"
                    self._note((code, ""), node, f"class {node.name}({name})")
        elif isinstance(node, FUNCTIONS):
            parts += [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        for part in parts:
            for inner in ast.walk(part):
                if act := _ACTS.get(type(inner)):
                    act(self, inner)

    def _note(self, told: Told, node: ast.AST, found: str | None = None) -> None:
        """Remember a sight; without ``found`` the node itself is shown. Only here is it spelt out: most calls are harmless."""
        code, why = told
        line = getattr(node, "lineno", 1)
        text = (found or ast.unparse(node))[:160]
        self.reading.seen.append(Seen(code, line, text, why, self._awake(line)))

    def _awake(self, line: int) -> bool:
        return self._at_import and not any(first <= line <= last for first, last in self._asleep)

    def _attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._stored(node)
        elif kind_of(node.attr) and id(node) not in self._told:
            self._reached(node.attr, node, node.value)

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "modules" and self._is_own([node.slice]):
            self._told.add(id(node.value))
        if not isinstance(node.ctx, ast.Load):
            self._stored(node)
        elif id(node) not in self._told and (name := text_of(node.slice)) and kind_of(name):
            self._reached(name, node, node.value)

    def _compare(self, node: ast.Compare) -> None:
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            self._told.update(map(id, node.comparators))  # whether a module was loaded may be asked

    def _import(self, node: ast.Import) -> None:
        self.reading.imports.extend((alias.name, node.lineno) for alias in node.names)

    def _import_from(self, node: ast.ImportFrom) -> None:
        targets = [target for _, target in import_targets(node, self._path)]
        self.reading.imports.extend((target, node.lineno) for target in targets)
        if any(map(is_module_table, targets)):
            self._note((CODE, "modules"), node)

    def _in_place(self, node: ast.AugAssign) -> None:
        built = isinstance(node.op, ast.BitOr) or isinstance(node.value, _BUILT)
        if built and isinstance(node.target, ast.Name) and self._meanings.foreign(node.target):
            self._note((MUTATION, ""), node)  # in place, where it is a table or a list

    def _pattern(self, node: ast.MatchClass) -> None:
        if any(map(frame_words, node.kwd_attrs)):
            self._note((CODE, "frames"), node)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for each in node.items:
            self._scoped.add(id(each.context_expr))
            if isinstance(each.optional_vars, ast.Name):
                self._stacks.add(each.optional_vars.id)

    def _stored(self, node: ast.Attribute | ast.Subscript) -> None:
        if self._meanings.foreign(node.value):
            self._note((MUTATION, ""), node, f"a change of {ast.unparse(node)}")
            self._told.update(map(id, ast.walk(node)))

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if not isinstance(value, str | bytes):
            return
        if isinstance(value, str) and frame_words(value):
            self._note((CODE, "frames"), node)
        elif len(value) > 999 and is_opaque(text := value if isinstance(value, str) else value.decode("latin-1")):
            self._note(("SRC_OPAQUE_DATA", ""), node, f"a text of {len(text)} characters that holds encoded data")

    def _reached(self, name: str, node: ast.AST, base: ast.expr) -> None:
        """Tell of an attribute that leads to what is everybody's, spelled with a dot, by ``getattr`` or in a namespace."""
        kind = kind_of(name)
        if kind == "frames":
            self._note((CODE, "frames"), node)
            self._told.update(map(id, ast.walk(node)))
        elif kind == "modules":
            if is_module_table(self._meanings.dotted(node) or ""):
                self._note((CODE, "modules"), node)
        elif kind == "enter":
            if self._of_torch(base):
                self._note((MODE, "held"), node)
        elif told := switch_of(self._meanings.dotted(node) or "", scoped=False):
            self._note(told, node)

    def _of_torch(self, node: ast.expr) -> bool:
        """Whether something is a context of PyTorch, or what makes one."""
        known = (*self._meanings.makers(node), self._meanings.dotted(node) or "")
        return any(each.startswith("torch.") for each in known)

    def _call(self, node: ast.Call) -> None:
        name = called_name(node)
        if name == "pop_all" and not node.args:
            self._kept = True
        if name in _ENTERING and node.args:
            self._entered(node)
        scoped = id(node) in self._scoped
        self._handed(node)
        called = self._meanings.dotted(node.func)
        if called is None:
            self._applied(node)
            return
        called = called.removeprefix("builtins.")
        if called == "getattr" and len(node.args) > 1:
            self._looked_up(node)
        elif called in risky.CHANGES_FIRST:
            if node.args and self._meanings.foreign(node.args[0]):
                self._change(node)
        elif called in IMPORTS:
            self._imported(node)
        else:
            table, _, method = called.rpartition(".")
            if is_module_table(table) and method in ("get", "__getitem__") and self._is_own(node.args[:1]):
                self._told.update(map(id, ast.walk(node.func)))
            told = code_of(called, node, self._meanings, awake=self._awake(node.lineno), scoped=scoped)
            if told:
                self._note(told, node)
            if told or scoped:
                self._told.update(map(id, ast.walk(node.func)))

    def _change(self, node: ast.Call) -> None:
        self._note((MUTATION, ""), node)
        self._told.update(map(id, ast.walk(node)))

    def _is_own(self, key: list[ast.expr]) -> bool:
        """Whether a key of the table of all modules is the own module's."""
        if not key:
            return False
        first = key[0]
        if isinstance(first, ast.Name) and first.id in ("__name__", "__package__"):
            return True
        text = text_of(first)
        return text is not None and self._meanings.own(text)

    def _applied(self, node: ast.Call) -> None:
        """A call of what a call gave: ``operator.methodcaller("update", x)(table)``."""
        made = node.func if isinstance(node.func, ast.Call) else None
        if not made or not node.args or not made.args or self._meanings.dotted(made.func) != "operator.methodcaller":
            return
        if text_of(made.args[0]) in risky.CHANGES_CONTAINER and self._meanings.foreign(node.args[0]):
            self._change(node)

    def _looked_up(self, node: ast.Call) -> None:
        name, base = text_of(node.args[1]), self._meanings.dotted(node.args[0]) or ""
        if name is None:
            if base.startswith(("torch._C", "torch.backends")) and id(node) not in self._told:
                self._note((CODE, ""), node)  # any setting may be meant
        elif kind_of(name) and id(node) not in self._told:
            self._reached(name, node, node.args[0])

    def _entered(self, node: ast.Call) -> None:
        """Tell of a context of PyTorch that is handed to a stack which no ``with`` of this file closes."""
        stack = node.func.value if isinstance(node.func, ast.Attribute) else None
        if any(map(self._of_torch, node.args)):
            self._note((MODE, "held"), node)
            if isinstance(stack, ast.Name) and stack.id in self._stacks:
                self._in_stacks.append(self.reading.seen.pop())

    def _handed(self, node: ast.Call) -> None:
        """Note what is handed to somebody else, who will call it: ``map(exec, texts)``, ``partial(setattr, module)``."""
        if called_name(node) in ("isinstance", "issubclass", "hasattr"):
            return  # they only look at it
        for each in node.args:
            if isinstance(each, ast.Name) and each.id in _HANDED:
                name = self._meanings.dotted(each)
                if name in risky.RUNS_CODE:
                    self._note((CODE, ""), node)
                elif name in risky.CHANGES_FIRST and any(self._meanings.foreign(one) for one in flat(node.args)):
                    self._note((MUTATION, ""), node)
            elif isinstance(each, ast.Attribute) and each.attr in LAST_NAMES and id(each) not in self._told:
                code = risky_value(self._meanings.dotted(each) or "", self._meanings)
                if code:
                    self._note((code, ""), node)
                    self._told.add(id(each))

    def _imported(self, node: ast.Call) -> None:
        name = node.args[0] if node.args else None
        text = text_of(name)
        if text is not None and not text.startswith("."):
            self.reading.imports.append((text, node.lineno))
            return
        around = text_of(node.args[1]) if len(node.args) > 1 else None
        if text is not None and around is not None and not self._meanings.own(around):
            self.reading.imports.append((around + text, node.lineno))
        elif not is_below(name):
            self._note((CODE, ""), node)


def _asleep(module: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the lines (first, last) of what does not run when the file is imported: for type checkers, or as a program."""
    for node in module.body:
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            if test.endswith("TYPE_CHECKING") or re.fullmatch(r"__name__ == '__main__'|'__main__' == __name__", test):
                yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno


_ACTS: dict[type, Callable[[Scan, Any], None]] = {
    ast.Attribute: Scan._attribute,
    ast.Subscript: Scan._subscript,
    ast.Call: Scan._call,
    ast.Constant: Scan._constant,
    ast.Compare: Scan._compare,
    ast.Import: Scan._import,
    ast.ImportFrom: Scan._import_from,
    ast.AugAssign: Scan._in_place,
    ast.With: Scan._with,
    ast.AsyncWith: Scan._with,
    ast.MatchClass: Scan._pattern,
}
"""What is asked of each kind of node; of all others nothing is."""
