"""Asks a guard while nothing is switched on: it has to say no, and to change nothing.

Part of the jailed half of the probe: standard library only, no other file of ours. What a guard wants to be asked with is not
known, so it is asked several times, with configurations in which everything is unset in another way. A question that it cannot
answer says nothing; a guard that says yes to every one that it can is on whatever the user wants.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

CHANGING = ("update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "add")
_MOST_ARGUMENTS = 8


class Unset:
    """A configuration in which nothing is set: it is false, empty, equal to nothing, and notes what is done to it."""

    def __init__(self, leaf: Callable[[str, list[str]], Any], changes: list[str], name: str = "") -> None:
        object.__setattr__(self, "_parts", (leaf, changes, name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        leaf, changes, _ = object.__getattribute__(self, "_parts")
        return leaf(name, changes)

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        leaf, changes, name = object.__getattribute__(self, "_parts")
        if name in CHANGING:
            changes.append(f"calls .{name}()")
        return arguments[1] if len(arguments) == 2 else leaf(name, changes)  # .get(name, default)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "_parts")[1].append(f"sets .{name}")

    def __delattr__(self, name: str) -> None:
        object.__getattribute__(self, "_parts")[1].append(f"deletes .{name}")

    def __setitem__(self, name: Any, value: Any) -> None:
        object.__getattribute__(self, "_parts")[1].append(f"sets [{name!r}]")

    def __getitem__(self, name: Any) -> Any:
        raise KeyError(name)

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, item: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def _deep(name: str, changes: list[str]) -> Any:
    return Unset(_deep, changes, name)


def _plain(value: Any) -> Callable[[str, list[str]], Any]:
    def leaf(name: str, changes: list[str]) -> Any:
        del name, changes
        return dict(value) if isinstance(value, dict) else value

    return leaf


_LEAVES = (_deep, *map(_plain, (None, {}, False, 0, "")))


def answers(guard: Any) -> Iterator[tuple[bool | None, list[str]]]:
    """Ask a guard; yield (answer, or None if it raised; what it changed) for each way of being unset."""
    try:
        parameters = inspect.signature(guard).parameters.values()
    except (TypeError, ValueError):
        return
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = sum(each.default is each.empty for each in positional)
    if needed > _MOST_ARGUMENTS or any(
        each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters
    ):
        return
    for leaf in (*_LEAVES, None):
        changes: list[str] = []
        arguments = [None if leaf is None else Unset(leaf, changes) for _ in range(needed)]
        try:
            answer = guard(*arguments)
            said = bool(answer)
            if inspect.iscoroutine(answer):
                answer.close()
        except Exception:
            yield None, changes
        else:
            yield said, changes


def faults(where: str, guard: Any) -> list[tuple[str, str, str, str]]:
    """Return what is wrong with a guard, as (code, where, expected, found)."""
    asked = list(answers(guard))
    said = [answer for answer, _ in asked if answer is not None]
    changes = sorted({change for _, some in asked for change in some})
    found = []
    if said and all(said):
        found.append(
            (
                "SCOPE_GUARD",
                where,
                "no, while nothing is switched on",
                f"yes to all {len(said)} questions it could answer",
            )
        )
    if changes:
        found.append(("SCOPE_GUARD", where, "a question without effects", "; ".join(changes)[:300]))
    return found
