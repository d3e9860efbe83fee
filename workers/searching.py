"""The boundary search of a race: some configurations of the request's pool, drawn anew for each race, tried before any time is taken.

What is wrong there is made smaller, as long as it stays wrong, and told as one command line. Records of every point tried go into
the result, so that whoever judges the race again judges these too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import CodeSource, LocalSource, RaceRequest
from gatekeeper.domain.samples import Arm, ConfigurationRecord, FaultEffect, RaceFault
from workers.asking import Asker, Names, command
from workers.boundaries import Finding, first_wrong
from workers.loop.blocks import Course
from workers.loop.runs import new_seed

_random = random.SystemRandom()
SHRINK_SECONDS = 60.0
"""Time that making a finding smaller may take: the race is decided, what is left is a courtesy to its author."""


@dataclass(frozen=True)
class Searched:
    """What a search gave: the records of every point tried and, where one was wrong, the faults that tell it."""

    records: tuple[ConfigurationRecord, ...]
    faults: tuple[RaceFault, ...] = ()


def drawn(request: RaceRequest) -> list[Configuration]:
    """Return the boundary points of one race, drawn secretly and anew each time."""
    pool = list(request.boundary_pool)
    return _random.sample(pool, min(request.rules.boundary_points, len(pool)))


def search_drawn(
    request: RaceRequest,
    course: Course,
    points: Sequence[Configuration],
    served: bool,
    tick: Callable[[], None],
    clock: Callable[[], float],
) -> Searched:
    """Try points that the candidate says it serves; stop at the first that is wrong and make it smaller.

    Args:
        request: The race; its rules set the limits.
        course: Arms, jail and cores.
        points: What to try, as drawn.
        served: Whether the candidate has said that it serves all of them; else it is asked.
        tick: Called before an arm gets time; raises when the race has none left.
        clock: Monotonic seconds.
    """
    known = frozenset(c.label for c in points) if served else frozenset()
    asker = Asker(course, new_seed(), request.rules, request.target.communication, tick, known)
    began: list[float] = []
    shrinks = request.purpose != "selftest"  # nobody reads there which point it was

    def ask(configurations: Sequence[Configuration]) -> Sequence[Finding | None]:
        found = asker(configurations)
        if not began and any(found):
            began.append(clock())
        return found

    def more() -> bool:
        return not began or (shrinks and clock() - began[0] < SHRINK_SECONDS)

    found, _ = first_wrong(points, ask, points=len(points), more=more)
    if found is None:
        return Searched(tuple(asker.kept.values()))
    tried = {point.label for point in points} | {found.configuration.label}
    records = tuple(record for label, record in asker.kept.items() if label in tried)
    return Searched(records, tuple(_faults(found, request, asker)))


def _faults(found: Finding, request: RaceRequest, asker: Asker) -> list[RaceFault]:
    where = found.configuration.label
    names = Names(request.model, request.problem, _spec(request.candidate), _spec(request.baseline), asker.seed)
    how = RaceFault(
        code="COR_BOUNDARY", effect=FaultEffect.NOTE, arm=Arm.CANDIDATE, where=f"the smallest configuration found: {where}",
        expected="right wherever it serves", found=f"wrong; once more: {command(found.configuration, names)}",
    )  # fmt: skip
    if where in asker.kept:
        return [how]  # the errors in its record say what is wrong
    ended = RaceFault(
        code=found.code, effect=FaultEffect.WRONG, arm=Arm.CANDIDATE, where=where, expected="a result", found=found.text
    )
    return [ended, how]


def _spec(source: CodeSource) -> str:
    """Return a source as the command line names it."""
    if isinstance(source, LocalSource):
        return f"{source.path}::{source.entry_point}"
    return source.entry_point if source.kind == "installed" else f"CHECKOUT::{source.entry_point}"
