"""The toy model's problem and oracle: one layer, s' = decay s + tanh(W x) expert, out = s' / rms(s') per row.

state [rows + 1, hidden] fp32, row 0 is nobody's; weight [hidden, hidden] bf16; experts [4, hidden] bf16, chosen by the largest
of four router scores; decay [hidden] fp32.
"""

from __future__ import annotations

import torch

from kernels_under_test import hashrng
from kernels_under_test.contract import EXPERT_IDS, OUT, Role, TensorSpec, Trace, X

HIDDEN, EXPERTS = 32, 4


class ToyProblem:
    name, layers, regimes = "small", 1, ("normal",)
    facts = {"hidden": HIDDEN, "experts": EXPERTS, "eps": 1e-6}

    def check(self, shape):
        return None if shape.query_tokens == 1 and shape.rows <= 16 else "rows must be at most 16, query_tokens 1"

    def tensors(self, shape):
        rows = shape.rows
        return [
            TensorSpec(X, (rows, HIDDEN), "bfloat16", Role.INPUT),
            TensorSpec("weight", (HIDDEN, HIDDEN), "bfloat16", Role.WEIGHT),
            TensorSpec("experts", (EXPERTS, HIDDEN), "bfloat16", Role.WEIGHT),
            TensorSpec("router", (EXPERTS, HIDDEN), "bfloat16", Role.WEIGHT),
            TensorSpec("decay", (HIDDEN,), "float32", Role.WEIGHT),
            TensorSpec("slots", (rows,), "int64", Role.METADATA),
            TensorSpec("scale", (rows,), "float32", Role.SCHEDULE),
            TensorSpec("state", (rows + 1, HIDDEN), "float32", Role.STATE),
            TensorSpec(OUT, (rows, HIDDEN), "bfloat16", Role.OUTPUT),
            TensorSpec(EXPERT_IDS, (1, rows, 1), "int32", Role.OUTPUT),
        ]

    def fill(self, shape, tensors, *, steps, seed, regime="normal", only=None):
        rows = shape.rows
        made = {
            "weight": lambda: hashrng.normal(seed, "weight", (HIDDEN, HIDDEN)) / HIDDEN**0.5,
            "experts": lambda: 1 + 0.5 * hashrng.normal(seed, "experts", (EXPERTS, HIDDEN)),
            "router": lambda: hashrng.normal(seed, "router", (EXPERTS, HIDDEN)),
            "decay": lambda: 0.5 + 0.49 * hashrng.uniform(seed, "decay", (HIDDEN,)),
            "slots": lambda: 1 + hashrng.permutation(seed, "slots", rows),
            "scale": lambda: 0.5 + hashrng.uniform(seed, "scale", (steps, rows)),
            "state": lambda: torch.cat(
                [torch.full((1, HIDDEN), torch.nan), hashrng.normal(seed, "state", (rows, HIDDEN))]
            ),
        }
        for spec in self.tensors(shape):
            if spec.name in made and (only is None or spec.role in only):
                target = tensors[spec.name][:steps] if spec.role is Role.SCHEDULE else tensors[spec.name]
                target.copy_(made[spec.name]())

    def bytes_needed(self, shape):
        return HIDDEN * HIDDEN * 2

    def untouched(self, shape, tensors, steps):
        mask = torch.ones(shape.rows + 1, HIDDEN, dtype=torch.bool)
        mask[tensors["slots"]] = False
        return {"state": mask}


class ToyOracle:
    def follow(self, problem, shape, initial, x, expert_ids):
        wide = {name: value.double() for name, value in initial.items() if value.is_floating_point()}
        slots, state = initial["slots"], wide["state"].clone()
        ids = expert_ids.long()
        if bool(((ids < 0) | (ids >= EXPERTS)).any()):
            raise ValueError("expert id out of range")
        outputs, shortfalls = [], []
        for t in range(x.shape[0]):
            row = x[t].double()
            scores = row @ wide["router"].T
            chosen = ids[t, 0, :, 0]
            shortfalls.append((scores.max(1).values - scores.gather(1, chosen[:, None])[:, 0])[None])
            update = torch.tanh(row @ wide["weight"].T) * wide["experts"][chosen] * wide["scale"][t][:, None]
            state[slots] = wide["decay"] * state[slots] + update
            now = state[slots]
            outputs.append(now / (now.square().mean(1, keepdim=True) + 1e-6).sqrt())
        return Trace({OUT: torch.stack(outputs)}, {"state": state}, torch.stack(shortfalls))


def load(name):
    if name != "small":
        raise ValueError(f"expected 'small'; found {name!r}")
    return ToyProblem()


def oracle():
    return ToyOracle()
