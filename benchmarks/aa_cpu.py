"""Records A/A blocks of a CPU target: the baseline against itself, in fresh pairs of processes, through the harness's own path.

    python benchmarks/aa_cpu.py --blocks 50 --out aa_cpu.json

Prints mean, SD and the upper 95 % bound of the absolute mean of the block values, for the target's ``[noise]`` table: of all
configurations the largest. Leave the machine alone while it runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from statistics import fmean, stdev

import torch
from scipy.stats import t as student

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.samples import Block
from gatekeeper.domain.stats import block_value
from workers.environment import cores, cpu_model
from workers.jail import Limits, find_jail
from workers.loop.blocks import BlockRun, Course, Pair, Plan
from workers.models import load_model, shape_of
from workers.side import Runner
from workers.sources import ROOT, Code


def main() -> None:
    """Run the blocks and write every sample and the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=50)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", default="1,8")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--trim", type=float, default=0.25)
    parser.add_argument("--out", type=Path, default=Path("aa_cpu.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    configurations = [
        Configuration(rows=int(rows), context=options.context, page_size=8, decode_context_parallel=2)
        for rows in options.rows.split(",")
    ]
    usable, runner = cores(), Runner()
    baseline = Code("kernels_under_test.kimi_k3.baseline.stock:baseline", ROOT, ROOT / "kernels_under_test/kimi_k3")
    course = Course(
        load_model("kimi_k3", "tiny"), baseline, baseline, find_jail(), runner, usable, Limits(cpus=usable.starting)
    )
    if usable.harness:
        os.sched_setaffinity(0, usable.harness)
    kept: list[list[Block]] = [[] for _ in configurations]
    try:
        for pair in range(options.blocks // 2):
            for plan in Plan.unit(pair, control=True):
                with BlockRun(course, plan, course.start(plan)) as block:
                    block.load([shape_of(c) for c in configurations], [2 * options.steps for _ in configurations])
                    found = block.timed(options.groups, ignore)
                for number, measured in found.items():
                    kept[number].append(measured)
            values = [
                f"{block_value(blocks[-2], options.trim):+.4f} {block_value(blocks[-1], options.trim):+.4f}"
                for blocks in kept
            ]
            print(f"unit {pair + 1}: {' | '.join(values)}", flush=True)
    finally:
        runner.close()
    summary = {
        c.label: summarised([block_value(b, options.trim) for b in blocks])
        for c, blocks in zip(configurations, kept, strict=True)
    }
    document = {
        "cpu": cpu_model(),
        "jail": course.jail.level.value,
        "groups": options.groups,
        "trim": options.trim,
        "steps": options.steps,
        "summary": summary,
        "blocks": {
            c.label: [b.model_dump(mode="json") for b in blocks] for c, blocks in zip(configurations, kept, strict=True)
        },
    }
    options.out.write_text(json.dumps(document))
    print(json.dumps(summary, indent=2))


def ignore(_number: int, _pair: Pair, _timed: bool) -> None:
    """Drop the snapshots: this is about times alone."""


def summarised(values: list[float]) -> dict[str, float]:
    """Return count, mean, SD and the upper 95 % bound of the absolute mean, all as log ratios."""
    mean, sd = fmean(values), stdev(values)
    reach = float(student.ppf(0.95, len(values) - 1)) * sd / math.sqrt(len(values))
    return {"blocks": len(values), "mean": mean, "block_sd": sd, "mean_upper_95": abs(mean) + reach}


if __name__ == "__main__":
    main()
