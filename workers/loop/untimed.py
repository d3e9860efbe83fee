"""The runs of the correctness pass, before any time is taken: chains, short chains in every regime, single steps, repeats.

All are run by one pair of processes, while the oracle follows those before: nothing is timed. Which runs a configuration needs is
counted in requests, since those, not rows, are what an error varies with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import StepOracle
from workers.inspection import difference
from workers.loop.blocks import BlockRun, Pair
from workers.loop.follow_on import RESUMED, Piece, long_chain, resume
from workers.loop.load import competing
from workers.loop.runs import STRESS, Data, Snapshot
from workers.models import Model, shape_of

CHAIN, REGIME, ONE_STEP = "chain", "regime", "one_step"
CHAIN_STEPS = 32
"""Steps of a correctness chain in unit normal data; fewer where the context is shorter."""
REGIME_STEPS, REGIME_SEQUENCES = 4, 8
STEP_SEQUENCES = 16
CONSTANT_SEQUENCES = 12
"""Requests whose single steps are projected on every constant; each costs the oracle as much as forty steps of a chain."""
REPEATS, REPEAT_STEPS = 6, 6
"""Times that one run is run again, another one between every two of them; the second half beside a competing load."""
MOST_LONG_REQUESTS = 8
"""A long chain is run where the requests are many, since an error varies with those, but not so many that it takes all day."""
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
    every = [REGIME] if set(model.problem.regimes) - {"normal"} else []
    every += [ONE_STEP] if isinstance(model.oracle, StepOracle) else []
    every += [RESUMED]
    return tuple(check for check in every if check in rules.untimed_checks)


def longest_at(configurations: Sequence[Configuration]) -> int:
    """Return the number of the configuration that a long chain is run at: the most requests up to a limit, else the fewest."""
    counts = [configuration.requests for configuration in configurations]
    fitting = [count for count in counts if count <= MOST_LONG_REQUESTS]
    return counts.index(max(fitting) if fitting else min(counts))


class Plan:
    """Which loads and tasks the configurations need. The first loads are the configurations themselves, in their order."""

    def __init__(self, model: Model, configurations: Sequence[Configuration], rules: RaceRules) -> None:
        self.loads = [
            Load(n, min(CHAIN_STEPS, c.context // c.query_tokens), "normal") for n, c in enumerate(configurations)
        ]
        self.tasks: list[Task] = []
        checks = offered(model, rules)
        self.resumes = RESUMED in checks
        """Whether each chain is followed by a single step from the arm's own end states."""
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
    """Run every task of a check; hand out each pair as it is made. Chains are followed by a single step from their end states."""
    for task in plan.tasks:
        for index in range(task.runs if task.check == check else 0):
            data = block.draw(task.load, task.steps, task.regime)
            baseline, candidate = (block.shot(arm, task.load, data) for arm in Arm)
            pair = Pair(baseline, candidate)
            yield Made(task, index, pair)
            if check == CHAIN and plan.resumes:
                yield Made(replace(task, check=RESUMED, steps=1), index, resume(block, task.load, pair))


def run_long(plan: Plan, block: BlockRun, number: int, steps: int) -> Iterator[Piece]:
    """Run one long chain at a configuration, in runs as long as it was built for."""
    return long_chain(block, number, steps, plan.loads[number].steps)


def run_again(plan: Plan, block: BlockRun, configurations: Sequence[Configuration]) -> Iterator[Unsteady]:
    """Run one run of each configuration again and again; hand out what came out otherwise."""
    for number in range(len(configurations)):
        steps = min(REPEAT_STEPS, plan.loads[number].steps)
        data, other = block.draw(number, steps), block.draw(number, steps)
        firsts: dict[Arm, Snapshot] = {arm: block.shot(arm, number, data) for arm in Arm}
        found = _repeated(block, number, data, other, firsts, range(REPEATS // 2))
        with competing(block.course.cores.arms):
            found += _repeated(block, number, data, other, firsts, range(REPEATS // 2, REPEATS))
        yield from {one.arm: one for one in reversed(found)}.values()


def _repeated(
    block: BlockRun, number: int, data: Data, other: Data, firsts: Mapping[Arm, Snapshot], repeats: range
) -> list[Unsteady]:
    """Run ``data`` again, with ``other`` between, and return for each arm the first repeat that gave other bits than its first run."""
    found = []
    for arm in Arm:
        for repeat in repeats:
            if repeat % 2:
                block.shot(arm, number, other)
            apart = difference(firsts[arm], block.shot(arm, number, data))
            if apart is not None:
                found.append(Unsteady(number, arm, *apart))
                break
    return found
