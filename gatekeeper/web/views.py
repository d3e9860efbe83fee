"""What pages and JSON answers show. Both are made from the same values, so a page and its twin cannot differ."""

from __future__ import annotations

from datetime import datetime

from gatekeeper.domain.decision import Figures, Reason
from gatekeeper.domain.documents import Value
from gatekeeper.domain.jobs import JobKind, JobState
from gatekeeper.domain.policy import Effect, Finding, Outcome
from gatekeeper.domain.race import RaceOutcome, RaceStatus
from gatekeeper.domain.samples import RaceFault, SupportAnswer
from gatekeeper.domain.snapshot import Author
from gatekeeper.services.decided import ToDecide


class PullRow(Value):
    """One line of the list. ``outcome`` is pending until a first verdict."""

    repository: str
    number: int
    title: str
    author: str
    base_ref: str
    head_sha: str
    open: bool
    draft: bool
    outcome: Outcome
    verdict: str | None
    checks: dict[str, Outcome]
    """Outcome by check; empty before the first verdict."""
    unjudged: tuple[str, ...] = ()
    """Of these the ones that passed because they had nothing to judge."""
    updated_at: datetime


class PullList(Value):
    """A page of the list. ``total`` counts all rows that fit the filters."""

    total: int
    limit: int
    offset: int
    pulls: tuple[PullRow, ...]

    @property
    def previous(self) -> int | None:
        """Offset of the page before this one, or None."""
        return max(self.offset - self.limit, 0) if self.offset else None

    @property
    def following(self) -> int | None:
        """Offset of the next page, or None."""
        return self.offset + self.limit if self.offset + self.limit < self.total else None


class PolicyView(Value):
    """One policy's part of a check. ``outcome`` is None where it had nothing to judge."""

    policy: str
    title: str
    severity: str
    outcome: Outcome | None
    summary: str
    findings: tuple[Finding, ...]
    waits_for: tuple[str, ...]


class CheckView(Value):
    """One of the four checks with the policies behind it."""

    check: str
    name: str
    question: str
    outcome: Outcome
    judged: bool
    """False where the check passed because it had nothing to judge."""
    summary: str
    policies: tuple[PolicyView, ...]

    @property
    def findings(self) -> int:
        """Number of findings that stand in the way: not waived, and more than a note."""
        findings = (finding for policy in self.policies for finding in policy.findings)
        return sum(finding.effect is not Effect.NOTE and not finding.waived_by for finding in findings)


class ErrorRow(Value):
    """Largest figures of one tensor's correctness records, candidate beside baseline, with the limits that held."""

    where: str
    tensor: str
    check: str
    candidate_rms: float
    baseline_rms: float
    limit_rms: float
    candidate_gain: float
    limit_gain: float
    within: bool


class RaceView(Value):
    """A race: asked for (no result yet) or ended. Figures are recomputed from the raw samples, never taken as reported."""

    id: str
    model: str | None
    target: str | None
    origin: str | None
    state: str
    """``waiting``, ``running`` or ``ended``."""
    held_back: str = ""
    """Why this pull request may not have the race now; empty if it may, or has had it."""
    doing: str = ""
    """Where a race without a result stands, in sentences."""
    outcome: RaceOutcome | None
    status: RaceStatus | None
    jail: str | None
    jail_wanted: str | None
    alpha: float | None
    margin: float | None
    communication: str | None
    figures: tuple[Figures, ...] = ()
    reasons: tuple[Reason, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    boundaries: int = 0
    """Configurations near page, shard and other edges that were tried untimed."""
    faults: tuple[RaceFault, ...] = ()
    supports: tuple[SupportAnswer, ...] = ()
    environment: dict[str, str] = {}
    configurations: tuple[str, ...] = ()
    evidence: str | None = None
    recorded_at: datetime | None = None


class EvidenceRow(Value):
    """One checked fact that the verdict rests on, and whose word it is."""

    digest: str
    kind: str
    origin: str
    summary: str
    recorded_at: datetime
    race: str | None = None


class ChainRow(Value):
    """One verdict of the chain."""

    digest: str
    outcome: Outcome
    decided_at: datetime
    supersedes: str | None
    summary: str


class WaitingJob(Value):
    """Work that has been asked for and is not done."""

    kind: JobKind
    state: JobState
    doing: str
    waits_for: str
    attempt: int
    error: str | None
    run_after: datetime
    delivery: str | None

    @property
    def progress(self) -> str:
        """Where it stands, as a sentence."""
        return f"waits for {self.waits_for}" if self.state is JobState.QUEUED else self.waits_for

    @property
    def word(self) -> str:
        """Its state in a word or two."""
        if self.state is JobState.FAILED:
            return "tried again later" if self.waits_for.startswith("tried again") else "given up"
        return "waiting" if self.state is JobState.QUEUED else "running"


class PublicationRow(Value):
    """Where a verdict was shown."""

    publisher: str
    verdict: str
    at: datetime


class PullPage(Value):
    """Everything that is known about one pull request."""

    repository: str
    repository_id: int
    number: int
    title: str
    author: Author
    base_ref: str
    head_sha: str
    base_sha: str | None
    merge_tree: str | None
    open: bool
    draft: bool
    outcome: Outcome
    headline: str
    snapshot: str | None
    verdict: str | None
    decided_at: datetime | None
    policy_set: str | None
    policy_set_name: str | None
    mode: str | None
    changed_files: int | None
    checks: tuple[CheckView, ...] = ()
    races: tuple[RaceView, ...] = ()
    evidence: tuple[EvidenceRow, ...] = ()
    chain: tuple[ChainRow, ...] = ()
    jobs: tuple[WaitingJob, ...] = ()
    published: tuple[PublicationRow, ...] = ()
    left: tuple[ToDecide, ...] = ()
    """What waits for a person, with the commands to copy."""
