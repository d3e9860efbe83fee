"""Records A/A blocks of a GPU target: the baseline against itself, in fresh pairs of jailed processes, through the harness's own path.

    python benchmarks/gpu/race_aa.py --target h200 --blocks 52 --out aa.json

Prints mean, SD and the upper 95 % bound of the absolute mean of the block values, for the target's ``[noise]`` table. Starting a pair
takes longer than timing it, so several pairs build at once, each arm on a core of its own; all are frozen but the one that is timed.
The next pairs start while these build, and nothing starts while anything is timed. With ``--seconds`` it stops after the batch in
which that time is used up, and writes what it has. ``--add`` pools the blocks with those of an earlier record of the same kind.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gatekeeper.catalog import ROOT, load_catalog
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.race import InstalledSource
from gatekeeper.domain.samples import Arm, Block
from gatekeeper.domain.stats import block_value
from workers.devices.find import find_device
from workers.environment import Cores, cores, cpu_model
from workers.jail import Limits, find_jail
from workers.loop.blocks import BlockRun, Course, Pair, Plan
from workers.loop.runs import stand_still
from workers.models import load_model, shape_of
from workers.side import Runner, Side
from workers.sources import code_of

Started = list[tuple[Course, Plan, dict[Arm, Side]]]


def start(lanes: list[Course], plans: list[Plan]) -> Started:
    """Start a pair of processes on each lane."""
    return [(lane, plan, lane.start(plan)) for lane, plan in zip(lanes, plans, strict=False)]


def settled(batch: Started) -> None:
    """Wait until every process has started, and freeze it."""
    for _, _, sides in batch:
        for side in sides.values():
            side.ready()
            stand_still(side)


def build(batch: Started, configuration: Configuration, steps: int, stack: ExitStack) -> list[BlockRun]:
    """Let all pairs build side by side; return their blocks, all frozen."""
    blocks = [stack.enter_context(BlockRun(course, plan, sides)) for course, plan, sides in batch]

    def load(block: BlockRun) -> None:
        torch.set_grad_enabled(False)
        block.load([shape_of(configuration)], [2 * steps])

    with ThreadPoolExecutor(len(blocks)) as pool:
        list(pool.map(load, blocks))
    return blocks


def ignore(_number: int, _pair: Pair, _timed: bool) -> None:
    """Drop the snapshots: this is about times alone."""


def summarised(blocks: list[Block], trim: float) -> dict[str, float]:
    """Return count, mean, SD and the upper 95 % bound of the absolute mean, all as log ratios."""
    values = [block_value(block, trim) for block in blocks]
    mean, sd = fmean(values), stdev(values)
    reach = float(student.ppf(0.95, len(values) - 1)) * sd / math.sqrt(len(values))
    return {"blocks": len(values), "mean": mean, "block_sd": sd, "mean_upper_95": abs(mean) + reach}


def earlier(file: Path | None, wanted: dict[str, Any]) -> list[Block]:
    """Return the blocks of an earlier record.

    Raises:
        SystemExit: if it was made otherwise: another device, configuration, groups, steps or trim.
    """
    if file is None:
        return []
    document = json.loads(file.read_text())
    odd = {name: document.get(name) for name, value in wanted.items() if document.get(name) != value}
    if odd:
        raise SystemExit(f"expected a record with {wanted} in {file}, found {odd}")
    return [Block.model_validate(block) for block in document["blocks"]]


def main() -> None:
    """Run the blocks and write every sample and the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="h200")
    parser.add_argument("--model", default="kimi_k3")
    parser.add_argument("--blocks", type=int, default=52)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--trim", type=float, default=0.25)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--add", type=Path, help="an earlier record whose blocks are counted too")
    parser.add_argument("--out", type=Path, default=Path("aa.json"))
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    began = time.monotonic()
    catalog = load_catalog()
    target, model = catalog.targets[options.target], catalog.models[options.model]
    parts = model.parts(target)
    if parts is None:
        raise SystemExit(f"expected a target that {model.name} can be raced on, found {target.name}")
    configuration = Configuration(
        rows=options.rows, context=options.context, page_size=parts.page_size, tensor_parallel=parts.tensor_parallel
    )
    usable = sorted(os.sched_getaffinity(0))
    with closing(find_device(target, ROOT)) as device, closing(Runner(device.stub())) as runner:
        baseline = code_of(InstalledSource(entry_point=parts.baseline), None)
        jail = find_jail(target.minimum_jail)
        course = Course(
            load_model(model.name, parts.default_problem, architecture=target.architecture),
            baseline, baseline, jail, runner, cores(), Limits(cpus=tuple(usable)), device,
        )  # fmt: skip
        lanes = [
            replace(course, cores=Cores((core,), (usable[0],), tuple(usable)))
            for core in usable[: -options.lanes - 1 : -1]
        ]
        plans = [plan for pair in range(options.blocks // 2) for plan in Plan.unit(pair, control=True)]
        kept: list[Block] = []
        waiting = start(lanes, plans)
        settled(waiting)
        while waiting:
            batch, ahead = waiting, plans[len(kept) + len(waiting) :]
            late = time.monotonic() - began > options.seconds
            waiting = [] if late else start(lanes, ahead)
            with ExitStack() as stack:
                at = time.monotonic()
                blocks = build(batch, configuration, options.steps, stack)
                settled(waiting)
                built = time.monotonic()
                os.sched_setaffinity(0, {usable[0]})
                for block in blocks:
                    kept.append(block.timed(options.groups, ignore)[0])
                os.sched_setaffinity(0, set(usable))
            values = " ".join(f"{block_value(block, options.trim):+.4f}" for block in kept[-len(blocks) :])
            print(
                f"{len(kept)} blocks, {built - at:.1f} s to build, {time.monotonic() - built:.1f} s timed: {values}",
                flush=True,
            )
        whole = [block for block in kept if sum(other.pair == block.pair for other in kept) == 2]
        kind = {
            "device": device.name, "configuration": configuration.label, "groups": options.groups, "trim": options.trim,
            "steps": options.steps,
        }  # fmt: skip
        before = earlier(options.add, kind)
        shift = 1 + max((block.pair for block in before), default=-1)
        whole = [*before, *(block.model_copy(update={"pair": block.pair + shift}) for block in whole)]
        summary = summarised(whole, options.trim)
        document: dict[str, Any] = {
            **kind, "cpu": cpu_model(), "versions": dict(device.versions()), "jail": jail.level.value, "lanes": options.lanes,
            "new": len(whole) - len(before), "summary": summary, "blocks": [block.model_dump(mode="json") for block in whole],
        }  # fmt: skip
    options.out.write_text(json.dumps(document))
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
