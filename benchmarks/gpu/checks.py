"""Is a path right? Against the float64 reference, and replay by replay against its own kernels run one at a time."""

from __future__ import annotations

from typing import Any

import torch
from timing import capture

from kernels_under_test.kimi_k3.cuda.reference import after_routing, before_experts, shortfall
from kernels_under_test.kimi_k3.cuda.sizes import EXPERTS, OUT_SHARD
from kernels_under_test.kimi_k3.cuda.tensors import draw_inputs

STATES = ("prefix", "state", "conv_state")
LEFT = ("y", "core", "x2", "ids", "out")
"""What a step leaves in an arm's buffers."""
NULL_ROWS = {2: (1,), 8: (1, 5, 6), 16: (1, 5, 6), 32: (1, 5, 6), 64: (1, 5, 6)}


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """|found - wanted| / |wanted|; NaN stays NaN."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


class Oracle:
    """One set of inputs and what the reference makes of them; the expert ids are the arm's own."""

    def __init__(self, weights: Any, rows: int, seed: int, null_rows: tuple[int, ...] = ()) -> None:
        self.weights = weights
        self.kept = draw_inputs(rows, seed, "cuda", null_rows)
        self.wanted = before_experts(weights.dense, {k: v.clone() for k, v in self.kept.items()})
        self._outs: dict[bytes, torch.Tensor] = {}

    def inputs(self) -> dict[str, torch.Tensor]:
        """A fresh copy for an arm to work on."""
        return {k: v.clone() for k, v in self.kept.items()}

    def out(self, ids: torch.Tensor) -> torch.Tensor:
        """The output with these experts."""
        key = ids.cpu().numpy().tobytes()
        if key not in self._outs:
            self._outs[key] = after_routing(self.weights, self.kept, self.wanted, ids)
        return self._outs[key]

    def judge(self, arm: Any, inputs: dict[str, torch.Tensor], replays: int = 2) -> dict[str, Any]:
        """Errors of an arm, replayed through one graph from restored states, its output poisoned before each replay."""
        kept, wanted = self.kept, self.wanted
        if hasattr(arm, "fill_front"):
            arm.fill_front(wanted["logits"].float(), wanted["z"].bfloat16())
        graph = capture(arm.run)
        outs = []
        for _ in range(replays):
            for name in STATES:
                inputs[name].copy_(kept[name])
            for buffer in (arm.out[:, :OUT_SHARD], arm.core, *getattr(arm, "scratch", ())):
                buffer.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            outs.append(arm.out.clone())
        live = kept["slots"] > 0
        slots = kept["slots"][live].long()
        ids = arm.ids.clone()
        valid = bool(((ids >= 0) & (ids < EXPERTS)).all()) and all(len(set(r)) == 16 for r in ids.tolist())
        result = {
            "prefix": error(inputs["prefix"], wanted["prefix"]),
            "y": error(arm.y, wanted["y"]),
            "core": error(arm.core, wanted["core"]),
            "state": error(inputs["state"][slots], wanted["state"]),
            "conv_state": error(inputs["conv_state"][slots], wanted["conv_state"]),
            "others_untouched": bool(
                torch.equal(torch.nan_to_num(inputs["state"][0]), torch.nan_to_num(kept["state"][0]))
            ),
            "logits": error(arm.logits, wanted["logits"]),
            "ids_valid": valid,
            "repeat_equal": all(torch.equal(outs[0], out) for out in outs),
            "peers_columns": bool(torch.equal(arm.out[:, OUT_SHARD:], kept["peers_out"][:, OUT_SHARD:])),
        }
        if valid:
            result["shortfall"] = shortfall(wanted, self.weights.dense["bias"], ids)
            result["distinct_experts"] = int(ids.unique().numel())
            result["out"] = error(arm.out[:, :OUT_SHARD], self.out(ids))
        return result


def good(result: dict[str, Any]) -> bool:
    """Within bf16 rounding of the reference, and every state in place."""
    return (
        all(result.get(k, 1.0) < 1.5e-2 for k in ("prefix", "y", "core", "conv_state", "logits", "state"))
        and result.get("out", 1.0) < 3e-2
        and result.get("shortfall", 1.0) < 2e-2
        and all(result[k] for k in ("ids_valid", "repeat_equal", "peers_columns", "others_untouched"))
    )


def load(arm: Any, inputs: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
    """Give a captured arm new inputs in its own buffers, and poison everything that it computes."""
    for key, value in fresh.items():
        inputs[key].copy_(value)
    arm.out.copy_(fresh["peers_out"])
    arm.out[:, :OUT_SHARD] = float("nan")
    gen = torch.Generator(device="cuda").manual_seed(int(fresh["slots"][0]))
    arm.fill_front(
        torch.randn(arm.logits.shape, device="cuda", generator=gen),
        torch.randn(arm.z.shape, device="cuda", generator=gen).bfloat16(),
    )
    poison(arm)


def poison(arm: Any) -> None:
    """NaN into every buffer that a step writes before it reads, and counts that are long reached into the experts' counters."""
    for buffer in arm.scratch:
        buffer.fill_(float("nan"))
    arm.done.fill_(1 << 20)


def outcome(arm: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything that a step leaves behind."""
    kept = {name: inputs[name] for name in STATES}
    return {k: v.clone() for k, v in ({name: getattr(arm, name) for name in LEFT} | kept).items()}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit, NaN included."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def draw(rows: int, seed: int, i: int) -> dict[str, torch.Tensor]:
    """Inputs of a replay; every fourth has null rows."""
    return draw_inputs(rows, seed, "cuda", NULL_ROWS.get(rows, ()) if i % 4 == 3 else ())


def replays(
    made: list[tuple[Any, dict[str, torch.Tensor]]], count: int, seed: int, draw: Any = draw, load: Any = load,
    outcome: Any = outcome, delay: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Replay one graph of some layers ``count`` times, each time on fresh inputs, and compare each layer bit for bit with the same
    kernels launched one at a time. The kernels' sums have a fixed order, so any difference is a race.

    ``delay`` is launched before each kernel of the graph: it lets that kernel start at once and itself takes some time behind the
    kernels before, so that one that does not wait works on what the poison left.
    """

    def run() -> None:
        for arm, _ in made:
            for kernel in arm.kernels:
                if delay:
                    delay()
                arm.launch(kernel)

    graph = capture(run)
    rows = made[0][0].m
    differ: dict[str, int] = {}
    wrong = 0
    for i in range(count):
        fresh = [draw(rows, seed + i * len(made) + j, i) for j in range(len(made))]
        for (arm, inputs), new in zip(made, fresh, strict=True):
            load(arm, inputs, new)
        graph.replay()
        found = [outcome(arm, inputs) for arm, inputs in made]
        for (arm, inputs), new in zip(made, fresh, strict=True):
            load(arm, inputs, new)
            for kernel in arm.kernels:
                arm.launch(kernel)
                torch.cuda.synchronize()
        wanted = [outcome(arm, inputs) for arm, inputs in made]
        bad = {name for f, w in zip(found, wanted, strict=True) for name in f if not same(f[name], w[name])}
        wrong += bool(bad)
        for name in bad:
            differ[name] = differ.get(name, 0) + 1
    return {"replays": count, "wrong": wrong, **{f"differ_{k}": v for k, v in differ.items()}}
