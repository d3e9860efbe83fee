"""What the layer's other checks leave out: python benchmarks/gpu/breadth.py LIBRARY OUT.json [--steps 10000]

Rows between the compiled ones (padded with null slots and NaN), state pools beyond 2^31 elements with null slots that must stay as they
are, layers that open a block, graphs with a delay before each kernel, and long runs against the same kernels launched one at a time
and against stock's states.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from checks import error, outcome, poison, replays, same  # noqa: E402
from k3_layer import guarded  # noqa: E402
from timing import capture  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.reference import after_routing, before_experts, bf, mix  # noqa: E402
from kernels_under_test.kimi_k3.cuda.sizes import BLOCKS, DIM, HEADS, HIDDEN, OUT_SHARD, ROWS, WIDTH, bin_rows  # noqa: E402
from kernels_under_test.kimi_k3.cuda.stock.layer import Stock  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import draw_inputs, draw_weights  # noqa: E402

BETWEEN = (3, 5, 7, 9, 12, 15, 17, 31, 33, 50, 63)
POOL = 11000
"""Slots whose states have more than 2^31 elements together (8.7 GB)."""
WIDE = ("peers_o", "peers_latent", "peers_shared")
"""Inputs whose second axis is the row; of the others it is the first."""
STREAMS = ("delta", "prefix", "blocks", "peers_out")


def delay(library: Any) -> Any:
    """A launch that takes about 4 us and lets its successor start at once."""
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    return lambda: library["k3_delay_1_0"](word)


def padded(library: Any, weights: Any, rows: int) -> dict[str, Any]:
    """``rows`` live rows in the next larger bin: bit for bit the same whatever the other rows hold, and right."""
    size = bin_rows(rows)
    whole = draw_inputs(size, rows, "cuda")
    whole["slots"][rows:] = 0
    live = {k: v[:, :rows].contiguous() if k in WIDE else v.clone() for k, v in whole.items()}
    for key in (*STREAMS, "slots"):
        live[key] = whole[key][:rows].clone()
    wanted = before_experts(weights.dense, {k: v.clone() for k, v in live.items()})
    outs, found = [], {}
    for filling in (float("nan"), 3.0):
        inputs = {k: v.clone() for k, v in whole.items()}
        for key in STREAMS:
            inputs[key][rows:] = filling
        for key in WIDE:
            inputs[key][:, rows:] = filling
        arm = Candidate(library, weights, inputs)
        logits, z = torch.full_like(arm.logits, filling), torch.full_like(arm.z, filling)
        logits[:rows], z[:rows] = wanted["logits"].float(), wanted["z"].bfloat16()
        arm.fill_front(logits, z)
        graph = capture(arm.run, warm=0)
        inputs["prefix"].copy_(whole["prefix"])
        inputs["prefix"][rows:] = filling
        for name in ("state", "conv_state"):
            inputs[name].copy_(whole[name])
        poison(arm)
        graph.replay()
        torch.cuda.synchronize()
        slots = live["slots"].long()
        outs.append(
            [arm.out[:rows].clone(), arm.core[:rows].clone(), inputs["state"][slots], inputs["conv_state"][slots]]
        )
        ids = arm.ids[:rows].clone()
        found["padding_zero"] = bool((arm.core[rows:] == 0).all())
    found["same"] = all(same(a, b) for a, b in zip(*outs, strict=True))
    found["core"] = error(outs[0][1], wanted["core"])
    found["out"] = error(outs[0][0][:, :OUT_SHARD], after_routing(weights, live, wanted, ids))
    found["good"] = found["same"] and found["padding_zero"] and found["core"] < 1.5e-2 and found["out"] < 3e-2
    return found


def pools(library: Any, weights: Any, rows: int, slots: int, choice: dict[str, Any] | None = None) -> dict[str, Any]:
    """The same step from a pool of ``slots`` as from the small one, its live slots the last ones and null rows at 0 and below:
    outputs and states bit for bit, and no other slot changed."""
    inputs = draw_inputs(rows, 11, "cuda", (1, rows - 1) if rows > 2 else ())
    plain = Candidate(library, weights, {k: v.clone() for k, v in inputs.items()})
    for value in (plain.logits, plain.z):
        value.normal_()
    plain.run()
    torch.cuda.synchronize()
    large = {k: v.clone() for k, v in inputs.items()}
    large["state"] = torch.zeros(slots, HEADS, DIM, DIM, device="cuda")
    large["conv_state"] = torch.zeros(slots, 3, 3 * WIDTH, device="cuda", dtype=torch.bfloat16)
    live = inputs["slots"] > 0
    places = slots - 1 - torch.arange(rows, device="cuda")
    from_slots, to_slots = inputs["slots"][live].long(), places[live]
    for name in ("state", "conv_state"):
        large[name][to_slots] = inputs[name][from_slots]
        large[name][0] = 7.0
    large["slots"] = torch.where(live, places, 0).to(torch.int32)
    if rows > 2:
        large["slots"][1] = -1
    arm = Candidate(library, weights, large, choice)
    arm.fill_front(plain.logits, plain.z)
    arm.run()
    torch.cuda.synchronize()
    result = {"core_same": same(arm.core, plain.core), "out_same": same(arm.out, plain.out)}
    for name in ("state", "conv_state"):
        result[f"{name}_same"] = same(large[name][to_slots], plain.t[name][from_slots])
        others = large[name][1 : slots - rows]
        result[f"{name}_others"] = bool((large[name][0] == 7.0).all()) and not bool(others.any())
    return result | {"elements": large["state"].numel(), "good": all(result.values())}


def opening(library: Any, weights: Any, rows: int) -> dict[str, Any]:
    """Both residuals of a layer that opens a block, one after the other, against the reference."""
    w, t = weights.dense, draw_inputs(rows, 21, "cuda")
    blocks = torch.full((rows, BLOCKS + 1, HIDDEN), float("nan"), device="cuda", dtype=torch.bfloat16)
    blocks[:, :BLOCKS] = t["blocks"]
    wanted = bf(t["prefix"].double() + t["delta"].double())
    x = torch.full_like(t["delta"], float("nan"))
    part = (0.3 * torch.randn(rows, HIDDEN, device="cuda")).bfloat16()
    run = library[f"k3_attention_residual_{rows}_store_{rows}"]
    run(t["delta"], t["peers_o"], t["prefix"], blocks, w["pre_gamma"], w["pre_query"], w["pre_norm"], x)
    torch.cuda.synchronize()
    found: dict[str, Any] = {
        "stored": same(blocks[:, BLOCKS], t["prefix"]) and same(blocks[:, :BLOCKS], t["blocks"]),
        "prefix": error(t["prefix"], wanted),
        "x": error(x, mix(wanted, t["blocks"], w, "pre")),
    }
    run = library[f"k3_ffn_residual_{rows}_replace_{rows}"]
    run(part, t["peers_o"], t["prefix"], blocks, w["post_gamma"], w["post_query"], w["post_norm"], x)
    torch.cuda.synchronize()
    wanted = bf(part.double() + t["peers_o"].double().sum(0))
    found["replaced"] = error(t["prefix"], wanted)
    found["x2"] = error(x, mix(wanted, blocks, w, "post"))
    return found | {"good": found["stored"] and all(found[k] < 1.5e-2 for k in ("prefix", "x", "replaced", "x2"))}


def long_run(library: Any, weights: Any, rows: int, steps: int) -> dict[str, Any]:
    """States that go through many steps: replays of one graph against the kernels one at a time (bit for bit, at every 50th step and the
    last) and against stock (relative error of the states at the end)."""
    pool = [draw_inputs(rows, 40 + i, "cuda") for i in range(16)]
    start = draw_inputs(rows, 39, "cuda")
    arms = []
    for kind in (Candidate, Candidate, Stock):
        inputs = {k: v.clone() for k, v in start.items()}
        arms.append((kind(library, weights, inputs) if kind is Candidate else kind(weights, inputs), inputs))
    for arm, _ in arms[:2]:
        gen = torch.Generator("cuda").manual_seed(1)
        arm.fill_front(
            torch.randn(arm.logits.shape, device="cuda", generator=gen),
            torch.randn(arm.z.shape, device="cuda", generator=gen).bfloat16(),
        )
    graphs = [capture(arm.run) for arm, _ in arms]
    for _, inputs in arms:
        for name in ("state", "conv_state"):
            inputs[name].copy_(start[name])
    compared = wrong = 0
    for step in range(steps):
        fresh = pool[step % 16]
        for _, inputs in arms:
            for key in ("delta", "prefix", *WIDE):
                inputs[key].copy_(fresh[key])
        graphs[0].replay()
        for kernel in arms[1][0].kernels:
            arms[1][0].launch(kernel)
            torch.cuda.synchronize()
        graphs[2].replay()
        if step % 50 == 0 or step == steps - 1:
            compared += 1
            a, b = outcome(*arms[0]), outcome(*arms[1])
            wrong += not all(same(a[name], b[name]) for name in a)
    slots = start["slots"].long()
    drift = error(arms[0][1]["state"][slots], arms[2][1]["state"][slots])
    finite = bool(arms[0][1]["state"][slots].isfinite().all())
    return {"steps": steps, "compared": compared, "wrong": wrong, "finite": finite, "states_against_stock": drift,
            "good": not wrong and finite and drift < 1e-2}  # fmt: skip


def main() -> int:
    """All of it; 1 if anything is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=10000)
    args = parser.parse_args()
    library = Library(args.library)
    weights = draw_weights(0, "cuda", keep_codes=True)
    record: dict[str, Any] = {}
    for rows in BETWEEN:
        guarded(record, f"{rows} rows, padded", lambda: padded(library, weights, rows))  # noqa: B023
    for rows in (1, 8, 64):
        guarded(record, f"{rows} rows, opening a block", lambda: opening(library, weights, rows))  # noqa: B023
    for rows in (2, 8, 64):
        guarded(record, f"{rows} rows, {POOL} slots", lambda: pools(library, weights, rows, POOL))  # noqa: B023
        torch.cuda.empty_cache()
    for rows in ROWS:
        inputs = draw_inputs(rows, 3, "cuda")
        arm = Candidate(library, weights, inputs)
        guarded(
            record, f"{rows} rows, delays", lambda: replays([(arm, inputs)], 100, 9000, delay=delay(library))  # noqa: B023
        )  # fmt: skip
    for rows in (1, 8, 64):
        guarded(record, f"{rows} rows, long", lambda: long_run(library, weights, rows, args.steps))  # noqa: B023
    bad = [k for k, r in record.items() if "failed" in r or r.get("wrong") or not r.get("good", True)]
    args.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "wrong": bad, "checks": record}, indent=1))
    print("wrong:", bad or "nothing")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
