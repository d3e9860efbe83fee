"""Objects and tables that note what is looked up in them and what is changed: a guard is asked with these.

Part of the jailed half of the probe: standard library only, no other file of ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

CHANGING = ("update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "add")
UNSET = type("Unset", (), {"__repr__": lambda _: "nothing"})()
"""In place of a value: the setting is not there."""


class Log:
    """What happened to one configuration while it was looked at."""

    def __init__(self, path: tuple[str, ...], agree: bool) -> None:
        self.path = path
        self.agree = agree
        self.looked = self.truth = False
        self.changes: list[str] = []
        self._held: list[tuple[dict[Any, Any], dict[Any, Any]]] = []

    def saw(self, name: object) -> None:
        """Note that something was looked up."""
        self.looked = self.looked or not self.path or name == self.path[-1]

    def keep(self, table: dict[Any, Any]) -> None:
        """Hold a table's state, to be compared at the end."""
        self._held.append((table, dict(dict.items(table))))

    def changed(self) -> list[str]:
        """Return what was changed, by whatever means."""
        for table, before in self._held:
            if dict(dict.items(table)) != before and not self.changes:
                self.changes.append("changes what it is asked with")
        return sorted(set(self.changes))


_LOGS: dict[int, Log] = {}
"""By identity of the object, so that nothing shows in its dictionary."""


class Table(dict):  # type: ignore[type-arg]
    """A table that notes what is done with it."""

    def __getitem__(self, name: Any) -> Any:
        _LOGS[id(self)].saw(name)
        return dict.__getitem__(self, name)

    def get(self, name: Any, default: Any = None) -> Any:
        """Look up, as a dictionary does."""
        _LOGS[id(self)].saw(name)
        return dict.get(self, name, default)

    def __contains__(self, name: object) -> bool:
        _LOGS[id(self)].saw(name)
        return dict.__contains__(self, name)

    def __bool__(self) -> bool:
        _LOGS[id(self)].truth = True
        return len(self) > 0


def _reading(name: str) -> Any:
    def method(self: Table, *arguments: Any) -> Any:
        for key in dict.keys(self):
            _LOGS[id(self)].saw(key)
        _LOGS[id(self)].looked = True
        return getattr(dict, name)(self, *arguments)

    return method


def _writing(name: str) -> Any:
    def method(self: Table, *arguments: Any, **more: Any) -> Any:
        _LOGS[id(self)].changes.append(f"calls .{name}()")
        return getattr(dict, name)(self, *arguments, **more)

    return method


for _name in ("__iter__", "keys", "items", "values", "copy", "__or__", "__ror__", "__eq__"):
    setattr(Table, _name, _reading(_name))
for _name in ("__setitem__", "__delitem__", "__ior__", "update", "setdefault", "pop", "popitem", "clear"):
    setattr(Table, _name, _writing(_name))


class Thing:
    """An object with attributes that notes what is done with it."""

    def __getattribute__(self, name: str) -> Any:
        log = _LOGS.get(id(self))
        if log is not None and (not name.startswith("__") or name == "__dict__"):
            log.saw(log.path[-1] if name == "__dict__" and log.path else name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if id(self) in _LOGS:
            _LOGS[id(self)].changes.append(f"sets .{name}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if id(self) in _LOGS:
            _LOGS[id(self)].changes.append(f"deletes .{name}")
        object.__delattr__(self, name)

    def __bool__(self) -> bool:
        _LOGS[id(self)].truth = True
        return True


class Deep:
    """A configuration that has whatever is asked for: attributes, items, calls. The setting lies at any depth of it.

    What else it holds is ``unknown``: by default more of the same, which is false, or true, with ``agree``, to every comparison.
    """

    def __init__(self, log: Log, value: Any, unknown: Callable[[str], Any] | None, name: str = "") -> None:
        object.__setattr__(self, "_parts", (log, value, unknown, name))

    def _look(self, name: Any, missing: Any) -> Any:
        log, value, unknown, _ = object.__getattribute__(self, "_parts")
        log.saw(name)
        if log.path and name == log.path[-1]:
            return missing if value is UNSET else value
        more = type(self)(log, value, unknown, str(name))
        held = unknown(str(name)) if unknown and name not in log.path else UNSET
        return more if held is UNSET else held

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._look(name, None)

    def get(self, name: Any, default: Any = None) -> Any:
        """Look up, as a dictionary does."""
        return self._look(name, default)

    def __getitem__(self, name: Any) -> Any:
        found = self._look(name, UNSET)
        if found is UNSET:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        log, value, _, _ = object.__getattribute__(self, "_parts")
        log.saw(name)
        return value is not UNSET if log.path and name == log.path[-1] else bool(log.agree)

    def __call__(self, *_: Any, **__: Any) -> Any:
        log, value, unknown, name = object.__getattribute__(self, "_parts")
        if name in CHANGING:
            log.changes.append(f"calls .{name}()")
        held = unknown(name) if unknown else UNSET
        return type(self)(log, value, unknown) if held is UNSET else held

    def _change(self, name: Any, *_: Any) -> None:
        object.__getattribute__(self, "_parts")[0].changes.append(f"changes {name}")

    __setattr__ = __delattr__ = __setitem__ = __delitem__ = _change

    def _agrees(self, *_: Any) -> bool:
        return bool(object.__getattribute__(self, "_parts")[0].agree)

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _agrees
    __len__ = __int__ = __index__ = _agrees

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        log = object.__getattribute__(self, "_parts")[0]
        log.truth = True
        return bool(log.agree)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Unhashable(Deep):
    """As above, and as a data class that can be compared: no key of a table."""

    __hash__ = None  # type: ignore[assignment]


def table_of(fields: dict[str, Any], log: Log) -> Table:
    """Return a table that notes into ``log``."""
    made = Table(fields)
    _LOGS[id(made)] = log
    log.keep(made)
    return made


def object_of(fields: dict[str, Any], log: Log, owner: str, *, data: bool) -> Thing:
    """Return an object with these attributes whose class seems to come from ``owner``; a data class if ``data``."""
    space = {"__module__": owner}
    if data:
        kind = dataclasses.make_dataclass("Config", list(fields), bases=(Thing,), namespace=space)
        made: Thing = kind(**fields)
    else:
        made = type("Config", (Thing,), space)()
        object.__getattribute__(made, "__dict__").update(fields)
    _LOGS[id(made)] = log
    log.keep(object.__getattribute__(made, "__dict__"))
    return made


def forget() -> None:
    """Let go of the objects of the last question."""
    _LOGS.clear()
