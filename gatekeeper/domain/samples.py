"""Raw measurements of a race: every run of every group of every block, and every figure of the correctness check.

Nothing here is a summary of timing, so that anyone can decide a race again from its result. Times are integer nanoseconds of
the harness's monotonic clock; a bad number (zero, negative, not a whole number, text, NaN) is refused with ``TIM_BAD_NUMBER``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.documents import Value

LARGEST_WHOLE = (1 << 53) - 1
"""Largest integer that JSON readers agree on; as nanoseconds it is 104 days."""


def _whole(value: Any) -> int:
    """Refuse everything but a positive int that survives JSON; bool is an int in Python and is refused too."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST_WHOLE:
        raise ValueError(f"TIM_BAD_NUMBER: expected a positive whole number up to 2**53 - 1; found {value!r}")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Seed = Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
"""Up to 128 bits in lower-case hexadecimal; an integer of that size would not survive JSON."""


class Arm(StrEnum):
    """The two sides of a race. In a control block both are the baseline, and the names tell only who sat where."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class Run(Value):
    """One timed run: ``steps`` decode steps, timed from outside. ``event_nanoseconds`` is the arm's own reading, advisory."""

    arm: Arm
    seed: Seed
    steps: Whole
    nanoseconds: Whole
    event_nanoseconds: Whole | None = None


class Group(Value):
    """Runs close in time, in the order in which they were run: ABBA or BAAB (A is the baseline), or more of the same.

    Both arms run the same seeds with the same steps, and no arm runs a seed twice.
    """

    order: Literal["ABBA", "BAAB"]
    runs: tuple[Run, ...] = Field(min_length=4)
    repeats: int = Field(default=0, ge=0, description="times this group was run again because the machine throttled")

    @model_validator(mode="after")
    def _order_is_kept(self) -> Group:
        letters = "".join("A" if run.arm is Arm.BASELINE else "B" for run in self.runs)
        wanted = self.order * (len(self.runs) // 4)
        if letters != wanted or len(self.runs) % 4:
            raise ValueError(f"runs must follow {self.order}, whole times; found {letters}")
        sides = [{run.seed: run.steps for run in self.runs if run.arm is arm} for arm in Arm]
        if sides[0] != sides[1] or len(sides[0]) * 2 != len(self.runs):
            raise ValueError("both arms must run the same seeds with the same steps, none twice in one arm")
        return self


class Block(Value):
    """One fresh process for each arm. A *unit* is a pair of blocks with the slots swapped and the start order turned round."""

    pair: int = Field(ge=0)
    swapped: bool = Field(description="whether the arms sat in each other's physical slot")
    first_started: Arm
    data_seed: Seed = Field(description="seed of weights and initial states of this block")
    groups: tuple[Group, ...] = Field(min_length=1)


class ErrorFigures(Value):
    """Row-wise relative L2 error of one arm against its own pinned oracle, and the signed gain <err, ref> / <ref, ref>."""

    rms: float = Field(ge=0)
    median_row: float = Field(ge=0)
    largest: float = Field(ge=0)
    gain: float
    element: float | None = Field(
        default=None, ge=0, description="largest error of one element, over its row's root mean square; None: not taken"
    )


class ErrorLimits(Value):
    """Largest figures allowed to the candidate: rms, median row and element as they are, gain in absolute value."""

    rms: float = Field(ge=0)
    median_row: float = Field(ge=0)
    gain: float = Field(ge=0)
    element: float | None = Field(default=None, ge=0, description="None: elements are not held against a limit")


class ErrorRecord(Value):
    """The errors of one output or state in one check, for both arms over the same seeds, with the limits that were applied.

    A limit is the baseline's figure times the policy's factor, but not below ``floors``, which follow from the dtype, and
    wider where few sequences were followed; see ``error_limits``.
    """

    tensor: str = Field(min_length=1)
    kind: Literal["output", "state"]
    check: str = Field(min_length=1, description="chain, regime, one_step, timed, ...")
    part: str = Field(default="", description="name of the rows compared for themselves; empty: all that a run touches")
    regime: str = "normal"
    steps: Whole
    rows: Whole
    sequences: Whole = Field(description="requests followed, each over a run of its own: what the figures vary with")
    candidate: ErrorFigures
    baseline: ErrorFigures
    floors: ErrorLimits
    limits: ErrorLimits


class ConstantRecord(Value):
    """How far off one constant of the model seems to be in each arm: natural logarithm of what it looks like over what it is.

    The error of an arm's single steps is projected on what the oracle's answer would change by if the constant were larger
    (least squares, rows weighted by the stock path's own errors). Rounding has no such direction; a norm weight that is 1 %
    too large shows as 0.01.
    """

    name: str = Field(min_length=1, description="a weight tensor, all of it scaled, or a fact of the problem")
    check: str = Field(min_length=1)
    candidate: float
    baseline: float
    resolution: float = Field(
        ge=0, description="standard error that the stock path's errors would give, were they random"
    )
    floor: float = Field(ge=0)
    limit: float = Field(ge=0)


class Shortfall(Value):
    """How far chosen experts lay below the oracle's last chosen score, in units of the score; 0 where the sets agree."""

    mean: float = Field(ge=0)
    largest: float = Field(ge=0)
    misordered: int = Field(
        default=0,
        ge=0,
        description="choices of an expert before its twin, although the twin comes first beyond any rounding",
    )


class RoutingRecord(Value):
    """Shortfall of both arms in one check, with the limits that were applied to the candidate."""

    check: str = Field(min_length=1)
    regime: str = "normal"
    steps: Whole
    rows: Whole
    candidate: Shortfall
    baseline: Shortfall
    floors: Shortfall
    limits: Shortfall


class FaultEffect(StrEnum):
    """What a fault does to the race."""

    WRONG = "wrong"
    """The candidate broke a rule or gave a wrong answer, crashed or timed out."""
    HELD = "held"
    """Not proof of a wrong, but no machine may pass it: a person looks."""
    VOID = "void"
    """The measurement failed, and that says nothing about the candidate."""
    NOTE = "note"


class RaceFault(Value):
    """One thing that the harness saw go wrong. ``where`` names arm, run, tensor and offset as far as known."""

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    effect: FaultEffect
    arm: Arm | None = None
    where: str
    expected: str
    found: str


class SelfProof(Value):
    """The oracle was shown a planted wrong answer (zeros, the previous output, ...); it must have been refused."""

    name: str = Field(min_length=1)
    refused: bool
    figure: float = Field(ge=0, description="relative error that the oracle saw")


class ArmRecord(Value):
    """How one arm ran: its own stage names (shown, never judged), execution mode and communication."""

    stages: tuple[str, ...] = ()
    kernels: int | None = Field(
        default=None, ge=0, description="kernel nodes in the graph that one step was captured into; None: not captured"
    )
    mode: str = Field(pattern=r"^(eager|graph|compiled)$")
    communication: str = Field(pattern=r"^(shard|real)$")


class SupportAnswer(Value):
    """What the candidate's ``supports()`` said to one configuration. A reason is the contributor's text."""

    configuration: Configuration
    asked_as: Literal["advertised", "refused", "guard", "boundary"]
    declined: bool
    reason: str = Field(default="", max_length=1024)


class ConfigurationRecord(Value):
    """Everything measured at one configuration. Blocks come in whole pairs; correctness records may stand without blocks."""

    configuration: Configuration
    layers: Whole = Field(description="layers in one step")
    bytes_needed: Whole = Field(description="least bytes that one step must move, each needed byte once")
    baseline: ArmRecord
    candidate: ArmRecord
    errors: tuple[ErrorRecord, ...] = ()
    routing: tuple[RoutingRecord, ...] = ()
    constants: tuple[ConstantRecord, ...] = ()
    offered: tuple[str, ...] = Field(
        default=(), description="checks that the model offers beside those of every race; each must have been made"
    )
    faults: tuple[RaceFault, ...] = ()
    self_proofs: tuple[SelfProof, ...] = ()
    blocks: tuple[Block, ...] = ()
    control: tuple[Block, ...] = ()
    """A/A blocks: the baseline against itself."""

    @model_validator(mode="after")
    def _whole_pairs(self) -> ConfigurationRecord:
        for name, blocks in (("blocks", self.blocks), ("control", self.control)):
            pairs: dict[int, list[Block]] = {}
            for block in blocks:
                pairs.setdefault(block.pair, []).append(block)
            for number, pair in pairs.items():
                if not _is_unit(pair):
                    raise ValueError(
                        f"{name}: pair {number} must be two blocks with slots swapped and start order turned round;"
                        f" found {[(block.swapped, block.first_started.value) for block in pair]}"
                    )
        return self


def _is_unit(pair: list[Block]) -> bool:
    return len(pair) == 2 and pair[0].swapped != pair[1].swapped and pair[0].first_started is not pair[1].first_started
