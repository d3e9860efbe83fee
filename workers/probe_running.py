"""What the probe's third process needs to build the candidate and run a few steps: the problem's tensors, filled, in one file.

The trusted half makes them, as in a race: problems are our own code. The smallest advertised configuration is taken.
"""

from __future__ import annotations

import importlib
import importlib.util
from math import prod
from pathlib import Path
from typing import Any

from gatekeeper.domain.race import ProbeRequest
from workers.models import shape_fields, shape_of

STEPS = 3
MOST_BYTES = 256 << 20
"""Largest file: what is only meant for a large GPU is not built here."""
ALIGNED = 4096


def steps_order(request: ProbeRequest, runner: Path) -> dict[str, Any] | None:
    """Write ``tensors.bin`` into ``runner`` and return what the jailed half has to know of it; None where nothing can be built."""
    if request.model is None or not request.advertised or importlib.util.find_spec("torch") is None:
        return None
    from kernels_under_test.contract import Role  # torch comes with the problem: only who builds needs it

    module, name = request.model.split(":")
    problem = getattr(importlib.import_module(module), name)(request.problem)
    shapes = [shape for each in request.advertised if problem.check(shape := shape_of(each)) is None]
    if not shapes:
        return None
    import torch

    def size(spec: Any) -> int:
        return int(prod(spec.shape)) * int(getattr(torch, spec.dtype).itemsize)

    shape = min(shapes, key=lambda each: sum(map(size, problem.tensors(each))))
    specs = problem.tensors(shape)
    steps = min(STEPS, shape.context)
    wanted = [(spec.name, spec.shape, spec.dtype) for spec in specs]
    wanted += [
        (f"schedule.{spec.name}", (steps, *spec.shape), spec.dtype) for spec in specs if spec.role is Role.SCHEDULE
    ]
    table: dict[str, tuple[int, int, tuple[int, ...], str]] = {}
    end = 0
    for key, dimensions, dtype in wanted:
        length = int(prod(dimensions)) * int(getattr(torch, dtype).itemsize)
        table[key] = end, length, tuple(dimensions), dtype
        end += -(-length // ALIGNED) * ALIGNED
    if end > MOST_BYTES:
        return None
    memory = torch.zeros(max(end, 1), dtype=torch.uint8)
    tensors = {
        key: memory[at : at + length].view(getattr(torch, dtype)).reshape(dimensions)
        for key, (at, length, dimensions, dtype) in table.items()
    }
    schedules = [spec.name for spec in specs if spec.role is Role.SCHEDULE]
    filled = {**tensors, **{each: tensors[f"schedule.{each}"] for each in schedules}}
    try:
        problem.fill(shape, filled, steps=steps, seed=1)
    except ValueError:
        return None
    (runner / "tensors.bin").write_bytes(memory.numpy().tobytes())
    (runner / "tensors.bin").chmod(0o644)
    return {"shape": dict(shape_fields(shape)), "table": table, "steps": steps, "schedules": schedules, "most": MOST_BYTES,
            "given": [spec.name for spec in specs]}  # fmt: skip
