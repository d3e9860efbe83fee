"""What the race's rule says of races put together from real A/A blocks: how often BETTER, with its interval.

    python benchmarks/resampled_races.py aa_cpu.json [--races 1000] [--seed 20261130]

``aa_cpu.json`` is what ``benchmarks/aa_cpu.py`` wrote. A race draws units (pairs of blocks) from it with replacement, walks the looks of
``gatekeeper race`` and is decided by ``judge_times`` as a real one is. The truth is 1.00: each BETTER is false. With ``--gain`` all
candidate times are divided by a factor: then it is the power. Prints one line for each configuration.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections import Counter
from pathlib import Path

from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gatekeeper.catalog import load_catalog
from gatekeeper.cli.race import RULES
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import InstalledSource, RaceRequest
from gatekeeper.domain.race_decision import judge_times
from gatekeeper.domain.samples import Arm, ArmRecord, Block, ConfigurationRecord
from gatekeeper.domain.sequential import next_look

ALPHA = 0.01


def interval(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of Clopper and Pearson."""
    low = float(beta.ppf(0.025, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, total - count)) if count < total else 1.0
    return low, high


def faster(block: Block, gain: float, pair: int) -> Block:
    """Return a block as pair ``pair``, its candidate times divided by ``gain``."""
    groups = tuple(
        group.model_copy(
            update={
                "runs": tuple(
                    run if run.arm is Arm.BASELINE
                    else run.model_copy(update={"nanoseconds": max(round(run.nanoseconds / gain), 1)})
                    for run in group.runs
                )
            }
        )
        for group in block.groups
    )  # fmt: skip
    return block.model_copy(update={"pair": pair, "groups": groups})


def outcome(request: RaceRequest, units: list[list[Block]], gain: float, source: random.Random) -> str:
    """Run one race over units drawn with replacement; return how its times decide it."""
    arm = ArmRecord(mode="eager", communication=request.target.communication)
    blocks: list[Block] = []
    record = ConfigurationRecord(
        configuration=request.configurations[0], layers=2, bytes_needed=1, baseline=arm, candidate=arm
    )
    look = next_look(request.rules, 0)
    while look is not None:
        while len(blocks) < look:
            blocks += [faster(block, gain, len(blocks) // 2) for block in source.choice(units)]
        found = judge_times(request, [record.model_copy(update={"blocks": tuple(blocks)})], [], ALPHA)
        if found.outcome is not None:
            return found.outcome.value
        look = found.next_look
    return "undecided"


def main() -> None:
    """Print how races end at each configuration of the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--races", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--gain", type=float, default=1.0)
    options = parser.parse_args()
    catalog = load_catalog()
    model = catalog.models["kimi_k3"]
    # No control blocks: what is drawn is the control.
    rules = RULES.model_copy(update={"control_blocks": 0})
    for label, raw in json.loads(options.record.read_text())["blocks"].items():
        blocks = [Block.model_validate(one) for one in raw]
        units = [blocks[index : index + 2] for index in range(0, len(blocks) - 1, 2)]
        request = RaceRequest(
            purpose="local", model=model.name, problem=model.default_problem, suite=model.suite,
            target=catalog.targets["cpu"], candidate=InstalledSource(entry_point=model.baseline),
            baseline=InstalledSource(entry_point=model.baseline), rules=rules,
            configurations=(Configuration(rows=1, context=256, page_size=8),),
        )  # fmt: skip
        source = random.Random(options.seed)
        found = Counter(outcome(request, units, options.gain, source) for _ in range(options.races))
        better = found["better"] + found["held"]
        low, high = interval(better, options.races)
        share = f"{better / options.races:.4f} ({low:.4f} to {high:.4f})"
        print(
            f"{label}: {len(units)} units, true ratio {math.exp(math.log(options.gain)):.3f}, better {share}; {dict(found)}"
        )


if __name__ == "__main__":
    main()
