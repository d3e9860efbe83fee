"""The runs of the correctness pass, before any time is taken: chains, short chains in every regime, single steps, repeats.

All are run by one pair of processes, while the oracle follows those before: nothing is timed. Which runs a configuration needs is
counted in requests, since those, not rows, are what an error varies with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import StepOracle
from workers.inspection import difference
from workers.loop.blocks import BlockRun, Pair
from workers.loop.runs import STRESS, Snapshot
from workers.models import Model, shape_of

CHAIN, REGIME, ONE_STEP = "chain", "regime", "one_step"
CHAIN_STEPS = 32
"""Steps of a correctness chain in unit normal data; fewer where the context is shorter."""
REGIME_STEPS, REGIME_SEQUENCES = 4, 8
STEP_SEQUENCES = 16
CONSTANT_SEQUENCES = 12
"""Requests whose single steps are projected on every constant; each costs the oracle as much as forty steps of a chain."""
REPEATS, REPEAT_STEPS = 6, 6
"""Times that one run is run again, another one between every two of them."""
OWN_WEIGHTS = frozenset({"ties", STRESS})
"""Regimes whose weights are not the unit normal ones: the arms build once more for each."""


@dataclass(frozen=True)
class Task:
    """So many runs of one kind at one configuration, over the weights loaded under ``load``."""

    number: int
    load: int
    check: str
    regime: str
    steps: int
    runs: int


@dataclass(frozen=True)
class Load:
    """What the arms build: a configuration's number, the most steps of a run, the regime of its weights."""

    number: int
    steps: int
    regime: str


@dataclass(frozen=True)
class Made:
    """A pair of runs of a task, both over the same data."""

    task: Task
    index: int
    pair: Pair


@dataclass(frozen=True)
class Unsteady:
    """A run that gave other bits when it was run again over the same data."""

    number: int
    arm: Arm
    tensor: str
    found: str


def runs_for(configuration: Configuration, sequences: int, least: int = 2) -> int:
    """Return how many runs bring so many requests together."""
    return max(least, -(-sequences // configuration.requests))


def offered(model: Model, rules: RaceRules) -> tuple[str, ...]:
    """Return the checks that a model offers beside those of every race, and that the rules ask for."""
    found = [REGIME] if set(model.problem.regimes) - {"normal"} else []
    every = [*found, ONE_STEP] if isinstance(model.oracle, StepOracle) else found
    return tuple(check for check in every if check in rules.untimed_checks)


class Plan:
    """Which loads and tasks the configurations need. The first loads are the configurations themselves, in their order."""

    def __init__(self, model: Model, configurations: Sequence[Configuration], rules: RaceRules) -> None:
        self.loads = [
            Load(n, min(CHAIN_STEPS, c.context // c.query_tokens), "normal") for n, c in enumerate(configurations)
        ]
        self.tasks: list[Task] = []
        checks = offered(model, rules)
        for number, configuration in enumerate(configurations):
            steps = self.loads[number].steps
            chains = runs_for(configuration, rules.chain_sequences)
            self.tasks.append(Task(number, number, CHAIN, "normal", steps, chains))
            short = min(REGIME_STEPS, configuration.context // configuration.query_tokens)
            for regime in model.problem.regimes if REGIME in checks else ():
                if regime != "normal":
                    load = self._load(number, short, regime) if regime in OWN_WEIGHTS else number
                    runs = runs_for(configuration, REGIME_SEQUENCES)
                    self.tasks.append(Task(number, load, REGIME, regime, short, runs))
            if ONE_STEP in checks:
                load = self._load(number, 1, STRESS)
                runs = runs_for(configuration, STEP_SEQUENCES)
                self.tasks.append(Task(number, load, ONE_STEP, STRESS, 1, runs))

    def _load(self, number: int, steps: int, regime: str) -> int:
        self.loads.append(Load(number, steps, regime))
        return len(self.loads) - 1


def build_all(plan: Plan, block: BlockRun, configurations: Sequence[Configuration]) -> None:
    """Let both arms build everything that the plan's runs need."""
    shapes = [shape_of(configurations[load.number]) for load in plan.loads]
    block.load(shapes, [load.steps for load in plan.loads], [load.regime for load in plan.loads])


def run_tasks(plan: Plan, block: BlockRun, check: str) -> Iterator[Made]:
    """Run every task of a check; hand out each pair as it is made."""
    for task in plan.tasks:
        for index in range(task.runs if task.check == check else 0):
            data = block.draw(task.load, task.steps, task.regime)
            baseline, candidate = (block.shot(arm, task.load, data) for arm in Arm)
            yield Made(task, index, Pair(baseline, candidate))


def run_again(plan: Plan, block: BlockRun, configurations: Sequence[Configuration]) -> Iterator[Unsteady]:
    """Run one run of each configuration again and again; hand out what came out otherwise."""
    for number in range(len(configurations)):
        yield from _repeated(block, number, min(REPEAT_STEPS, plan.loads[number].steps))


def _repeated(block: BlockRun, number: int, steps: int) -> Iterator[Unsteady]:
    """Where the baseline gives the same bits each time, say whether the candidate does not."""
    data, other = block.draw(number, steps), block.draw(number, steps)
    for arm in Arm:
        first: Snapshot = block.shot(arm, number, data)
        for repeat in range(REPEATS):
            if repeat % 2:
                block.shot(arm, number, other)
            apart = difference(first, block.shot(arm, number, data))
            if apart is not None:
                yield Unsteady(number, arm, *apart)
                break
