"""Whose code may be run, jailed or not. One rule for every policy that asks for a probe or a race."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatekeeper.domain.evidence import Approval, PullSubject
from gatekeeper.domain.policy import ApprovalRequirement

if TYPE_CHECKING:
    from gatekeeper.domain.policy import PolicyInput


def may_run(input: PolicyInput) -> bool:
    """Return True for a trusted author, or where a maintainer approved exactly this head of this pull request."""
    if input.snapshot.author.trusted:
        return True
    key = input.snapshot.key
    wanted = PullSubject(repository_id=key.repository_id, number=key.number, head_sha=key.head_sha)
    return any(isinstance(evidence.body, Approval) and evidence.subject == wanted for evidence in input.evidence)


def approval_needed(input: PolicyInput) -> ApprovalRequirement | None:
    """Return what has to be asked for before any code of this head is run, None where nothing has to be."""
    if may_run(input):
        return None
    return ApprovalRequirement(head_sha=input.snapshot.key.head_sha, author=input.snapshot.author.login)
