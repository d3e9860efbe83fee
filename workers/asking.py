"""Asks real arms at configurations, for the boundary search: is the candidate wrong there, and how is that told on a command line.

One pair of processes builds a batch of configurations and runs each a few times: in unit normal data, and with a padded row
(the null slot, an empty request). Every run gives the requests other state slots and pages, so what one run leaves in a slot is
another request's in the next. The oracle follows every run.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import BOUNDARY, judge_record
from gatekeeper.domain.race import RaceOutcome, RaceRules
from gatekeeper.domain.samples import Arm, ConfigurationRecord
from workers.boundaries import Finding
from workers.loop.blocks import ArmFault, BlockRun, Course, Pair, Plan
from workers.loop.runs import Interference
from workers.models import shape_of
from workers.records import Records
from workers.side import Side

STEPS = 6
REGIMES = ("normal", "padded", "normal")
PLAN = Plan(0, False, Arm.BASELINE)
RULES = RaceRules(
    looks=(2,), nominal_p=(0.009,), groups=1, steps=8, margin=0.05, control_blocks=0, guard_configurations=0,
    guard_loss=0.5, checked_share=1.0, plausible_ratio=50,
)  # fmt: skip
"""Nothing is timed here; of these only the factors of the errors count, and they are the default ones."""
LEAST_RACED = 8
"""Least context at which ``gatekeeper race`` races."""


@dataclass(frozen=True)
class Asker:
    """Asks a candidate, against the baseline, at batches of configurations. The same seed gives the same data."""

    course: Course
    seed: int
    rules: RaceRules = RULES
    communication: str = "shard"
    tick: Callable[[], None] = lambda: None
    """Called before an arm gets time; it raises when there is none left."""
    serves: frozenset[str] = frozenset()
    """Labels of configurations that the candidate is known to serve: it is not asked again."""
    kept: dict[str, ConfigurationRecord] = field(default_factory=dict)
    """By label: the record of every configuration that both arms came through."""

    def __call__(self, configurations: Sequence[Configuration]) -> list[Finding | None]:
        """Return what is wrong with the candidate at each configuration, None where nothing is or where it declines.

        Where an arm crashes or hangs, only the first such configuration is told.
        """
        defined = [c for c in configurations if self.course.model.problem.check(shape_of(c)) is None]
        served = self._served(defined)
        found = {finding.configuration.label: finding for finding in self._together(served)}
        return [found.get(configuration.label) for configuration in configurations]

    def _served(self, configurations: Sequence[Configuration]) -> list[Configuration]:
        unknown = [c for c in configurations if c.label not in self.serves]
        if not unknown:
            return list(configurations)
        self.tick()
        course = self.course
        side = Side(Arm.CANDIDATE, course.candidate, course.jail, course.runner, course.limits)
        try:
            side.ready()
            answers = side.supports(course.model, [shape_of(c) for c in unknown])
        finally:
            side.close()
        declined = {c.label for c, reason in zip(unknown, answers, strict=True) if reason is not None}
        return [c for c in configurations if c.label not in declined]

    def _together(self, configurations: Sequence[Configuration]) -> list[Finding]:
        """Ask at all of them with one pair of processes; where an arm fails, at the halves, to see where."""
        if not configurations:
            return []
        try:
            return self._run(configurations)
        except (ArmFault, Interference) as fault:
            if len(configurations) > 1:
                half = len(configurations) // 2
                return self._together(configurations[:half]) or self._together(configurations[half:])
            return self._failed(configurations[0], fault)

    def _failed(self, configuration: Configuration, fault: ArmFault | Interference) -> list[Finding]:
        if fault.arm is not Arm.CANDIDATE:
            return []  # the baseline's failure says nothing about the candidate
        code = fault.failed.code if isinstance(fault, ArmFault) else fault.code
        return [Finding(configuration, code, str(fault)[:300])]

    def _run(self, configurations: Sequence[Configuration]) -> list[Finding]:
        model = self.course.model
        regimes = [regime for regime in REGIMES if regime in model.problem.regimes]
        steps = [min(STEPS, c.context // c.query_tokens) for c in configurations]
        pairs: list[tuple[int, str, Pair]] = []
        self.tick()
        sides = self.course.start(PLAN, perturb=True)
        block = BlockRun(self.course, PLAN, sides, tick=self.tick, data_seed=self.seed, awake=False)
        with block:
            block.load([shape_of(c) for c in configurations], steps)
            for number, configuration in enumerate(configurations):
                for index, regime in enumerate(regimes):
                    seed = self._seed_of(configuration, index)
                    data = block.draw(number, steps[number], regime, seed=seed)
                    baseline, candidate = (block.shot(arm, number, data) for arm in Arm)
                    pairs.append((number, regime, Pair(baseline, candidate)))
        records = [Records(c, model, self.rules, self.communication) for c in configurations]
        for number, regime, pair in pairs:
            records[number].check(pair, BOUNDARY, regime)
        made = [record.record(timed=False).model_copy(update={"offered": ()}) for record in records]
        self.kept.update({record.configuration.label: record for record in made})
        return [finding for record in made if (finding := _finding(record, self.rules)) is not None]

    def _seed_of(self, configuration: Configuration, index: int) -> int:
        text = f"{self.seed} {configuration.label} {index}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:16], "big")


def _finding(record: ConfigurationRecord, rules: RaceRules) -> Finding | None:
    for reason in judge_record(record, rules):
        if reason.outcome is RaceOutcome.WRONG:
            text = f"{reason.message}: expected {reason.expected}, found {reason.found}"
            return Finding(record.configuration, reason.code, text)
    return None


@dataclass(frozen=True)
class Names:
    """How the two implementations, model and problem are called on a command line, and the seed of the search."""

    model: str
    problem: str
    candidate: str
    baseline: str
    seed: int


def command(c: Configuration, names: Names) -> str:
    """Return one command line that shows what is wrong at ``c`` again: a race where one can be run, else a search at one point."""
    plain = (c.query_tokens, c.tensor_parallel, c.expert_parallel, c.dtypes) == (1, 1, 1, {})
    words = ["gatekeeper", "race"] if plain and c.context >= LEAST_RACED else [
        "python", "-m", "workers.boundary_runs", "--seed", str(names.seed), "--points", "1",
        "--query-tokens", str(c.query_tokens), "--tp", str(c.tensor_parallel), "--ep", str(c.expert_parallel),
    ]  # fmt: skip
    words += ["--model", names.model, "--problem", names.problem, "--candidate", names.candidate]
    words += ["--baseline", names.baseline, "--rows", str(c.rows), "--context", str(c.context)]
    words += ["--page-size", str(c.page_size), "--dcp", str(c.decode_context_parallel)]
    return shlex.join(words)
