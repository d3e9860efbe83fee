"""Is an MLA layer right? As ``checks``, with ragged lengths, shuffled pages, and NaN wherever no request may read."""

from __future__ import annotations

from typing import Any

import torch
from checks import error, poison
from timing import capture

from kernels_under_test.kimi_k3.cuda.mla_reference import mla_before_experts
from kernels_under_test.kimi_k3.cuda.mla_sizes import PAGE
from kernels_under_test.kimi_k3.cuda.mla_tensors import draw_mla_inputs, draw_pool, draw_tables
from kernels_under_test.kimi_k3.cuda.mla_tensors import poison as poison_cache
from kernels_under_test.kimi_k3.cuda.reference import after_routing, shortfall
from kernels_under_test.kimi_k3.cuda.sizes import EXPERTS, OUT_SHARD
from kernels_under_test.kimi_k3.cuda.tensors import draw_streams

EDGES = (1, 2, 31, 32, 33, 63, 64, 65, 0, 95, 96, 97, 127, 128, 129, 4095, 4096, 4097, 1000, 3)
"""Lengths on, before and behind the edges of blocks (32) and pages (64); 0 is a request without tokens."""
LEFT = ("y", "query", "core", "x2", "ids", "out")


def ragged(rows: int, first: int, longest: int = 5000) -> list[int]:
    """Lengths of some rows: the edges in turn from ``first`` on, and one long request."""
    lengths = [EDGES[(first + i) % len(EDGES)] for i in range(rows)]
    lengths[first % rows] = longest
    return lengths


class MlaOracle:
    """One set of inputs and what the reference makes of them; the expert ids are the arm's own."""

    def __init__(self, weights: Any, lengths: list[int], seed: int) -> None:
        self.weights, self.lengths = weights, lengths
        self.kept = draw_mla_inputs(lengths, seed, "cuda")
        poison_cache(self.kept)
        self.wanted = mla_before_experts(weights.dense, self.kept)
        self._outs: dict[bytes, torch.Tensor] = {}

    def inputs(self) -> dict[str, torch.Tensor]:
        """A fresh copy for an arm to work on."""
        return {k: v.clone() for k, v in self.kept.items()}

    def judge(self, arm: Any, inputs: dict[str, torch.Tensor], count: int = 2) -> dict[str, Any]:
        """Errors of an arm, replayed through one graph from restored states, everything it computes poisoned before each replay."""
        kept, wanted = self.kept, self.wanted
        if hasattr(arm, "fill_front"):
            arm.fill_front(wanted["logits"].float(), wanted["z"].bfloat16())
        graph = capture(arm.run)
        outs = []
        for _ in range(count):
            inputs["prefix"].copy_(kept["prefix"])
            inputs["cache"].copy_(kept["cache"])
            for buffer in (arm.out[:, :OUT_SHARD], arm.core, *getattr(arm, "scratch", ())):
                buffer.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            outs.append(arm.out.clone())
        live = kept["lens"] > 0
        slots = kept["where"][live]
        ids = arm.ids.clone()
        valid = bool(((ids >= 0) & (ids < EXPERTS)).all()) and all(len(set(r)) == 16 for r in ids.tolist())
        rest = torch.ones(kept["cache"].shape[0], dtype=torch.bool, device="cuda")
        rest[slots] = False
        result: dict[str, Any] = {
            "prefix": error(inputs["prefix"], wanted["prefix"]),
            "y": error(arm.y, wanted["y"]),
            "query": error(arm.query, wanted["query"]),
            "new_rows": error(inputs["cache"][slots], wanted["new"][live]),
            "core": error(arm.core, wanted["core"]),
            "worst_row": max(
                (error(arm.core[r], wanted["core"][r]) for r in range(len(self.lengths)) if self.lengths[r]),
                default=0.0,
            ),
            "empty_rows_zero": bool((arm.core[~live] == 0).all()),
            "logits": error(arm.logits, wanted["logits"]),
            "others_untouched": bool(
                torch.equal(inputs["cache"][rest].view(torch.int16), kept["cache"][rest].view(torch.int16))
            ),
            "ids_valid": valid,
            "repeat_equal": all(torch.equal(outs[0], out) for out in outs),
            "peers_columns": bool(torch.equal(arm.out[:, OUT_SHARD:], kept["peers_out"][:, OUT_SHARD:])),
        }
        if valid:
            result["shortfall"] = shortfall(wanted, self.weights.dense["bias"], ids)
            key = ids.cpu().numpy().tobytes()
            if key not in self._outs:
                self._outs[key] = after_routing(self.weights, kept, wanted, ids)
            result["out"] = error(arm.out[:, :OUT_SHARD], self._outs[key])
        return result


def mla_good(result: dict[str, Any]) -> bool:
    """Within bf16 rounding of the reference, every new row in place and nothing else touched."""
    return (
        all(result.get(k, 1.0) < 1.5e-2 for k in ("prefix", "y", "query", "new_rows", "core", "logits"))
        and result.get("worst_row", 1.0) < 3e-2
        and result.get("out", 1.0) < 3e-2
        and result.get("shortfall", 1.0) < 2e-2
        and all(
            result[k] for k in ("ids_valid", "repeat_equal", "peers_columns", "others_untouched", "empty_rows_zero")
        )
    )


class Draws:
    """Fresh streams, lengths and tables over one pool, for replays."""

    def __init__(self, rows: int, longest: int, seed: int) -> None:
        self.rows, self.longest = rows, longest
        self.columns = -(-longest // PAGE) + 1
        self.pages = 1 + rows * self.columns
        self.pool = draw_pool(self.pages, seed, "cuda")

    def lengths(self, seed: int) -> list[int]:
        """Half of the rows on edges, half anywhere up to the longest."""
        gen = torch.Generator().manual_seed(seed)
        free = torch.randint(0, self.longest + 1, (self.rows,), generator=gen).tolist()
        edge = torch.randint(0, len(EDGES), (self.rows,), generator=gen).tolist()
        which = torch.randint(0, 2, (self.rows,), generator=gen).tolist()
        return [min(EDGES[e], self.longest) if w else f for f, e, w in zip(free, edge, which, strict=True)]

    def inputs(self, seed: int) -> dict[str, torch.Tensor]:
        """Inputs of an arm over the pool."""
        return draw_mla_inputs(self.lengths(seed), seed, "cuda", self.pool, self.columns)

    def draw(self, rows: int, seed: int, _: int) -> dict[str, torch.Tensor]:
        """What a replay changes."""
        if rows != self.rows:
            raise ValueError(f"expected {self.rows} rows, found {rows}")
        gen = torch.Generator(device="cuda").manual_seed(seed)
        tables = draw_tables(self.lengths(seed), self.pages, self.columns, seed, "cuda")
        return draw_streams(rows, gen) | tables


def mla_load(arm: Any, inputs: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
    """Give a captured arm new inputs in its own buffers; poison all that it computes, the new tokens' places too."""
    for key, value in fresh.items():
        inputs[key].copy_(value)
    slots = fresh["where"][fresh["where"] >= 0]
    inputs["cache"][slots] = float("nan")
    arm.out.copy_(fresh["peers_out"])
    arm.out[:, :OUT_SHARD] = float("nan")
    gen = torch.Generator(device="cuda").manual_seed(int(fresh["lens"].sum()) + 1)
    arm.fill_front(
        torch.randn(arm.logits.shape, device="cuda", generator=gen),
        torch.randn(arm.z.shape, device="cuda", generator=gen).bfloat16(),
    )
    poison(arm)


def mla_outcome(arm: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything that a step leaves behind."""
    slots = inputs["where"].clamp(min=0)
    kept = {"prefix": inputs["prefix"].clone(), "new_rows": inputs["cache"][slots]}
    return {name: getattr(arm, name).clone() for name in LEFT} | kept
