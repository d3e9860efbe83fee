"""Configurations that a guard is asked with: the switch unset, with another value, and as the manifest writes it.

Part of the jailed half of the probe: standard library only. In which form a guard is given the configuration is not known: an
object, a table, either in the other, or the value alone. So there are several *shapes*, and in each the same questions.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if __package__ or TYPE_CHECKING:
    from workers import probe_objects as objects
else:
    objects = importlib.import_module("probe_objects")

_SWITCH = re.compile(r"(?:--)?([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\s*==?\s*(\S.*)")
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False, "none": None, "null": None}
NOT_HASHABLE = ", not hashable"
MADE_UP = f"x{os.urandom(4).hex()}"
"""A value that nobody can have foreseen."""
UNSET = objects.UNSET


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
        return tuple(value for value in plain if not any(value == each for each in self.exact))


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


class Shape(NamedTuple):
    """One form in which a configuration may be given, and what a yes to it means while the switch is off."""

    name: str
    make: Callable[[Any, objects.Log], Any]
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
    for kind_of in (objects.Deep, objects.Unhashable):
        hashed = "" if kind_of is objects.Deep else NOT_HASHABLE
        for name, unknown, agree, counts, blind in _HELD:
            yield Shape(f"an object that also holds {name}{hashed}", _deep(kind_of, unknown), agree, counts, blind)

    for number in range(_MIXTURES):
        yield Shape(
            f"an object that also holds mixture {number}",
            _deep(objects.Deep, _mixture(number)),
            number % 2 == 0,
            counts=False,
        )


def _mixture(number: int) -> Callable[[str], Any]:
    """Return what an object holds by name, so that guards that ask for several features at once find them in some mixture."""
    kinds = (None, 0, 1, UNSET)
    return lambda name: kinds[zlib.crc32(f"{number} {name}".encode()) % len(kinds)]


def _deep(kind: type[objects.Deep], unknown: Callable[[str], Any] | None) -> Callable[[Any, objects.Log], Any]:
    return lambda value, log: kind(log, value, unknown)


def _nested(kind: str, path: tuple[str, ...], owner: str) -> Callable[[Any, objects.Log], Any]:
    """Return a maker of containers in one another. The innermost is a table, unless objects are asked for throughout."""

    def make(value: Any, log: objects.Log) -> Any:
        held: Any = value
        for at, name in enumerate(reversed(path)):
            innermost = at == 0
            table = kind == "table" or (innermost and kind != "object of objects" and len(path) > 1)
            fields = {name: held, "other": 1}
            if held is UNSET:
                fields = {"other": 1} if table else {name: None, "other": 1}
            held = (
                objects.table_of(fields, log)
                if table
                else objects.object_of(fields, log, owner, data=kind == "data class")
            )
        return held

    return make
