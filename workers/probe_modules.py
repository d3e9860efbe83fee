"""The objects of loaded modules, spelled out one by one so that two looks at them can be compared.

Part of the jailed half of the probe: standard library only, no other file of ours.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

Fact = tuple[tuple[str, str], Any]
"""(code, where), value."""

QUIET = frozenset({"__builtins__", "__warningregistry__", "__cached__", "__annotations__", "__doc__", "__abstractmethods__",
                   "_abc_impl", "__dict__", "__weakref__", "__parameters__"})  # fmt: skip
"""Attributes that Python itself fills in late."""
QUIET_MODULES = frozenset({"__main__", "__mp_main__", "linecache", "re._parser", "_distutils_hack"})
QUIET_SYS = frozenset({"modules", "path_importer_cache", "meta_path", "path_hooks", "flags", "last_exc", "last_type",
                       "last_value", "last_traceback", "argv"})  # fmt: skip
HIDDEN_BUILTINS = frozenset({"__import__", "__build_class__"})
CACHES = ("cache", "warned", "seen", "logged", "already")
"""Words in the names of tables that modules fill for themselves while they are used."""


class Items:
    """Several objects, compared by identity. They are held, so that no other object takes one's address meanwhile."""

    __slots__ = ("held",)

    def __init__(self, held: tuple[Any, ...]) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Items) and len(self.held) == len(other.held) and all(
            mine is theirs for mine, theirs in zip(self.held, other.held, strict=True)
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.held)))

    def __str__(self) -> str:
        return f"{len(self.held)} object(s)"


def is_a(value: object, *kinds: type) -> bool:
    """As ``isinstance``, but asks the type only: objects may answer for ``__class__`` themselves, by running code."""
    return issubclass(type(value), kinds)


def objects(name: str, module: ModuleType) -> Iterator[Fact]:
    """Yield the module's type, its attributes, and what functions, classes and tables among these hold."""
    code = "EFF_BUILTINS" if module is builtins else "EFF_FOREIGN_MUTATION"
    standard = name.partition(".")[0] in sys.stdlib_module_names
    yield (code, f"{name}.__class__"), type(module)
    for key, value in list(vars(module).items()):
        if key in QUIET or (module is sys and key in QUIET_SYS):
            continue
        if standard and key.startswith("_") and not (module is builtins and key in HIDDEN_BUILTINS):
            continue
        where = f"{name}.{key}"
        yield (code, where), value
        if is_a(value, FunctionType) and value.__module__ == name:
            yield from _function(code, where, value)
        elif is_a(value, type) and value.__module__ == name:
            yield from _class(code, where, value, standard)
        elif not standard and not any(word in key.casefold() for word in CACHES):
            yield from _table(code, where, value)


def _function(code: str, where: str, function: FunctionType) -> Iterator[Fact]:
    yield (code, f"{where}.__code__"), function.__code__
    yield (code, f"{where}.__defaults__"), Items(function.__defaults__ or ())
    yield (code, f"{where}.__kwdefaults__"), Items(tuple((function.__kwdefaults__ or {}).values()))


def _class(code: str, where: str, kind: type, standard: bool) -> Iterator[Fact]:
    yield (code, f"{where}.__class__"), type(kind)
    yield (code, f"{where}.__bases__"), kind.__bases__
    for key, value in list(vars(kind).items()):
        if key in QUIET or (standard and key.startswith("_") and key[:2] != "__"):
            continue
        yield (code, f"{where}.{key}"), value
        inner = value.__func__ if is_a(value, staticmethod, classmethod) else value
        if is_a(inner, FunctionType):
            yield from _function(code, f"{where}.{key}", inner)


def _table(code: str, where: str, value: Any) -> Iterator[Fact]:
    if is_a(value, dict):
        for entry, held in list(value.items()):
            yield (code, f"{where}[{_named(entry)}]"), held
    elif is_a(value, list):
        yield (code, f"{where}[:]"), Items(tuple(value))
    elif is_a(value, set):
        yield (code, f"{where}{{}}"), Items(tuple(sorted(value, key=id)))


def _named(entry: Any) -> str:
    if type(entry) in (str, int, float, bool, bytes, type(None)):
        return repr(entry)[:200]
    return f"{getattr(entry, '__qualname__', type(entry).__qualname__)} {id(entry):#x}"


def loaded(below: Callable[[str], bool]) -> Iterator[Fact]:
    """Yield every entry of ``sys.modules``, and the objects of all modules but those whose name is ``below`` the foreign code."""
    for name, module in list(sys.modules.items()):
        yield ("EFF_IMPORT_HOOK", f"sys.modules[{name!r}]"), module
        if is_a(module, ModuleType) and not below(name) and name not in QUIET_MODULES:
            yield from objects(name, module)
