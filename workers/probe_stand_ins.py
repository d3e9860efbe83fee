"""Stand-ins for modules of the framework, which is not there while a directory is probed: whoever patches them shows it.

Part of the jailed half of the probe: standard library only, no other file of ours. It runs in a process of its own, forked before
the directory is imported for the first time. There every module that the directory names and that cannot be imported stands in
``sys.modules``, and gives something harmless for each of its attributes. What importing the directory then sets, deletes or puts
into a table of one of them is what it would do to stock. What fails there is no fault: a stand-in is no framework.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

Fault = tuple[str, str, str, str]
SECONDS = 30.0
_MOST = 16
_CHANGING = ("update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove")
_OWN = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__path__", "__file__", "__builtins__")


class Thing:
    """Something of a stand-in: it can be called, inherited from and asked for anything. ``where`` is None for what a call gave."""

    def __init__(self, where: str | None, changes: dict[str, None]) -> None:
        object.__setattr__(self, "_told", (where, changes))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        where, changes = object.__getattribute__(self, "_told")
        return Thing(where and f"{where}.{name}", changes)

    def __setattr__(self, name: str, value: object) -> None:
        self._note(name)

    def __delattr__(self, name: str) -> None:
        self._note(name)

    def __getitem__(self, key: object) -> Any:
        where, changes = object.__getattribute__(self, "_told")
        return Thing(where and f"{where}[]", changes)

    def __setitem__(self, key: object, value: object) -> None:
        self._note("[]")

    def __delitem__(self, key: object) -> None:
        self._note("[]")

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        where, changes = object.__getattribute__(self, "_told")
        if where and where.rpartition(".")[2] in _CHANGING:
            changes[where] = None
        if len(arguments) == 1 and isinstance(arguments[0], type | FunctionType):
            return arguments[0]  # a decorator, as a rule
        return Thing(None, changes)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __contains__(self, item: object) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _note(self, name: str) -> None:
        where, changes = object.__getattribute__(self, "_told")
        if where:
            changes[f"{where}{name}" if name == "[]" else f"{where}.{name}"] = None


class StandIn(ModuleType):
    """A module that is not there."""

    def __init__(self, name: str, changes: dict[str, None]) -> None:
        super().__init__(name)
        vars(self)["__path__"] = []
        vars(self)["__spec__"] = importlib.util.spec_from_loader(name, None)
        vars(self)["_gatekeeper_changes"] = changes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        where = f"{self.__name__}.{name}"
        known = sys.modules.get(where)
        return known if isinstance(known, StandIn) else Thing(where, vars(self)["_gatekeeper_changes"])


def place(names: Iterable[str], package: str) -> dict[str, StandIn]:
    """Put a stand-in for each module that is not there, and for the packages around it; return them by name."""
    changes: dict[str, None] = {}
    placed: dict[str, StandIn] = {}
    top = package.partition(".")[0]
    for name in names:
        parts = name.split(".")
        known = parts[0] == top or parts[0] in placed
        if parts[0] in sys.stdlib_module_names or (not known and _there(parts[0])):
            continue
        for depth in range(1, len(parts) + 1):
            each = ".".join(parts[:depth])
            if each in sys.modules or each == package or each.startswith(package + "."):
                continue
            sys.modules[each] = placed[each] = StandIn(each, changes)
    return placed


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def changed(placed: Mapping[str, StandIn]) -> Iterator[str]:
    """Yield what was changed, by dotted names."""
    for name, module in placed.items():
        if sys.modules.get(name) is not module:
            yield f"sys.modules[{name!r}]"
        yield from (f"{name}.{key}" for key in vars(module) if key not in _OWN and key != "_gatekeeper_changes"
                    and not isinstance(vars(module)[key], ModuleType))  # fmt: skip
    for module in list(placed.values())[:1]:
        yield from vars(module)["_gatekeeper_changes"]


def faults(names: Iterable[str], package: str, modules: Iterable[str]) -> list[Fault]:
    """Import ``modules`` in a process of its own among stand-ins for ``names`` and return what they change."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            placed = place(names, package)
            for module in modules:
                try:
                    importlib.import_module(module)
                except BaseException:  # noqa: S112  (a stand-in is no framework)
                    continue
            found = [each[:300] for each in changed(placed)][:_MOST]
            os.write(write, json.dumps(found).encode()[:60000])
        finally:
            os._exit(0)
    os.close(write)
    told = _answer(read)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    return [("EFF_FOREIGN_MUTATION", each, "as it was", "changed as the directory is imported") for each in told]


def _answer(read: int) -> list[str]:
    data = b""
    while select.select([read], [], [], SECONDS)[0]:
        part = os.read(read, 1 << 16)
        if not part:
            break
        data += part
    try:
        found = json.loads(data)
    except ValueError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []
