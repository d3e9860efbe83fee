"""Checks inside each timed block: a process that is timed is asked what else only the untimed ones are.

A candidate can tell the processes of the correctness pass from those that are timed: by what they build, by memory that holds a
pattern, by their place in a race. So each timed pair builds more than what is timed, as the untimed pair does, and between two of
its groups, at a place that nobody can foresee, makes some runs over it that are not timed: single steps over stressed data, and a
few steps in another regime.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import Arm
from workers.loop.blocks import BlockRun, Pair
from workers.loop.runs import STRESS
from workers.loop.untimed import ONE_STEP, OWN_WEIGHTS, REGIME, REGIME_STEPS, offered, runs_for
from workers.models import Model

LATE = "late"
LATE_REQUESTS = 4
"""Requests that one block's check brings together; each costs the oracle as much as forty steps where it asks for constants."""
_random = random.SystemRandom()


@dataclass(frozen=True)
class Late:
    """What one block checks: at which of its configurations, counted from 0, what, in which regime and how often."""

    index: int
    check: str
    regime: str
    steps: int
    runs: int

    @property
    def weights(self) -> str:
        """The regime that the weights are drawn in."""
        return self.regime if self.regime in OWN_WEIGHTS else "normal"


def draw_late(model: Model, rules: RaceRules, configurations: Sequence[Configuration]) -> list[Late]:
    """Return what a block with these configurations checks, drawn anew: one of each kind that model and rules offer."""
    found = []
    for check in offered(model, rules):
        index = _random.randrange(len(configurations))
        chosen = configurations[index]
        runs = runs_for(chosen, LATE_REQUESTS, 1)
        if check == ONE_STEP:
            found.append(Late(index, check, STRESS, 1, runs))
        elif check == REGIME:
            regime = _random.choice([name for name in model.problem.regimes if name != "normal"])
            steps = min(REGIME_STEPS, chosen.context // chosen.query_tokens)
            found.append(Late(index, check, regime, steps, runs))
    return found


def run_late(block: BlockRun, lates: Sequence[Late], first: int) -> list[tuple[Late, Pair]]:
    """Make the runs of some checks, which were built as the numbers from ``first`` on."""
    pairs = []
    for load, late in enumerate(lates, first):
        for _ in range(late.runs):
            data = block.draw(load, late.steps, late.regime)
            shots = {arm: block.shot(arm, load, data) for arm in _random.sample(list(Arm), 2)}
            pairs.append((late, Pair(shots[Arm.BASELINE], shots[Arm.CANDIDATE])))
    return pairs
