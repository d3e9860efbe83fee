"""Single steps over stressed data, as a race's correctness pass makes them, but in this process."""

from __future__ import annotations

from typing import Any

import torch

from gatekeeper.cli.race import RULES
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.correctness import judge_record
from gatekeeper.domain.decision import Reason
from gatekeeper.domain.samples import Arm, ConfigurationRecord
from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.one_step import oracle
from workers.arena import WORKSPACE, Arena, layout
from workers.arm import Loaded
from workers.loop.blocks import Pair
from workers.loop.runs import STRESS, Data, Snapshot, Weights, prepare, snapshot
from workers.loop.untimed import ONE_STEP, STEP_SEQUENCES, Made, Task, runs_for
from workers.models import Model, shape_of
from workers.records import Records


def shot(arm: Arm, implementation: Any, weights: Weights, data: Data) -> Snapshot:
    """Run an implementation in the closed loop over an arena of its own."""
    problem, shape = weights.model.problem, weights.shape
    specs = problem.tensors(shape)
    arena = Arena(layout(specs, data.steps, implementation.workspace(problem.facts, shape)))
    weights.place(arena)
    tensors = arena.tensors
    given = {spec.name: tensors[spec.name] for spec in specs} | {WORKSPACE: tensors[WORKSPACE]}
    step = implementation.build(problem.facts, shape, given)
    prepare(weights, arena, data)
    tensors["noise"][0].copy_(data.noise[0])
    Loaded(
        step=step,
        buffers=tensors,
        schedules=tuple((tensors[s.name], tensors[f"schedule.{s.name}"]) for s in specs if s.role is Role.SCHEDULE),
        histories=tuple((tensors[s.name], tensors[f"history.{s.name}"]) for s in specs if s.role is Role.OUTPUT),
    ).run(data.steps)
    taken = snapshot(arm, arena, weights, data, 1)
    arena.close()
    return taken


def judged(
    problem: Any, candidate: Any, *, rows: int = 8, seed: int = 1, runs: int | None = None
) -> tuple[list[Reason], ConfigurationRecord]:
    """Let the one-step check judge a candidate; return its reasons and the record."""
    torch.set_grad_enabled(False)
    configuration = Configuration(rows=rows, context=64, page_size=4, decode_context_parallel=2)
    model, shape = Model(problem, oracle()), shape_of(configuration)
    records = Records(configuration, model, RULES, "shard")
    runs = runs or runs_for(configuration, STEP_SEQUENCES)
    task = Task(0, 0, ONE_STEP, STRESS, 1, runs)
    weights = Weights(model, shape, seed, 1, STRESS)
    for index in range(runs):
        data = weights.draw(1000 * seed + index, 1)
        pair = Pair(shot(Arm.BASELINE, baseline, weights, data), shot(Arm.CANDIDATE, candidate, weights, data))
        records.untimed(Made(task, index, pair))
    record = records.record(timed=False)
    return judge_record(record, RULES), record


def stressed(problem: Any, shape: Shape, seed: int = 1) -> tuple[Weights, Data]:
    """Return stressed weights and the data of one step."""
    weights = Weights(Model(problem, oracle()), shape, seed, 1, STRESS)
    return weights, weights.draw(seed + 1, 1)
