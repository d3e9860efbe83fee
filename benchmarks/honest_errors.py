"""Errors of honest arms, run by run: how far stock and house candidate lie from the oracle, and how much that varies by chance.

The limits of ``gatekeeper/domain/correctness.py`` rest on it. Each run is a closed loop as in a race, in this process, with
fresh weights and a fresh seed. ``collect`` writes one JSON line a run; ``show`` draws samples of 1, 2, 4, ... runs for each arm
from them, the baseline's figures pooled over ``POOL`` runs, and prints quantiles of candidate / baseline.

python benchmarks/honest_errors.py collect --rows 1 --steps 16 --context 64 --runs 200 --out honest_1.jsonl
python benchmarks/honest_errors.py show honest_1.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gatekeeper.domain.race import RaceRules
from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import EXPERT_IDS, Role, Shape
from workers.arena import WORKSPACE, Arena, layout
from workers.arm import Loaded
from workers.figures import Errors
from workers.judge import Judge
from workers.loop.runs import Snapshot, Weights, new_seed, prepare, snapshot
from workers.models import Model, attribute, load_model

MODEL = "kernels_under_test.kimi_k3"
ARMS = {"stock": f"{MODEL}.baseline.stock:baseline", "house": f"{MODEL}.candidate.gate:candidate"}
POOL = 8
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)
DRAWS = 20000


def shot(model: Model, implementation: Any, shape: Shape, weights: Weights, seed: int, steps: int) -> Snapshot:
    """Run an implementation once in the closed loop, over an arena of its own."""
    facts, specs = model.problem.facts, model.problem.tensors(shape)
    arena = Arena(layout(specs, steps, implementation.workspace(facts, shape)))
    weights.place(arena)
    data = weights.draw(seed, steps)
    tensors = arena.tensors
    step: Callable[[], None] = implementation.build(
        facts, shape, {s.name: tensors[s.name] for s in specs} | {WORKSPACE: tensors[WORKSPACE]}
    )
    prepare(weights, arena, data)
    tensors["noise"][0].copy_(data.noise[0])
    Loaded(
        step=step,
        buffers=tensors,
        schedules=tuple((tensors[s.name], tensors[f"schedule.{s.name}"]) for s in specs if s.role is Role.SCHEDULE),
        histories=tuple((tensors[s.name], tensors[f"history.{s.name}"]) for s in specs if s.role is Role.OUTPUT),
    ).run(steps)
    taken = snapshot(Arm.CANDIDATE, arena, weights, data, 1)
    arena.close()
    return taken


def figures(model: Model, shape: Shape, taken: Snapshot) -> dict[str, Any]:
    """Return each tensor's row errors, <err, ref> and <ref, ref>, and the shortfalls of the chosen experts."""
    trace = model.oracle.follow(model.problem, shape, taken.data.initial, taken.inputs(), taken.histories[EXPERT_IDS])
    masks = model.problem.untouched(shape, taken.data.initial, taken.data.steps)
    found: dict[str, Any] = {"ids": trace.shortfall.reshape(-1).clamp_min(0).tolist()}
    for name, wanted in trace.outputs.items():
        found[name] = _errors("output", taken.histories[name], wanted, taken.data.steps)
    for name, wanted in trace.states.items():
        touched = (~masks[name]).reshape(-1, wanted.shape[-1]).any(dim=1)
        state = taken.states[name].reshape(-1, wanted.shape[-1])[touched]
        found[name] = _errors("state", state, wanted.reshape(-1, wanted.shape[-1])[touched], taken.data.steps)
    return found


def _errors(kind: str, found: torch.Tensor, wanted: torch.Tensor, steps: int) -> dict[str, Any]:
    errors = Errors(kind)
    errors.add(found, wanted, steps, 1)
    return {
        "kind": kind,
        "rows": [round(v, 7) for v in errors.rows[0].tolist()],
        "along": errors.along,
        "power": errors.power,
    }


def collect(options: argparse.Namespace) -> None:
    """Run every arm ``--runs`` times."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = load_model("kimi_k3", "tiny")
    shape = Shape(options.rows, 1, options.context, options.page, decode_context_parallel=options.dcp)
    arms = {name: attribute(spec) for name, spec in ARMS.items() if name in options.arms.split(",")} | {
        s: attribute(s) for s in options.arms.split(",") if ":" in s
    }
    with options.out.open("a") as out:
        for number in range(options.runs):
            weights, seed = Weights(model, shape, new_seed(), options.steps), new_seed()
            for name, implementation in arms.items():
                taken = shot(model, implementation, shape, weights, seed, options.steps)
                faults = Judge(model, shape, RaceRules.model_construct()).inspect(taken)
                if faults:
                    raise SystemExit(f"{name}, run {number}: {faults}")
                out.write(
                    json.dumps(
                        {"arm": name, "rows": options.rows, "steps": options.steps, **figures(model, shape, taken)}
                    )
                    + "\n"
                )


def main() -> None:
    """Collect or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("collect",))
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--page", type=int, default=4)
    parser.add_argument("--dcp", type=int, default=2)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--arms", default="stock,house")
    parser.add_argument("--out", type=Path, default=Path("honest_errors.jsonl"))
    collect(parser.parse_args())


if __name__ == "__main__":
    main()
