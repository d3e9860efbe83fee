"""Findings, reasons and faults that say the same of many configurations, as one entry with all of them behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from gatekeeper import texts
from gatekeeper.domain.decision import Reason
from gatekeeper.domain.policy import Finding
from gatekeeper.domain.race import RaceOutcome
from gatekeeper.domain.samples import RaceFault

_WHERE = re.compile(r"(?P<where>[\w.+-]+, \w+=[^:]*|on [\w.+-]+): (?P<message>.+)", re.DOTALL)
"""How findings of a race begin: with target and configuration, or with the target."""


@dataclass(frozen=True)
class Spot:
    """What was seen at one place. ``where`` is a configuration or a path with its line; empty where there is none."""

    where: str
    message: str
    expected: str
    found: str


@dataclass(frozen=True)
class Place:
    """All that was seen at one place, each different thing once with how often it was seen."""

    where: str
    seen: tuple[tuple[Spot, int], ...]


@dataclass
class Group:
    """Everything of one code and one effect. ``tone`` is its style, ``tag`` and ``next_step`` hold for all of it."""

    code: str
    tone: str
    tag: str = ""
    next_step: str = ""
    spots: list[Spot] = field(default_factory=list)

    @property
    def places(self) -> list[Place]:
        """What was seen, by place, in the order in which it came."""
        found: dict[str, dict[Spot, int]] = {}
        for spot in self.spots:
            seen = found.setdefault(spot.where, {})
            seen[spot] = seen.get(spot, 0) + 1
        return [Place(where, tuple(seen.items())) for where, seen in found.items()]

    @property
    def size(self) -> str:
        """How much it holds, in words."""
        count, places = len(self.spots), len(self.places)
        return f"{count} times" if places == 1 else f"{count} times, at {places} places"


def of_findings(findings: Iterable[Finding]) -> list[Group]:
    """Group the findings of a policy; those that somebody else has to decide stay apart."""
    groups: dict[object, Group] = {}
    for finding in findings:
        step = texts.next_step_plainly(finding)
        key = (finding.code, finding.effect, finding.waived_by, step)
        tag = {"hold": "a person decides", "note": "note"}.get(finding.effect.value, "")
        tag = f"waived by {finding.waived_by}" if finding.waived_by else tag
        tone = "waived" if finding.waived_by else finding.effect.value
        groups.setdefault(key, Group(finding.code, tone, tag, step)).spots.append(_spot(finding))
    return list(groups.values())


def _spot(finding: Finding) -> Spot:
    where, message = texts.place(finding), finding.message
    told = None if where else _WHERE.fullmatch(message)
    if told:
        where, message = told["where"], told["message"]
    return Spot(where, message, finding.expected, finding.found)


def of_reasons(reasons: Iterable[Reason]) -> list[Group]:
    """Group the reasons of a race by code and by what they lead to."""
    groups: dict[object, Group] = {}
    for reason in reasons:
        tone = "fail"
        if reason.outcome in (None, RaceOutcome.BETTER):
            tone = "note"
        elif reason.outcome in (RaceOutcome.HELD, RaceOutcome.VOID):
            tone = "hold"
        group = groups.setdefault((reason.code, reason.outcome), Group(reason.code, tone))
        group.spots.append(Spot(reason.where, reason.message, reason.expected, reason.found))
    return list(groups.values())


def of_faults(faults: Iterable[RaceFault]) -> list[Group]:
    """Group the faults of a race by code, effect and arm."""
    groups: dict[object, Group] = {}
    for fault in faults:
        tone = {"wrong": "fail", "note": "note"}.get(fault.effect.value, "hold")
        arm = fault.arm.value if fault.arm else ""
        group = groups.setdefault((fault.code, fault.effect, arm), Group(fault.code, tone, arm))
        group.spots.append(Spot(fault.where, "", fault.expected, fault.found))
    return list(groups.values())
