"""Fetches a guard as hook files do and asks it what its switch is for: no while that is unset or otherwise, yes where it is set.

Part of the jailed half of the probe: standard library only. Questions run in forks of the process, so that what one of them
leaves behind (a cache, a loaded module) is no part of the next.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

if __package__ or TYPE_CHECKING:
    from workers import probe_objects as objects
    from workers import probe_switch as switches
else:
    objects, switches = map(importlib.import_module, ("probe_objects", "probe_switch"))

Fault = tuple[str, str, str, str]
Place = tuple[int, int, tuple[str, ...]]
"""Where the configuration stands: its index (-1: nowhere), number of arguments by position, names of those by keyword."""
_MOST_ARGUMENTS = 8
_MOST_ANSWERS = 1 << 22
OFF = "no, while nothing is switched on"


class Asking(NamedTuple):
    """How one file gets at the guard: the imports that it runs, and the expression that it then calls."""

    statements: tuple[str, ...]
    call: str

    def fetch(self) -> Any:
        """Run the imports and return what the call would call. An import may fail where another gives the name."""
        names: dict[str, Any] = {}
        failed: BaseException | None = None
        for statement in self.statements:
            try:
                exec(compile(statement, "<hook>", "exec"), names)  # noqa: S102  (an import statement, inside the jail)
            except Exception as error:
                failed = error
        first, *rest = self.call.split(".")
        if first not in names and failed is not None:
            raise failed
        return functools.reduce(getattr, rest, names[first])


class Answer(NamedTuple):
    """One answer: of which shape, whether the switch was looked up, what came of it."""

    shape: int
    value: str
    strict: bool
    """Whether the guard has to answer: nothing is set, or a text is."""
    looked: bool
    truth: bool
    said: bool | None
    error: str
    changes: list[str]


class Guarding:
    """One guard: how it is fetched, what was judged, which setting turns it on."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.name: str = order["guard"]
        self.askings = [Asking(tuple(each["statements"]), each["call"]) for each in order["askings"]]
        self._switch_text: str = order["switch"]
        self._switch = switches.switch(self._switch_text)
        self._owner = f"{order['package'].partition('.')[0]}.config"
        judged = order["judged"]
        self._module = judged["module"] if judged else None
        self._code = _code(Path(order["root"], judged["file"]), judged["name"]) if judged else None

    def _fault(self, expected: str, found: str) -> Fault:
        return "SCOPE_GUARD", self.name, expected, found

    def first(self) -> list[Fault]:
        """Fetch and ask by each file's imports, as if no other had run before."""
        found: list[Fault] = []
        for asking in self.askings:
            told = _in_a_fork(lambda asking=asking: self._fetched(asking)[1])  # type: ignore[misc]
            if told is None:
                found.append(self._fault(f"`{asking.call}` of a hook file", "the process ended while it was imported"))
                continue
            found.extend((str(code), str(where), str(want), str(got)) for code, where, want, got in told)
        return found if found else self._asked(self.askings[0])

    def again(self) -> list[Fault]:
        """The same once the directory's modules are loaded: all files get the same function, and it says the same."""
        found, functions = [], []
        for asking in self.askings:
            guard, faults = self._fetched(asking)
            found.extend(faults)
            if not faults:
                functions.append(guard)
        if any(each is not functions[0] for each in functions):
            found.append(self._fault("one function for all hook files", "different ones"))
        return found + (self._asked(self.askings[0]) if functions and not found else [])

    def _fetched(self, asking: Asking) -> tuple[Any, list[Fault]]:
        try:
            guard = asking.fetch()
        except BaseException as error:
            return None, [self._fault(f"`{asking.call}` of a hook file", told(error))]
        if self._code is None:
            return guard, []
        expected = "the function that was judged, by a hook file's own imports"
        function = _function(guard)
        if function is None:
            return guard, [self._fault(expected, f"an object of {type(guard).__module__}.{type(guard).__qualname__}")]
        names = getattr(sys.modules.get(self._module or ""), "__dict__", None)
        if function.__code__ != self._code or function.__globals__ is not names:
            return guard, [self._fault(expected, f"{function.__module__}.{function.__qualname__}, another function")]
        return guard, []

    def _asked(self, asking: Asking) -> list[Fault]:
        if not self._switch_text:
            return []
        if self._switch is None:
            return [
                self._fault("a switch of the form setting=value, so that the guard can be asked", self._switch_text)
            ]
        told = [_in_a_fork(lambda on=on: self._answers(asking.fetch(), on)) for on in (True, False)]  # type: ignore[misc]
        if told[0] is None or told[1] is None:
            return [self._fault("an answer", "the process ended while the guard was asked")]
        exact, off = [Answer(*each) for each in told[0]], [Answer(*each) for each in told[1]]
        return list(self._judged(exact, off))

    def _judged(self, exact: list[Answer], off: list[Answer]) -> Iterator[Fault]:
        assert self._switch is not None
        shapes = list(switches.shapes(self._switch.path, self._owner))
        raw = [at for at, shape in enumerate(shapes) if shape.raw]
        yes = {each.shape for each in exact if each.said and (each.looked or shapes[each.shape].raw)}
        wrong = {each.shape for each in off if each.said}
        by_value = bool(yes - wrong) and all(at in yes - wrong for at in raw)
        on = [each for each in off if each.said and shapes[each.shape].counts and (
            each.looked or (shapes[each.shape].blind and not (by_value and each.truth)))]  # fmt: skip
        if on:
            value = "no other value" if on[0].value == repr(switches.UNSET) else f"the setting as {on[0].value}"
            yield self._fault(OFF, f"yes, asked with {shapes[on[0].shape].name}, {value}"[:300])
        raised = [each for each in off if each.said is None and each.strict and each.shape in yes]
        if raised and not on:
            where = shapes[raised[0].shape].name
            yield self._fault("an answer, while nothing is switched on", f"{raised[0].error}, asked with {where}"[:300])
        if not on and not yes - wrong:
            errors = sorted({each.error for each in exact if each.error})
            more = f"; {errors[0]}" if errors and len(exact) == sum(each.said is None for each in exact) else ""
            # Nobody is harmed by a guard that stays off; it may want a device or a framework that a jail does not have.
            wanted = f"yes, where `{self._switch_text}` is set"
            yield "SCOPE_GUARD_SILENT", self.name, wanted, f"no to each of {len(exact)} questions{more}"[:300]
        keyed = {shapes[at].name + switches.NOT_HASHABLE for at in yes}
        unkeyed = [each.error for each in exact if "unhashable" in each.error and shapes[each.shape].name in keyed]
        if unkeyed:
            yield self._fault("an answer, whatever kind of object the configuration is", unkeyed[0])
        changes = sorted({change for each in (*exact, *off) for change in each.changes})
        if changes:
            yield self._fault("a question without effects", "; ".join(changes)[:300])

    def _answers(self, guard: Any, on: bool) -> list[Answer]:
        assert self._switch is not None
        values = self._switch.exact if on else (switches.UNSET, *self._switch.others())
        found = []
        for number, shape in enumerate(switches.shapes(self._switch.path, self._owner)):
            for value in values:
                for place in _places(guard):
                    found.append(self._answer(guard, number, shape, value, place, on))
        return found

    def _answer(self, guard: Any, number: int, shape: switches.Shape, value: Any, place: Place, on: bool) -> Answer:
        assert self._switch is not None
        log = objects.Log(self._switch.path, shape.agree)
        at, count, named = place
        beside = objects.Log((), agree=on)  # what else it is asked with is as it wants, and nothing while it is off
        asked: list[Any] = [objects.Deep(beside, switches.UNSET, None) for _ in range(count + len(named))]
        if at >= 0:
            asked[at] = shape.make(value, log)
        said, error = None, ""
        variable = self._switch.path[0] if len(self._switch.path) == 1 else None
        before = os.environ.get(variable) if variable else None
        try:
            if variable and value is not switches.UNSET and value is not None:
                os.environ[variable] = str(value) if value else "" if value == "" else "0"
            elif variable:
                os.environ.pop(variable, None)
            if type(guard) is functools._lru_cache_wrapper:
                guard.cache_clear()
            answer = guard(*asked[:count], **dict(zip(named, asked[count:], strict=True)))
            said = bool(answer)
            if inspect.iscoroutine(answer):
                answer.close()
        except Exception as problem:
            error = told(problem)
        finally:
            if variable and before is None:
                os.environ.pop(variable, None)
            elif variable:
                os.environ[variable] = str(before)
        missing = shape.table or at < 0 or error.startswith("KeyError")
        strict = missing if value is switches.UNSET else type(value) is str and self._switch.is_word
        changes = log.changed()
        objects.forget()
        looked = log.looked or at < 0
        shown = "a made-up word" if value == switches.MADE_UP else repr(value)[:40]
        return Answer(number, shown, strict, looked, log.truth, said, error, changes)


def _places(guard: Any) -> list[Place]:
    """Return where the configuration may stand among a guard's arguments."""
    try:
        every = list(inspect.signature(guard).parameters.values())
    except (TypeError, ValueError):
        return []
    positional = [each for each in every if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    count = sum(each.default is each.empty for each in positional)
    named = tuple(each.name for each in every if each.kind is each.KEYWORD_ONLY and each.default is each.empty)
    if count + len(named) > _MOST_ARGUMENTS:
        return []
    if count + len(named):
        return [(at, count, named) for at in range(count + len(named))]
    open_ended = positional or any(each.kind is each.VAR_POSITIONAL for each in every)
    return [(-1, 0, ()), *([(0, 1, ())] if open_ended else [])]


def _function(guard: Any) -> FunctionType | None:
    """Return the plain function that a guard is, or that the standard library's cache around it calls."""
    if type(guard) is FunctionType:
        return guard
    if type(guard) is functools._lru_cache_wrapper:
        return next((each for each in gc.get_referents(guard) if type(each) is FunctionType), None)
    return None


def _code(file: Path, name: str) -> CodeType | None:
    """Return the code of the function ``name`` at the top level of a file, as it is compiled when it is imported."""
    try:
        module = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return next((each for each in module.co_consts if type(each) is CodeType and each.co_name == name), None)


def told(error: BaseException) -> str:
    """Return one line about an error."""
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:
        return type(error).__name__


def _in_a_fork(work: Callable[[], list[Any]]) -> list[Any] | None:
    """Run ``work`` in a copy of this process and return what it returned; None if it did not come to its end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            data = json.dumps(work()).encode()
            while data:
                data = data[os.write(write, data) :]
        finally:
            os._exit(0)
    os.close(write)
    parts, size = [], 0
    while (part := os.read(read, 1 << 16)) and size < _MOST_ANSWERS:
        parts.append(part)
        size += len(part)
    os.close(read)
    os.waitpid(child, 0)
    try:
        return list(json.loads(b"".join(parts)))
    except (ValueError, TypeError):
        return None
