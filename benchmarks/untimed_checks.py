"""How far honest arms and planted ones lie from the limits of the untimed checks: chains in every regime and single steps.

Every repetition draws fresh weights and seeds, runs the stock path and each arm in this process as a race's correctness pass
does, and writes one JSON line for each figure: arm, check, tensor or constant, figure, limit, stock's figure. ``show`` prints
the largest share of its limit that each arm reached, by check.

python benchmarks/untimed_checks.py collect --rows 8 --runs 10 --out checks_8.jsonl
python benchmarks/untimed_checks.py show checks_8.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.honest_errors import ARMS, MODEL, shot
from gatekeeper.cli.race import RULES
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.samples import Arm
from workers.judge import Judge
from workers.loop.runs import Weights, new_seed
from workers.loop.untimed import CONSTANT_SEQUENCES, ONE_STEP, Plan
from workers.models import attribute, load_model, shape_of


def figures(judge: Judge) -> Iterator[dict[str, Any]]:
    """Yield every figure of a judge beside its limit."""
    for error in judge.errors():
        for name in ("rms", "median_row", "gain", "element"):
            limit = getattr(error.limits, name)
            if limit is not None:
                yield {
                    "check": error.check, "regime": error.regime, "at": f"{error.tensor} {error.part}".strip(), "name": name,
                    "found": abs(getattr(error.candidate, name)), "stock": abs(getattr(error.baseline, name)), "limit": limit,
                }  # fmt: skip
    for constant in judge.constants(ONE_STEP):
        yield {
            "check": "constant", "regime": "stress", "at": constant.name, "name": "log", "found": abs(constant.candidate),
            "stock": abs(constant.baseline), "limit": constant.limit, "resolution": constant.resolution,
        }  # fmt: skip
    for routing in judge.routing():
        for name in ("mean", "largest", "misordered"):
            limit = getattr(routing.limits, name) if name != "misordered" else routing.baseline.misordered + 0.5
            yield {
                "check": routing.check, "regime": routing.regime, "at": "experts", "name": name,
                "found": getattr(routing.candidate, name), "stock": getattr(routing.baseline, name), "limit": limit,
            }  # fmt: skip


def collect(options: argparse.Namespace) -> None:
    """Run every arm ``--runs`` times."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = load_model("kimi_k3", "tiny")
    configuration = Configuration(
        rows=options.rows, context=options.context, page_size=options.page, decode_context_parallel=options.dcp
    )
    shape, plan = shape_of(configuration), Plan(model, [configuration], RULES)
    arms = {
        name: attribute(ARMS.get(name, name if name.startswith("kernels") else f"{MODEL}.mutants.{name}"))
        for name in options.arms.split(",")
    }
    tasks = [task for task in plan.tasks if not options.checks or task.check in options.checks.split(",")]
    with options.out.open("a") as out:
        for _ in range(options.runs):
            judges = {name: Judge(model, shape, RULES) for name in arms}
            seconds: dict[str, float] = defaultdict(float)
            for task in tasks:
                regime = plan.loads[task.load].regime
                weights = Weights(model, shape, new_seed(), task.steps, regime)
                weights.regime = task.regime
                for index in range(task.runs):
                    seed = new_seed()
                    stock = replace(
                        shot(model, attribute(ARMS["stock"]), shape, weights, seed, task.steps), arm=Arm.BASELINE
                    )
                    for name, implementation in arms.items():
                        taken, judge = shot(model, implementation, shape, weights, seed, task.steps), judges[name]
                        began = time.process_time()
                        faults = judge.inspect(taken)
                        if not faults and task.check == ONE_STEP:
                            constants = index * configuration.requests < CONSTANT_SEQUENCES
                            faults = judge.one_step(stock, taken, ONE_STEP, constants=constants)
                        elif not faults:
                            faults = judge.follow(stock, task.check, task.regime)
                            faults += judge.follow(taken, task.check, task.regime)
                        seconds[task.check] += time.process_time() - began
                        for fault in faults:
                            print(f"{name}: {fault.code} {fault.where}: {fault.found}", file=sys.stderr)
            for name, judge in judges.items():
                for figure in figures(judge):
                    out.write(json.dumps({"arm": name, "rows": options.rows, **figure}) + "\n")
            print({check: round(spent / len(arms), 3) for check, spent in seconds.items()}, "s of the oracle for each arm",
                  file=sys.stderr)  # fmt: skip


def show(options: argparse.Namespace) -> None:
    """Print for each arm and check the figures nearest to their limits, and the largest over all repetitions."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in options.out.read_text().splitlines():
        row = json.loads(line)
        groups[row["arm"], row["check"]].append(row)
    for (arm, check), rows in sorted(groups.items()):
        places: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            places[row["regime"], row["at"], row["name"]].append(row)
        ranked = sorted(places.items(), key=lambda item: -max(r["found"] / r["limit"] for r in item[1]))
        for (regime, at, name), found in ranked[: options.top]:
            shares = sorted(r["found"] / r["limit"] for r in found)
            worst = max(found, key=lambda r: r["found"] / r["limit"])
            print(
                f"{arm:28} {check:9} {regime:7} {at:32} {name:10} share max {shares[-1]:8.3f} median {shares[len(shares) // 2]:7.3f}"
                f"  found {worst['found']:.3g} stock {worst['stock']:.3g} limit {worst['limit']:.3g}"
                + (f" resolution {worst['resolution']:.2g}" if "resolution" in worst else "")
            )


def main() -> None:
    """Collect or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("--rows", type=int, default=8)
    collecting.add_argument("--context", type=int, default=64)
    collecting.add_argument("--page", type=int, default=4)
    collecting.add_argument("--dcp", type=int, default=2)
    collecting.add_argument("--runs", type=int, default=10)
    collecting.add_argument("--arms", default="stock,house", help="stock, house, or a mutant as module:attribute")
    collecting.add_argument("--checks", default="", help="chain, regime, one_step; all if left out")
    collecting.add_argument("--out", type=Path, default=Path("untimed_checks.jsonl"))
    collecting.set_defaults(do=collect)
    showing = commands.add_parser("show")
    showing.add_argument("out", type=Path)
    showing.add_argument("--top", type=int, default=6)
    showing.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
