"""Configurations that a guard is asked with: the switch unset, with another value, and as the manifest writes it.

Part of the jailed half of the probe: standard library only, no other file of ours. In which form a guard is given the
configuration is not known: an object, a table, either in the other, or the value alone. So there are several *shapes*, and in
each the same questions; they note what is looked up in them and what is changed.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

CHANGING = ("update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "add")
_SWITCH = re.compile(r"(?:--)?([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\s*==?\s*(\S.*)")
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False, "none": None, "null": None}
NOT_HASHABLE = ", not hashable"
MADE_UP = f"x{os.urandom(4).hex()}"
"""A value that nobody can have foreseen."""
UNSET = type("Unset", (), {"__repr__": lambda _: "nothing"})()
"""In place of a value: the setting is not there."""


class Switch(NamedTuple):
    """A setting: where it lies, and what it may look like where the user made it."""

    path: tuple[str, ...]
    exact: tuple[Any, ...]

    @property
    def is_flag(self) -> bool:
        """Whether the setting is on or off, and not a word of several."""
        return any(value is True or value == 1 for value in self.exact)

    @property
    def is_word(self) -> bool:
        """Whether the setting can only be a text: then any other text is a value as well."""
        return all(isinstance(value, str) for value in self.exact)

    def others(self) -> tuple[Any, ...]:
        """Return values that do not ask for the path: of a switch that is on or off, those that are off."""
        if self.is_flag:
            return (False, 0, "", None)
        plain = ("other", MADE_UP, "auto", "off", "", None, False, 0, True, 1, 4711)
        return tuple(
            value for value in plain if not any(value == each and type(value) is type(each) for each in self.exact)
        )


def switch(text: str) -> Switch | None:
    """Read ``setting=value``; None if the text has another form."""
    found = _SWITCH.fullmatch(text.strip())
    if found is None:
        return None
    path = tuple(found[1].replace("-", "_").split("."))
    word = found[2].strip().strip("'\"")
    values: list[Any] = [word]
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        values.append(ast.literal_eval(found[2].strip()))
    values.extend([_WORDS[word.casefold()]] if word.casefold() in _WORDS else [])
    if values[-1] is True or word == "1":
        values.extend([True, 1, "1", "true"])
    kinds = {(type(value), repr(value)): value for value in values}
    return Switch(path, tuple(kinds.values()))


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


class Shape(NamedTuple):
    """One form in which a configuration may be given, and what a yes to it means while the switch is off."""

    name: str
    make: Callable[[Any, Log], Any]
    agree: bool = False
    """Whether it is true to every comparison."""
    counts: bool = True
    """Whether a yes is a fault: not where other things than the switch are set."""
    blind: bool = True
    """Whether it is one also of a guard that did not look the switch up."""
    raw: bool = False
    table: bool = False
    """Whether the innermost container is a table, in which the setting may be missing."""


_MIXTURES = 64
_HELD: tuple[tuple[str, Callable[[str], Any] | None, bool, bool, bool], ...] = (
    ("more", None, False, True, False), ("nothing", lambda _: None, False, True, True),
    ("zeros", lambda _: 0, False, True, True), ("empty tables", lambda _: {}, False, True, True),
    ("ones", lambda _: 1, False, False, False),
    ("whatever is wanted", None, True, False, False),
)  # fmt: skip
"""What else an object may hold: its name, a maker of it, then as in :class:`Shape`."""


def shapes(path: tuple[str, ...], owner: str) -> Iterator[Shape]:
    """Yield every form; ``owner`` is the package that the classes seem to come from."""
    for depth in range(len(path)):
        below = path[depth:]
        for kind in ("object", "table", "data class", "object of objects"):
            innermost = kind == "table" or (kind != "object of objects" and len(below) > 1)
            yield Shape(f"{kind} with {'.'.join(below)}", _nested(kind, below, owner), table=innermost)
    yield Shape("the value alone", lambda value, _: None if value is UNSET else value, raw=True)
    for kind_of in (Deep, Unhashable):
        hashed = "" if kind_of is Deep else NOT_HASHABLE
        for name, unknown, agree, counts, blind in _HELD:
            yield Shape(f"an object that also holds {name}{hashed}", _deep(kind_of, unknown), agree, counts, blind)

    for number in range(_MIXTURES):
        yield Shape(
            f"an object that also holds mixture {number}", _deep(Deep, _mixture(number)), number % 2 == 0, counts=False
        )


def _mixture(number: int) -> Callable[[str], Any]:
    """Return what an object holds by name, so that guards that ask for several features at once find them in some mixture."""
    kinds = (None, 0, 1, UNSET)
    return lambda name: kinds[zlib.crc32(f"{number} {name}".encode()) % len(kinds)]


def _deep(kind: type[Deep], unknown: Callable[[str], Any] | None) -> Callable[[Any, Log], Any]:
    return lambda value, log: kind(log, value, unknown)


def _nested(kind: str, path: tuple[str, ...], owner: str) -> Callable[[Any, Log], Any]:
    """Return a maker of containers in one another. The innermost is a table, unless objects are asked for throughout."""

    def make(value: Any, log: Log) -> Any:
        held: Any = value
        for at, name in enumerate(reversed(path)):
            innermost = at == 0
            table = kind == "table" or (innermost and kind != "object of objects" and len(path) > 1)
            fields = {name: held, "other": 1}
            if held is UNSET:
                fields = {"other": 1} if table else {name: None, "other": 1}
            held = _table(fields, log) if table else _object(fields, log, owner, data=kind == "data class")
        return held

    return make


def _table(fields: dict[str, Any], log: Log) -> Table:
    made = Table(fields)
    _LOGS[id(made)] = log
    log.keep(made)
    return made


def _object(fields: dict[str, Any], log: Log, owner: str, *, data: bool) -> Thing:
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
