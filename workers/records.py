"""Everything gathered at one configuration, and the record that it becomes."""

from __future__ import annotations

from collections.abc import Sequence

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import Arm, ArmRecord, Block, ConfigurationRecord, FaultEffect, RaceFault
from workers.judge import Judge
from workers.loop.blocks import Pair
from workers.loop.follow_on import LONG, Piece
from workers.loop.late import LATE, Late
from workers.loop.untimed import CHAIN, CONSTANT_SEQUENCES, ONE_STEP, REPEATS, Made, Unsteady, offered
from workers.models import Model, shape_of

FAULTS_KEPT = 20
"""Faults of one configuration that are written down; a candidate that is wrong in every run says no more by the thousandth."""


class Records:
    """Gathers blocks, faults and errors of one configuration."""

    def __init__(
        self, configuration: Configuration, model: Model, rules: RaceRules, communication: str, mode: str = "eager"
    ) -> None:
        self.configuration = configuration
        self._shape = shape_of(configuration)
        self._model = model
        self._rules = rules
        self._judge = Judge(model, self._shape, rules)
        self._communication, self._mode = communication, mode
        self.kernels: dict[Arm, int | None] = {}
        self.stages: dict[Arm, tuple[str, ...]] = {}
        self.blocks: list[Block] = []
        self.control: list[Block] = []
        self.faults: list[RaceFault] = []
        self.goes_long = False
        """Whether the race's long chain is run at this configuration."""

    def add(self, block: Block, *, control: bool) -> None:
        """Take in a finished block."""
        (self.control if control else self.blocks).append(block)

    def inspect(self, pair: Pair, *, control: bool = False) -> bool:
        """Look at both shots without an oracle; return whether both are free of faults. In a control both are the baseline."""
        found = [*self._judge.inspect(pair.baseline), *self._judge.inspect(pair.candidate)]
        if control:
            found = [fault.model_copy(update={"effect": FaultEffect.VOID}) for fault in found]
        self.faults = [*self.faults, *found][:FAULTS_KEPT]
        return not found

    def untimed(self, made: Made) -> None:
        """Take in a pair of runs of the correctness pass. The first chain is where the oracle proves itself."""
        task = made.task
        if task.check != ONE_STEP:
            self.check(made.pair, task.check, task.regime, prove=task.check == CHAIN and made.index == 0)
        elif self.inspect(made.pair) and not self.faults:
            constants = made.index * self.configuration.requests < CONSTANT_SEQUENCES
            found = self._judge.one_step(made.pair.baseline, made.pair.candidate, ONE_STEP, constants=constants)
            self.faults = [*self.faults, *found][:FAULTS_KEPT]

    def late(self, late: Late, pair: Pair) -> None:
        """Take in a pair of runs of the check inside a timed block."""
        if late.check != ONE_STEP:
            self.check(pair, LATE, late.regime)
        elif self.inspect(pair) and not self.faults:
            found = self._judge.one_step(pair.baseline, pair.candidate, LATE, constants=True)
            self.faults = [*self.faults, *found][:FAULTS_KEPT]

    def long(self, piece: Piece) -> None:
        """Take in one run of a long chain."""
        if self.inspect(piece.pair) and not self.faults:
            found = [
                fault
                for shot in (piece.pair.baseline, piece.pair.candidate)
                for fault in self._judge.follow_long(shot, first=piece.first, counted=piece.counted)
            ]
            self.faults = [*self.faults, *found][:FAULTS_KEPT]

    def steady(self, unsteady: Sequence[Unsteady]) -> None:
        """Take in which arms gave other bits when a run was run again. Nothing is asked where the baseline did so too."""
        if not any(one.arm is Arm.BASELINE for one in unsteady):
            for one in unsteady:
                fault = RaceFault(
                    code="COR_NOT_DETERMINISTIC", effect=FaultEffect.WRONG, arm=one.arm, where=one.tensor,
                    expected=f"the same bits in {REPEATS} repeats of a run, as the baseline gives", found=one.found,
                )  # fmt: skip
                self.faults = [*self.faults, fault][:FAULTS_KEPT]

    def check(self, pair: Pair, check: str, regime: str = "normal", *, prove: bool = False) -> None:
        """Look at both shots and let the oracle follow them."""
        if self.inspect(pair):
            self.follow(pair, check, regime, prove=prove)

    def follow(self, pair: Pair, check: str, regime: str = "normal", *, prove: bool = False) -> None:
        """Let the oracle follow both shots of a pair that has been inspected; one with faults is not followed."""
        if self.faults:
            return
        found = self._judge.follow(pair.baseline, check, regime, prove=prove)
        found += self._judge.follow(pair.candidate, check, regime)
        self.faults = [*self.faults, *found][:FAULTS_KEPT]

    def record(self, *, timed: bool = True) -> ConfigurationRecord:
        """Return the record so far; without ``timed`` it holds no times."""
        problem = self._model.problem
        arms = {
            arm.value: ArmRecord(
                stages=self.stages.get(arm, ()), mode=self._mode, communication=self._communication,
                kernels=self.kernels.get(arm),
            )
            for arm in Arm
        }  # fmt: skip
        return ConfigurationRecord(
            configuration=self.configuration,
            layers=problem.layers,
            bytes_needed=problem.bytes_needed(self._shape),
            baseline=arms["baseline"],
            candidate=arms["candidate"],
            errors=self._judge.errors(),
            routing=self._judge.routing(),
            constants=self._judge.constants(),
            offered=(*offered(self._model, self._rules), *([LONG] if self.goes_long else [])),
            faults=tuple(self.faults),
            self_proofs=tuple(self._judge.proofs),
            blocks=_whole(self.blocks) if timed else (),
            control=_whole(self.control) if timed else (),
        )


def _whole(blocks: list[Block]) -> tuple[Block, ...]:
    """Return the blocks whose pair is complete."""
    numbers = [block.pair for block in blocks]
    return tuple(block for block in blocks if numbers.count(block.pair) == 2)
