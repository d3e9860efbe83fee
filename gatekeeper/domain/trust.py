"""Whose code may be run, jailed or not. One rule for every policy that asks for a probe or a race."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatekeeper.domain.evidence import Approval, PullSubject, in_force
from gatekeeper.domain.owners import read_owners
from gatekeeper.domain.policy import ApprovalRequirement
from gatekeeper.domain.waivers import may_decide

if TYPE_CHECKING:
    from gatekeeper.domain.policy import PolicyInput


def may_run(input: PolicyInput) -> bool:
    """Return True for a trusted author, or where a maintainer approved exactly this head of this pull request.

    An approval by the author or by somebody whom the base branch's configuration does not name as a maintainer has no effect.
    """
    if input.snapshot.author.trusted:
        return True
    key = input.snapshot.key
    wanted = PullSubject(repository_id=key.repository_id, number=key.number, head_sha=key.head_sha)
    standing = in_force(input.evidence)
    approvals = [each.body for each in standing if isinstance(each.body, Approval) and each.subject == wanted]
    if not approvals:
        return False
    owners = read_owners(input.base, input.configuration)
    return any(may_decide(each.by, owners.maintainers, input.snapshot, owners) for each in approvals)


def approval_needed(input: PolicyInput) -> ApprovalRequirement | None:
    """Return what has to be asked for before any code of this head is run, None where nothing has to be."""
    if may_run(input):
        return None
    return ApprovalRequirement(head_sha=input.snapshot.key.head_sha, author=input.snapshot.author.login)
