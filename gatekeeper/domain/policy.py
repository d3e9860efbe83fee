"""What a policy is: one pure rule over a snapshot, its source trees and its evidence.

A policy never says "passed". It reports findings and requirements, and :func:`outcome_of` derives the outcome from them, so
that a result cannot contradict its own findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gatekeeper.domain.documents import Digest, Value
from gatekeeper.domain.race import ProbeRequest, RaceRequest

if TYPE_CHECKING:
    from gatekeeper.domain.catalog import Catalog
    from gatekeeper.domain.evidence import Evidence
    from gatekeeper.domain.repository import RepositoryConfiguration
    from gatekeeper.domain.snapshot import Snapshot
    from gatekeeper.domain.source import SourceTree


class Outcome(StrEnum):
    """The only four answers that leave the service."""

    PASSED = "passed"
    FAILED = "failed"
    PENDING = "pending"
    ERROR = "error"

    @property
    def badness(self) -> int:
        """0 for passed up to 3: the worst of several outcomes is the one with the largest value."""
        return {"passed": 0, "pending": 1, "failed": 2, "error": 3}[self.value]


def worst(outcomes: list[Outcome]) -> Outcome:
    """Return the worst outcome; of none at all, ``error``: a gate that checked nothing has decided nothing."""
    return max(outcomes, key=lambda outcome: outcome.badness, default=Outcome.ERROR)


class Check(StrEnum):
    """The principle that a policy belongs to; each is one GitHub check, named ``gatekeeper/<value>``."""

    ISOLATION = "isolation"
    SCOPE = "scope"
    BENCHMARKS = "benchmarks"
    CONTRIBUTOR_LOG = "contributor-log"


VERDICT_CHECK = "verdict"


class Severity(StrEnum):
    """Whether a policy counts: declared in its file, overridden only by the policy set."""

    BLOCKING = "blocking"
    ADVISORY = "advisory"
    OFF = "off"


class Effect(StrEnum):
    """What one finding does to the outcome."""

    FAIL = "fail"
    HOLD = "hold"
    """A person decides: the result is pending until somebody with the right to it waives the finding or the change goes."""
    NOTE = "note"


class Finding(Value):
    """One thing that a policy saw. ``path`` and ``line`` point into the head tree where that makes sense."""

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    message: str
    expected: str = ""
    found: str = ""
    path: str | None = None
    line: int | None = Field(default=None, ge=1)
    effect: Effect = Effect.FAIL
    waivable_by: tuple[str, ...] = ()
    """Owners (logins or teams, as in CODEOWNERS) of whom any one may waive this finding; empty: nobody may."""
    waived_by: str | None = None
    """Who waived it; such a finding is shown and has the effect of a note."""
    policy: str = ""
    severity: Severity = Severity.BLOCKING


class RaceRequirement(Value):
    """Evidence of a race is needed; the service starts it where it owns the target."""

    kind: Literal["race"] = "race"
    request: RaceRequest
    alpha: float = Field(default=0.01, gt=0, le=0.05)
    """One-sided error allowed for each configuration; falls with each race of the same pull request."""


class ProbeRequirement(Value):
    """Evidence of a probe job is needed (import effects, ``supports()`` table, platform safety)."""

    kind: Literal["probe"] = "probe"
    request: ProbeRequest


class ApprovalRequirement(Value):
    """A maintainer must approve this very head before any of its code is run, jailed or not."""

    kind: Literal["approval"] = "approval"
    head_sha: str
    author: str


class LogRequirement(Value):
    """A contributor's log is needed for a target that this installation does not own."""

    kind: Literal["log"] = "log"
    target: str


Requirement = Annotated[
    RaceRequirement | ProbeRequirement | ApprovalRequirement | LogRequirement, Field(discriminator="kind")
]


@dataclass(frozen=True)
class PolicyInput:
    """Everything a policy may look at. All of it is read-only; ``now`` is the only clock."""

    snapshot: Snapshot
    configuration: RepositoryConfiguration
    catalog: Catalog
    base: SourceTree
    head: SourceTree
    merged: SourceTree | None
    evidence: tuple[Evidence, ...]
    now: datetime


class Parameters(BaseModel):
    """Base of a policy's parameters: frozen, unknown names refused, every field with a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass
class Report:
    """What a policy hands back. ``applicable=False`` says that the rule has nothing to judge here; it needs a summary."""

    summary: str = ""
    applicable: bool = True
    findings: list[Finding] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)

    def add(
        self,
        code: str,
        message: str,
        *,
        expected: str = "",
        found: str = "",
        path: str | None = None,
        line: int | None = None,
        effect: Effect = Effect.FAIL,
        waivable_by: tuple[str, ...] = (),
    ) -> None:
        """Append a finding."""
        self.findings.append(
            Finding(
                code=code, message=message, expected=expected, found=found, path=path, line=line, effect=effect,
                waivable_by=waivable_by,
            )
        )  # fmt: skip

    def fails(self) -> bool:
        """Return whether any finding so far makes the result ``failed``."""
        return any(finding.effect is Effect.FAIL for finding in self.findings)


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class Policy(Generic[P]):
    """One rule. A policy file exposes exactly one, named ``POLICY``, whose ``id`` equals the file name."""

    id: str
    check: Check
    title: str
    judge: Callable[[PolicyInput, P], Report]
    parameters: type[P]
    severity: Severity = Severity.BLOCKING
    static: bool = True
    """True if the rule needs no evidence: ``gatekeeper check`` then runs it before a push."""


class PolicyResult(Value):
    """A policy's answer inside a verdict. ``outcome`` is None where the policy had nothing to judge."""

    policy: str
    check: Check
    severity: Severity
    title: str
    outcome: Outcome | None
    summary: str
    findings: tuple[Finding, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    parameters: Digest


def outcome_of(report: Report) -> Outcome | None:
    """Derive the outcome of a report: failed over pending over passed; None where the policy is not applicable."""
    if not report.applicable:
        return None
    effects = {finding.effect for finding in report.findings}
    if Effect.FAIL in effects:
        return Outcome.FAILED
    if Effect.HOLD in effects or report.requirements:
        return Outcome.PENDING
    return Outcome.PASSED
