"""Checked facts: race results, probe results, waivers and approvals. Each names what it is about, so nothing else rests on it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gatekeeper.domain.documents import Digest, Document, GitId, Value
from gatekeeper.domain.race import ProbeResult, RaceResult


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
    """Evidence about a pull request at one head (a waiver, an approval)."""

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
    reason: str = Field(min_length=3)


class Approval(Value):
    """A maintainer allows this head's code to be run in the jail."""

    kind: Literal["approval"] = "approval"
    by: str = Field(min_length=1)


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
Body = Annotated[RaceEvidence | ProbeEvidence | Waiver | Approval, Field(discriminator="kind")]


class Evidence(Document):
    """One checked fact. What counts as fresh enough is the policy's business, by ``recorded_at`` against ``now``."""

    schema_version: int = 1
    subject: Subject
    origin: Origin = Origin.OURS
    recorded_at: AwareDatetime
    body: Body
