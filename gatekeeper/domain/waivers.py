"""Waivers: a person with the right to it lets one finding pass, in public, for one head."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gatekeeper.domain.evidence import Evidence, PullSubject, Waiver, in_force
from gatekeeper.domain.owners import Owners
from gatekeeper.domain.policy import Effect, Finding
from gatekeeper.domain.snapshot import Snapshot

NO_RIGHT = "WAIVER_NO_RIGHT"
LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""A person's login, without the ``@``."""


def waivers_of(snapshot: Snapshot, evidence: Iterable[Evidence], policy: str) -> tuple[Waiver, ...]:
    """Return the waivers for one policy that are bound to this repository, pull request and head, and were not withdrawn."""
    wanted = PullSubject(
        repository_id=snapshot.key.repository_id, number=snapshot.key.number, head_sha=snapshot.key.head_sha
    )
    return tuple(
        each.body
        for each in in_force(evidence)
        if isinstance(each.body, Waiver) and each.subject == wanted and each.body.policy == policy
    )


def apply(
    findings: Iterable[Finding], *, snapshot: Snapshot, evidence: Iterable[Evidence], policy: str, owners: Owners
) -> list[Finding]:
    """Return the findings with valid waivers applied, followed by a note for each waiver that has no effect.

    A waiver that names a path covers the findings of its code at that path; one without a path covers those of its code that
    its author may waive. Nobody waives a finding of a pull request of their own.
    """
    waivers = waivers_of(snapshot, evidence, policy)
    used: set[int] = set()
    result = []
    for finding in findings:
        by = None
        for number, waiver in enumerate(waivers):
            if by is None and _covers(waiver, finding) and may_decide(waiver.by, finding.waivable_by, snapshot, owners):
                used.add(number)
                by = waiver.by
        result.append(finding.model_copy(update={"effect": Effect.NOTE, "waived_by": by}) if by else finding)
    result.extend(_no_effect(waiver, result) for number, waiver in enumerate(waivers) if number not in used)
    return result


def _covers(waiver: Waiver, finding: Finding) -> bool:
    return finding.effect is not Effect.NOTE and waiver.code == finding.code and waiver.path in (None, finding.path)


def may_decide(login: str, rights: tuple[str, ...], snapshot: Snapshot, owners: Owners) -> bool:
    """Whether a person is one of ``rights`` or of their teams, and not the author: nobody decides on a change of their own.

    The name of a team is not a person, even where the team itself is an owner.
    """
    if not LOGIN.fullmatch(login.removeprefix("@")):
        return False
    own = login.removeprefix("@").casefold() == snapshot.author.login.casefold()
    return not own and owners.includes(rights, login)


def _no_effect(waiver: Waiver, findings: list[Finding]) -> Finding:
    rights = sorted(
        {owner for each in findings if each.code == waiver.code and waiver.path in (None, each.path)
         for owner in each.waivable_by}
    )  # fmt: skip
    return Finding(
        code=NO_RIGHT,
        message=f"a waiver of {waiver.code} by {waiver.by} has no effect",
        expected="a waiver by somebody else than the author, one of "
        + (", ".join(rights) or "nobody: this is never waived"),
        found=waiver.by,
        path=waiver.path,
        effect=Effect.NOTE,
    )
