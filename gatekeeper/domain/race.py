"""The wire format between the service and the race and probe workers: requests in, results out, nothing else.

A result is parsed into these types or discarded. Times are integer nanoseconds of the harness's monotonic clock; ratios are
baseline / candidate, so above 1 the candidate is faster.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator

from gatekeeper.domain.catalog import HardwareTarget, JailLevel
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.documents import Digest, Document, GitId, Value
from gatekeeper.domain.guard_asking import GuardAsking
from gatekeeper.domain.samples import ConfigurationRecord, RaceFault, SupportAnswer

ENTRY_POINT = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"


class TreeSource(Value):
    """An implementation in a pull request's tree: exactly this directory is written out, its tree id is recomputed."""

    kind: Literal["tree"] = "tree"
    repository_id: int
    tree: GitId
    """Object id of the directory's tree in the merge result."""
    directory: str
    """Path of the directory from the repository root; its parents become empty packages."""
    entry_point: str = Field(pattern=ENTRY_POINT)


class InstalledSource(Value):
    """An implementation that ships with this installation (the stock baseline, the house candidate, a mutant)."""

    kind: Literal["installed"] = "installed"
    entry_point: str = Field(pattern=ENTRY_POINT)


class LocalSource(Value):
    """An implementation in a directory on this machine: only for races that a person starts by hand."""

    kind: Literal["local"] = "local"
    path: str
    entry_point: str = Field(pattern=ENTRY_POINT)


CodeSource = Annotated[TreeSource | InstalledSource | LocalSource, Field(discriminator="kind")]


class RaceRules(Value):
    """Everything that a policy set may choose about a race, except alpha, which depends on how often the author asked."""

    looks: tuple[int, ...] = Field(
        description="numbers of blocks after which the race may stop, ascending; even numbers"
    )
    nominal_p: tuple[float, ...] = Field(
        description="nominal one-sided p at each look for alpha 0.01; 0 means futility only"
    )
    groups: int = Field(gt=0, description="ABBA groups in a block, for each configuration")
    trim: float = Field(
        default=0.1, ge=0, lt=0.5, description="share of group values that a block value leaves out at each end"
    )
    steps: int = Field(gt=0, description="N: a run has a random number of steps in [N, 2N]")
    margin: float = Field(ge=0, lt=1, description="gain that must be exceeded, relative")
    control_blocks: int = Field(ge=0, description="A/A blocks of the session")
    chain_sequences: int = Field(
        default=16,
        ge=2,
        description="requests that the untimed chains of a configuration bring together, at least, each over a run of its own: what "
        "an error figure varies with; several query tokens of a request count as one",
    )
    untimed_checks: tuple[Literal["regime", "one_step", "resumed"], ...] = Field(
        default=("regime", "one_step", "resumed"),
        description="checks beside chains, of a model that offers them: other regimes of data, single steps over stressed data, "
        "single steps from the end states of an arm's own chains",
    )
    long_steps: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="steps of one long chain at one configuration, state carried from run to run; 0: none",
    )
    boundary_points: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="configurations of the boundary pool that the harness draws and tries; 0: none",
    )
    guard_configurations: int = Field(ge=0, description="configurations drawn by the harness that were not advertised")
    guard_loss: float = Field(ge=0, lt=1, description="largest loss allowed on a guard configuration, relative")
    checked_share: float = Field(
        gt=0, le=1, description="share of timed runs that go through the oracle, drawn afterwards"
    )
    plausible_ratio: float = Field(gt=1, description="a ratio above this is held for a person")
    margin_cap: float = Field(default=0.05, gt=0, lt=1, description="a target that needs a larger margin cannot race")
    raceable_block_sd: float = Field(default=0.03, gt=0, description="a target with noisier A/A blocks cannot race")
    record_blocks: int = Field(default=50, ge=2, description="least number of A/A blocks in the target's record")
    gain_per_layer_ns: int = Field(default=500, ge=0, description="least median gain of a layer; not asked on a CPU")
    intercept_gap: float = Field(
        default=0.02, gt=0, description="largest difference of the arms' fixed costs, of a run"
    )
    fixed_cost_ns: int = Field(
        default=200_000,
        ge=0,
        description="gain of a run that its start and end may explain; held where runs are too short to tell",
    )
    clock_gap: float = Field(default=0.01, gt=0, description="largest difference of the two clocks' log ratios")
    throttled_share: float = Field(
        default=0.1, gt=0, lt=1, description="largest share of groups repeated by throttling"
    )
    rms_factor: float = Field(
        default=1.5, ge=1, description="candidate's rms error over the baseline's; states: all of it"
    )
    median_factor: float = Field(default=1.15, ge=1, description="candidate's median row error over the baseline's")
    gain_factor: float = Field(default=2.0, ge=1, description="candidate's absolute signed gain over the baseline's")
    shortfall_mean_factor: float = Field(default=3.0, ge=1, description="mean score shortfall over the baseline's")
    shortfall_largest_factor: float = Field(
        default=6.0, ge=1, description="largest score shortfall over the baseline's"
    )

    @model_validator(mode="after")
    def _one_p_per_look(self) -> RaceRules:
        if len(self.looks) != len(self.nominal_p) or not self.looks or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks must ascend and have one nominal p each; found {self.looks} and {self.nominal_p}")
        return self


class RaceRequest(Document):
    """One race. Its digest is the key of the race job: asked twice, it is run once."""

    schema_version: int = 1
    purpose: str = Field(default="verdict", pattern=r"^(verdict|audit|selftest|local|re-verify [0-9]+)$")
    model: str
    problem: str
    suite: Digest
    target: HardwareTarget
    candidate: CodeSource
    baseline: CodeSource
    configurations: tuple[Configuration, ...] = Field(min_length=1)
    refused: tuple[Configuration, ...] = ()
    """Configurations outside the declared scope: the candidate must decline each with a reason."""
    guard_pool: tuple[Configuration, ...] = ()
    """Configurations inside the served ranges that were not advertised; the harness draws its guards from these."""
    boundary_pool: tuple[Configuration, ...] = ()
    """Served configurations where code may branch; the harness draws some, tries them untimed and shrinks what is wrong."""
    rules: RaceRules


class RaceOrder(Value):
    """A request together with how sure this race must be. Alpha is not part of the request: evidence outlives budgets."""

    request: RaceRequest
    alpha: float = Field(gt=0, le=0.05)
    until: Literal["end", "correctness"] = Field(
        default="end",
        description="correctness: nothing is timed, supports() is not asked, and a candidate that is right ends in an abandoned race",
    )


class RaceOutcome(StrEnum):
    """How a race ended; see ``docs/race.md`` for what each does to the check."""

    BETTER = "better"
    NOT_BETTER = "not_better"
    WORSE = "worse"
    WRONG = "wrong"
    INCONCLUSIVE = "inconclusive"
    DECLINED = "declined"
    HELD = "held"
    VOID = "void"


class ProbeRequest(Document):
    """Facts about a tree that need running code: asked of a jailed process, answered with a fixed layout."""

    schema_version: int = 1
    source: TreeSource
    guard: str | None = Field(default=None, pattern=ENTRY_POINT)
    askings: tuple[GuardAsking, ...] = Field(default=(), max_length=64)
    """How hook files ask the guard; none: as they do as a rule."""
    platform_modules: tuple[str, ...] = ()
    """Dotted names of modules that must import with the GPU packages absent."""
    model: str | None = Field(default=None, pattern=ENTRY_POINT)
    """``module:attribute`` of the problem loader whose facts ``supports()`` is asked with; None: an empty mapping."""
    problem: str = ""
    """Name of the problem that the loader is called with."""
    advertised: tuple[Configuration, ...] = ()
    refused: tuple[Configuration, ...] = ()


class ProbeFault(Value):
    """One thing that the probe saw: an import error, an effect at import, a wrong answer of ``supports()``."""

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    where: str
    expected: str
    found: str


class ProbeResult(Document):
    """What the probe found. ``ok`` is not stored: it is the absence of faults."""

    schema_version: int = 1
    jail: JailLevel
    entry_point_found: bool
    faults: tuple[ProbeFault, ...] = ()
    supported: tuple[bool, ...] = ()
    """Answer of ``supports()`` for each advertised configuration, in order."""
    declined: tuple[str, ...] = ()
    """Reason given for each advertised configuration, in order; an empty text where it is supported."""
    refused: tuple[str, ...] = ()
    """Reason given for each refused configuration, in order; an empty text means that it was not refused."""
    seconds: float = Field(ge=0)


class RaceStatus(StrEnum):
    """How far the race got. Times exist only in a finished race: a half-measured or a wrong candidate has no speed."""

    FINISHED = "finished"
    """Ran to a look at which it could stop; every configuration has its blocks."""
    STOPPED = "stopped"
    """Ended by a wrong answer or a refusal of the candidate."""
    ABANDONED = "abandoned"
    """Ended by the machine or the harness; says nothing about the candidate."""


class RaceEnvironment(Value):
    """Where and when a race ran."""

    device: str
    cpu_model: str
    machine: str = Field(default="", description="name of the worker")
    versions: dict[str, str] = {}
    """Version by component: python, torch, kernel, driver, ..."""
    started_at: AwareDatetime
    ended_at: AwareDatetime
    throttle_reasons: tuple[str, ...] = ()
    clocks: dict[str, int] = {}
    """Clock in MHz by domain, where known."""

    @model_validator(mode="after")
    def _ends_after_start(self) -> RaceEnvironment:
        if self.ended_at < self.started_at:
            raise ValueError(f"a race must end after its start; found {self.started_at} to {self.ended_at}")
        return self


class RaceResult(Document):
    """A race with all raw samples, so that anyone can decide it again. ``outcome`` is what the harness made of them.

    Whether ``outcome`` is true is not a question to this document: the policies recompute it from the rest.
    """

    schema_version: int = 1
    status: RaceStatus
    outcome: RaceOutcome
    alpha: float = Field(default=0.01, gt=0, le=0.05, description="the alpha that the harness stopped at")
    jail: JailLevel
    reasons: tuple[str, ...] = ()
    environment: RaceEnvironment | None = None
    """None only where the race was abandoned before anything could be read."""
    configurations: tuple[ConfigurationRecord, ...] = ()
    guards: tuple[ConfigurationRecord, ...] = ()
    """Records of the guard configurations that the harness drew."""
    boundaries: tuple[ConfigurationRecord, ...] = ()
    """Records without times of the boundary points that were tried, and of smaller ones at which the candidate is wrong."""
    supports: tuple[SupportAnswer, ...] = ()
    faults: tuple[RaceFault, ...] = ()
    """Faults of the race as a whole (the self-proof, the machine); those of one configuration stand in its record."""

    @model_validator(mode="after")
    def _numbers_only_when_finished(self) -> RaceResult:
        records = self.configurations + self.guards
        tried = (*records, *self.boundaries)
        timed = [record.configuration.label for record in tried if record.blocks or record.control]
        if self.status is not RaceStatus.FINISHED and timed:
            raise ValueError(
                f"times exist only in a finished race; found status {self.status.value} with times at {timed}"
            )
        if self.status is RaceStatus.FINISHED:
            bare = [record.configuration.label for record in records if not record.blocks]
            if bare or not self.configurations or self.environment is None:
                raise ValueError(
                    f"a finished race has an environment and blocks at every configuration; none at {bare}"
                )
        self._outcome_fits_status()
        labels = [record.configuration.label for record in records]
        if len(set(labels)) != len(labels):
            raise ValueError(f"each configuration may have one record; found {labels}")
        return self

    def _outcome_fits_status(self) -> None:
        allowed = {
            RaceStatus.FINISHED: set(RaceOutcome),
            RaceStatus.STOPPED: {RaceOutcome.WRONG, RaceOutcome.DECLINED},
            RaceStatus.ABANDONED: {RaceOutcome.VOID},
        }[self.status]
        if self.outcome not in allowed:
            raise ValueError(
                f"a race that is {self.status.value} may end as {sorted(outcome.value for outcome in allowed)};"
                f" found {self.outcome.value}"
            )
