"""Kimi K3, one KDA layer with experts on one rank of eight: the 23-kernel stock path against the CuTe DSL candidate.

    python benchmarks/gpu/k3_layer.py LIBRARY OUT.json [--rows 1,2,8] [--sets 4] [--blocks 31] [--no-tune]

One process, cold weights (the sets rotate), both paths interleaved block by block. This is a benchmark, not a race: its ratios have no
verdict. Evidence is of one shard: the other ranks' parts are inputs (comm = shard).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from timing import capture, copy_bandwidth, interleaved, nodes, quick, spread  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.tactics import tactics  # noqa: E402
from kernels_under_test.kimi_k3.cuda.kernel_lists import candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.reference import after_routing, before_experts, shortfall  # noqa: E402
from kernels_under_test.kimi_k3.cuda.sizes import OUT_SHARD, floor_us, kernel_bytes  # noqa: E402
from kernels_under_test.kimi_k3.cuda.stock.layer import Stock  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import draw_inputs, draw_weights  # noqa: E402

STATES = ("prefix", "state", "conv_state")


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """|found - wanted| / |wanted|; NaN stays NaN."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def check(
    make: Callable[[dict], Any], weights: Any, rows: int, seed: int, null_rows: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Errors of one step of an arm against the reference; replayed twice through a graph from restored states."""
    inputs = draw_inputs(rows, seed, "cuda", null_rows)
    kept = {k: v.clone() for k, v in inputs.items()}
    wanted = before_experts(weights.dense, kept)
    arm = make(inputs)
    if hasattr(arm, "fill_front"):
        arm.fill_front(wanted["logits"].float(), wanted["z"].bfloat16())
    graph = capture(arm.run)
    outs = []
    for _ in range(2):
        for name in STATES:
            inputs[name].copy_(kept[name])
        arm.out[:, :OUT_SHARD] = float("nan")
        arm.core.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        outs.append(arm.out.clone())
    live = kept["slots"] > 0
    slots = kept["slots"][live].long()
    ids = arm.ids.clone()
    valid = bool(((ids >= 0) & (ids < 896)).all()) and all(len(set(r)) == 16 for r in ids.tolist())
    result = {
        "prefix": error(inputs["prefix"], wanted["prefix"]),
        "y": error(arm.y, wanted["y"]),
        "y_rows": [round(error(a, b), 5) for a, b in zip(arm.y, wanted["y"], strict=True)][:16],
        "core": error(arm.core, wanted["core"]),
        "core_rows": [round(error(a, b), 5) for a, b in zip(arm.core, wanted["core"], strict=True)][:16],
        "state": error(inputs["state"][slots], wanted["state"]),
        "conv_state": error(inputs["conv_state"][slots], wanted["conv_state"]),
        "others_untouched": bool(torch.equal(torch.nan_to_num(inputs["state"][0]), torch.nan_to_num(kept["state"][0]))),
        "logits": error(arm.logits, wanted["logits"]),
        "ids_valid": valid,
        "repeat_equal": bool(torch.equal(outs[0], outs[1])),
        "peers_columns": bool(torch.equal(arm.out[:, OUT_SHARD:], kept["peers_out"][:, OUT_SHARD:])),
    }
    if valid:
        result["shortfall"] = shortfall(wanted, weights.dense["bias"], ids)
        result["distinct_experts"] = int(ids.unique().numel())
        result["out"] = error(arm.out[:, :OUT_SHARD], after_routing(weights, kept, wanted, ids))
    return result


def good(result: dict[str, Any]) -> bool:
    """Within bf16 rounding of the reference, and every state in place."""
    return (
        all(result.get(k, 1.0) < 1.5e-2 for k in ("prefix", "core", "conv_state", "logits", "state"))
        and result.get("out", 1.0) < 3e-2
        and result.get("shortfall", 1.0) < 2e-2
        and all(result[k] for k in ("ids_valid", "repeat_equal", "peers_columns", "others_untouched"))
    )


def guarded(record: dict[str, Any], key: str, run: Callable[[], Any]) -> Any:
    """Run one part; a failure is recorded and the benchmark goes on with the next part."""
    start = time.time()
    try:
        record[key] = run()
    except Exception as failure:
        record[key] = {"failed": f"{type(failure).__name__}: {str(failure)[:1500]}"}
        traceback.print_exc(limit=4)
    print(f"[{time.time() - start:6.1f} s] {key}: {json.dumps(record[key])[:900]}", flush=True)
    return record[key]


def arms(rows: int, sets: list[Any], make: Callable[[Any, dict], Any], seed: int) -> list[Any]:
    """One arm per weight set, with inputs of its own; the candidate's foreign columns come from the reference."""
    made = []
    for index, weights in enumerate(sets):
        inputs = draw_inputs(rows, seed + index, "cuda")
        arm = make(weights, inputs)
        if hasattr(arm, "fill_front"):
            wanted = before_experts(weights.dense, {k: v.clone() for k, v in inputs.items()})
            arm.fill_front(wanted["logits"].float(), wanted["z"].bfloat16())
        made.append(arm)
    return made


def run_all(made: list[Any]) -> Callable[[], None]:
    """All sets, one after the other."""

    def run() -> None:
        for arm in made:
            arm.run()

    return run


def tune(made: list[Candidate], rows: int) -> dict[str, Any]:
    """Coordinate descent over the variants, timed in the whole chain."""
    choice: dict[str, int] = {}
    best = quick(run_all(made)) / len(made)
    log: dict[str, Any] = {"start": best}
    for kernel in candidate(rows):
        tried = {0: best}
        for index in range(1, len(tactics(kernel, rows))):
            for arm in made:
                arm.choice = choice | {kernel: index}
            tried[index] = quick(run_all(made)) / len(made)
        index = min(tried, key=lambda i: tried[i])
        if tried[index] < 0.998 * best:
            choice[kernel], best = index, tried[index]
        if len(tried) > 1:
            log[kernel] = {str(i): round(v, 2) for i, v in tried.items()}
        for arm in made:
            arm.choice = dict(choice)
    return {"choice": choice, "us": best, "tried": log}


def alone(made: list[Any], rows: int) -> dict[str, float]:
    """Microseconds of each candidate kernel launched alone over the sets, 8 rounds in a graph (small weights partly stay in L2)."""

    def repeat(kernel: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(8):
                for arm in made:
                    arm.launch(kernel)

        return run

    return {kernel: quick(repeat(kernel), 3, 4) / (8 * len(made)) for kernel in candidate(rows)}


def profile(graph: torch.cuda.CUDAGraph, sets: int, count: int) -> list[dict[str, Any]]:
    """Median duration of each kernel of the chain, by place, as the profiler sees it (with overlap, durations include waiting)."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        for _ in range(8):
            graph.replay()
        torch.cuda.synchronize()
    events = [
        e for e in prof.events() if e.device_type == torch.autograd.DeviceType.CUDA and e.time_range.elapsed_us() > 0
    ]
    events.sort(key=lambda e: e.time_range.start)
    per = count * sets
    if len(events) != 8 * per:
        return [{"events": len(events), "expected": 8 * per}]
    out = []
    for place in range(count):
        times = [events[r * per + s * count + place].time_range.elapsed_us() for r in range(2, 8) for s in range(sets)]
        out.append({"name": events[place].name[:60], **{k: round(v, 2) for k, v in spread(times).items()}})
    return out


def race_rows(rows: int, sets: list[Any], library: Any, blocks: int, tuned: bool, bandwidth: float) -> dict[str, Any]:
    """Both paths at one number of rows."""
    record: dict[str, Any] = {}
    stock = arms(rows, sets, Stock, 100 + rows)
    guarded(record, "stock_tiles", lambda: tune_stock(stock))
    guarded(record, "stock_products", lambda: products(stock[0]))
    graphs = {"stock": capture(run_all(stock))}
    record["stock_nodes"] = nodes(graphs["stock"])
    record["stock_nodes_per_layer"] = sum(record["stock_nodes"].values()) / len(sets)
    guarded(
        record, "stock_profile", lambda: profile(graphs["stock"], len(sets), round(record["stock_nodes_per_layer"]))
    )
    cand = arms(rows, sets, lambda w, t: Candidate(library, w, t), 100 + rows)
    if tuned:
        guarded(record, "tuning", lambda: tune(cand, rows))
    guarded(record, "candidate_alone", lambda: alone(cand, rows))
    graphs["candidate"] = capture(run_all(cand))
    record["candidate_nodes"] = nodes(graphs["candidate"])
    record["candidate_nodes_per_layer"] = sum(record["candidate_nodes"].values()) / len(sets)
    guarded(record, "candidate_profile", lambda: profile(graphs["candidate"], len(sets), len(candidate(rows))))
    times = interleaved(graphs, blocks, 12 if rows <= 8 else 6)
    per = {name: [t / len(sets) for t in values] for name, values in times.items()}
    record["stock_us"], record["candidate_us"] = spread(per["stock"]), spread(per["candidate"])
    record["speed_up"] = spread([a / b for a, b in zip(per["stock"], per["candidate"], strict=True)])
    experts = sum(int(arm.ids.unique().numel()) for arm in cand) / len(cand)
    record["distinct_experts"] = experts
    record["floor_us"] = floor_us(rows, experts, bandwidth)
    record["floor_share"] = record["floor_us"] / record["candidate_us"]["median"]
    record["stock_floor_us"] = floor_us(rows, experts, bandwidth, sharded=False)
    record["bytes"] = {b.name: b.at(rows) for b in kernel_bytes(rows, experts, sharded=True)}
    record["choice"] = cand[0].choice
    return record


TILES = {
    "in": [(32, 2, 4), (64, 4, 3), (64, 4, 5), (64, 8, 3), (128, 4, 3), (128, 8, 3), (128, 8, 4)],
    "out": [(64, 4, 3), (128, 4, 3), (128, 8, 3), (256, 4, 2), (256, 8, 3), (512, 8, 2)],
}


def tune_stock(made: list[Stock]) -> dict[str, Any]:
    """Gives every stock arm the fastest of its tiles (rows, warps, stages) for the grouped products, timed alone on cold experts."""
    found: dict[str, Any] = {}
    run_all(made)()
    best: dict[str, tuple[int, int, int]] = {}
    for kind, tiles in TILES.items():
        times = {}
        for tile in tiles:
            for arm in made:
                arm.tiles = {**arm.tiles, kind: tile}

            def run(kind: str = kind) -> None:
                for arm in made:
                    arm.grouped(kind)

            try:
                times[tile] = quick(run, 3, 4) / len(made)
            except Exception as failure:
                found[f"{kind} {tile}"] = f"{type(failure).__name__}: {str(failure)[:80]}"
        best[kind] = min(times, key=lambda t: times[t])
        found |= {f"{kind} {tile}": round(us, 2) for tile, us in times.items()}
        for arm in made:
            arm.tiles = {**arm.tiles, kind: best[kind]}
    return found | {"chosen": {k: list(v) for k, v in best.items()}}


def products(arm: Stock) -> dict[str, Any]:
    """Nodes of each library product: above one, the library splits K and reduces."""
    w = arm.w
    pairs = {
        "in_proj": (arm.x, w["in_proj"], arm.y), "o_proj": (arm.core, w["o_proj"], arm.part),
        "latent_down": (arm.x, w["latent_down"], arm.latent), "gate_up": (arm.x, w["gate_up"], arm.gu),
        "shared_down": (arm.sh, w["shared_down"], arm.down),
    }  # fmt: skip
    found = {}
    for name, (x, weight, y) in pairs.items():
        found[name] = nodes(capture(lambda x=x, weight=weight, y=y: torch.mm(x, weight.t(), out=y)))
    found["router"] = nodes(capture(lambda: torch.mm(arm.x, w["router"].t(), out_dtype=torch.float32, out=arm.logits)))
    found["f_b"] = nodes(capture(lambda: torch.mm(arm.y[:, 6144:6272], w["f_b"].t(), out=arm.raw)))
    return {name: sum(n.values()) for name, n in found.items()}


def main() -> None:
    """Check, tune, time; write the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", default="1,2,8,16,32,64")
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=31)
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--checks", default="1,2,8,16,32,64")
    args = parser.parse_args()
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "library_sha256": hashlib.sha256(args.library.read_bytes()).hexdigest(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sets": args.sets,
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "default"),
        "workload": "KDA layer with experts, tensor parallelism 8, rank 0, 7 blocks, act=bf16, core=fp32, comm=shard",
    }
    library = Library(args.library)
    sets = [draw_weights(seed, "cuda", keep_codes=seed == 0) for seed in range(args.sets)]
    torch.cuda.empty_cache()
    bandwidth = guarded(record, "bandwidth", copy_bandwidth)
    torch.cuda.empty_cache()

    def save() -> None:
        args.out.write_text(json.dumps(record, indent=1), encoding="utf-8")

    checks = record["checks"] = {}
    makers = {"stock": lambda t: Stock(sets[0], t), "candidate": lambda t: Candidate(library, sets[0], t)}
    cases = [(rows, ()) for rows in (int(r) for r in args.checks.split(",") if r)]
    cases += [(rows, (1,) if rows == 2 else (1, 5, 6)) for rows, _ in cases if rows > 1]
    for rows, null in cases:
        for arm, make in makers.items():
            key = f"{arm} {rows}" + (f" null {len(null)}" if null else "")
            guarded(checks, key, lambda: check(make, sets[0], rows, 7 + rows, null))  # noqa: B023
    for index in range(len(tactics("in_proj", 8))):
        guarded(
            checks,
            f"candidate 8 in_proj {index}",
            lambda: check(lambda t: Candidate(library, sets[0], t, {"in_proj": index}), sets[0], 8, 15),  # noqa: B023
        )
    record["checks_good"] = {k: good(v) if "failed" not in v else False for k, v in checks.items()}
    print("good:", record["checks_good"], flush=True)
    save()
    record["rows"] = {}
    for rows in (int(r) for r in args.rows.split(",") if r):
        peak = max(bandwidth.values())
        guarded(record["rows"], str(rows), lambda: race_rows(rows, sets, library, args.blocks, not args.no_tune, peak))  # noqa: B023
        torch.cuda.empty_cache()
        save()
    for rows, r in record["rows"].items():
        if "failed" not in r:
            print(
                f"rows {rows}: stock {r['stock_us']['median']:.1f} ({r['stock_nodes_per_layer']:.0f} nodes), candidate "
                f"{r['candidate_us']['median']:.1f} us ({r['candidate_nodes_per_layer']:.0f}), x{r['speed_up']['median']:.3f} "
                f"[{r['speed_up']['p10']:.3f}, {r['speed_up']['p90']:.3f}], floor {r['floor_us']:.1f} us, share {r['floor_share']:.3f}"
            )


if __name__ == "__main__":
    main()
