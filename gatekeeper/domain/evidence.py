"""Checked facts: race results, probe results, and what people decided. Each names what it is about, so nothing else rests on it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gatekeeper.domain.documents import Digest, Document, GitId, Value
from gatekeeper.domain.race import ProbeResult, RaceResult

LONGEST_REASON = 2000
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=3, max_length=LONGEST_REASON)]


class Origin(StrEnum):
    """Whose word a piece of evidence is."""

    OURS = "ours"
    CONTRIBUTED = "contributed"
    AUDITED = "audited"


class TreeSubject(Value):
    """Evidence about code: the tree of the specialised directory in the merge result, and what it was judged with.

    A probe runs on no hardware target and under no suite; its evidence names its request, and leaves these out.
    """

    kind: Literal["tree"] = "tree"
    tree: GitId
    directory: str
    suite: Digest | None = None
    target: str | None = None
    target_digest: Digest | None = None


class PullSubject(Value):
    """Evidence about a pull request at one head: all that people decide is bound to what they looked at."""

    kind: Literal["pull"] = "pull"
    repository_id: int
    number: int
    head_sha: GitId


class Waiver(Value):
    """A person with the right to it lets one finding pass, with a reason. Bound to the head and to policy and code."""

    kind: Literal["waiver"] = "waiver"
    policy: str
    code: str
    path: str | None = None
    by: str = Field(min_length=1)
    reason: Reason


class Approval(Value):
    """A maintainer allows this head's code to be run in the jail."""

    kind: Literal["approval"] = "approval"
    by: str = Field(min_length=1)
    reason: str = Field(default="", max_length=LONGEST_REASON)


class BudgetReset(Value):
    """A maintainer lets the count of a pull request's races begin anew: races recorded before this one no longer count.

    The only decision that outlives the head that it was taken at, because the budget itself runs over all pushes.
    """

    kind: Literal["budget_reset"] = "budget_reset"
    by: str = Field(min_length=1)
    reason: Reason


class Withdrawal(Value):
    """An earlier decision of a person has no effect from here on. Nothing is deleted: both stay to be seen."""

    kind: Literal["withdrawal"] = "withdrawal"
    of: Digest
    """Digest of the evidence that holds the decision."""
    by: str = Field(min_length=1)
    reason: Reason


class RaceEvidence(Value):
    """A finished race, with the digest of the request that asked for it."""

    kind: Literal["race"] = "race"
    request: Digest
    purpose: str = "verdict"
    result: RaceResult


class ProbeEvidence(Value):
    """A finished probe, with the digest of the request that asked for it."""

    kind: Literal["probe"] = "probe"
    request: Digest
    result: ProbeResult


Subject = Annotated[TreeSubject | PullSubject, Field(discriminator="kind")]
Body = Annotated[
    RaceEvidence | ProbeEvidence | Waiver | Approval | BudgetReset | Withdrawal, Field(discriminator="kind")
]
Decided = Waiver | Approval | BudgetReset
"""What a person may decide, and take back."""


class Evidence(Document):
    """One checked fact. What counts as fresh enough is the policy's business, by ``recorded_at`` against ``now``."""

    schema_version: int = 1
    subject: Subject
    origin: Origin = Origin.OURS
    recorded_at: AwareDatetime
    body: Body


def in_force(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence without the decisions that were withdrawn, and without the withdrawals themselves.

    A withdrawal only ever makes the gate stricter, so it needs no right here; whoever records it checks the right.
    """
    items = tuple(evidence)
    gone = {item.body.of for item in items if isinstance(item.body, Withdrawal)}
    kept = (item for item in items if not isinstance(item.body, Withdrawal))
    return tuple(item for item in kept if not (gone and isinstance(item.body, Decided) and item.digest() in gone))
