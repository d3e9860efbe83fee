"""Kimi K3, one KDA layer with experts on one rank of eight: the 23-kernel stock path against the CuTe DSL candidate.

    python benchmarks/gpu/k3_layer.py LIBRARY OUT.json [--rows 1,2,8] [--checks 1,2,8] [--replays 300] [--sets 4] [--blocks 31] [--no-tune]

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

from checks import NULL_ROWS, Oracle, good, replays  # noqa: E402
from timing import capture, copy_bandwidth, interleaved, nodes, quick, spread  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.tactics import chosen, tactics  # noqa: E402
from kernels_under_test.kimi_k3.cuda.kernel_lists import candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.reference import before_experts  # noqa: E402
from kernels_under_test.kimi_k3.cuda.sizes import floor_us, kernel_bytes  # noqa: E402
from kernels_under_test.kimi_k3.cuda.stock.layer import GROUPED, NARROW, PRODUCTS, Stock, Tile  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import draw_inputs, draw_weights  # noqa: E402


def guarded(record: dict[str, Any], key: str, run: Callable[[], Any]) -> Any:
    """Run one part; a failure is recorded and the benchmark goes on with the next part."""
    start = time.time()
    try:
        record[key] = run()
    except Exception as failure:
        record[key] = {"failed": f"{type(failure).__name__}: {str(failure)[:1500]}"}
        traceback.print_exc(limit=4)
    print(f"[{time.time() - start:6.1f} s] {key}: {json.dumps(record[key])[:700]}", flush=True)
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
    choice = {kernel: chosen(kernel, rows) for kernel in candidate(rows)}
    best = quick(run_all(made)) / len(made)
    log: dict[str, Any] = {"start": best}
    for kernel in candidate(rows):
        tried = {choice[kernel]: best}
        for index in (i for i in range(len(tactics(kernel, rows))) if i != choice[kernel]):
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
    """Median duration of each kernel of the chain, by place, as the profiler sees it (with overlap, durations include waiting), and how
    much later than the kernel before it ended."""
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
        at = [r * per + s * count + place for r in range(2, 8) for s in range(sets)]
        later = [events[i].time_range.end - events[i - 1].time_range.end for i in at]
        times = spread([events[i].time_range.elapsed_us() for i in at])
        out.append(
            {
                "name": events[place].name[:60],
                **{k: round(v, 2) for k, v in times.items()},
                "later": round(spread(later)["median"], 2),
            }
        )
    return out


def race_rows(rows: int, sets: list[Any], library: Any, blocks: int, tuned: bool, bandwidth: float) -> dict[str, Any]:
    """Both paths at one number of rows."""
    record: dict[str, Any] = {}
    stock = arms(rows, sets, Stock, 100 + rows)
    guarded(record, "stock_tiles", lambda: tune_stock(stock))
    guarded(record, "stock_alone", lambda: stock_alone(stock))
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
    record["bytes"] = {b.name: b.at(rows) for b in kernel_bytes(experts, sharded=True)}
    record["variants"] = {k: cand[0].choice.get(k, chosen(k, rows)) for k in candidate(rows)}
    return record


def stock_tiles(rows: int) -> dict[str, list[Tile | None]]:
    """Tiles to try for each stock kernel that has some; None is the library's product."""
    tiles: dict[str, list[Tile | None]] = {
        "in": [(32, 2, 3), (64, 2, 3), (64, 4, 3), (64, 4, 4), (128, 4, 3)],
        "out": [(32, 1, 3), (64, 2, 3), (64, 2, 2), (128, 4, 3)],
    }
    if rows <= 2:
        return tiles
    narrow: list[Tile | None] = [NARROW[rows], (16, 64, 4, 4), *([(16, 128, 8, 3)] if rows <= 16 else [])]
    return tiles | {"router": [None, *narrow], "gate_up": [None, *narrow], "tail_up": narrow}


def tune_stock(made: list[Stock]) -> dict[str, Any]:
    """Gives every stock arm its fastest tiles, each kernel timed alone on cold weights."""
    found: dict[str, Any] = {}
    run_all(made)()
    for kernel, tiles in stock_tiles(made[0].m).items():
        times: dict[Tile | None, float] = {}
        for tile in tiles:

            def run(kernel: str = kernel) -> None:
                for arm in made:
                    (arm.grouped if kernel in GROUPED else arm.product)(kernel)

            for arm in made:
                arm.set_tile(kernel, tile)
            try:
                times[tile] = quick(run, 3, 4) / len(made)
            except Exception as failure:
                found[f"{kernel} {tile}"] = f"{type(failure).__name__}: {str(failure)[:80]}"
        best = min(times, key=lambda t: times[t])
        found |= {f"{kernel} {tile}": round(us, 2) for tile, us in times.items()} | {f"{kernel} chosen": best}
        for arm in made:
            arm.set_tile(kernel, best)
    return found


def stock_alone(made: list[Stock]) -> dict[str, float]:
    """Microseconds of each stock product alone over the sets, 6 rounds in a graph, and of the library's product where that is none."""

    def repeat(name: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(6):
                for arm in made:
                    (arm.grouped if name in GROUPED else arm.product)(name)

        return run

    found = {name: quick(repeat(name), 3, 4) / (6 * len(made)) for name in (*PRODUCTS, *GROUPED)}
    for name in PRODUCTS:
        tile = made[0].tiles.get(name)
        if tile is None or name == "tail_up":
            continue
        for arm in made:
            arm.set_tile(name, None)
        found[f"{name} by the library"] = quick(repeat(name), 3, 4) / (6 * len(made))
        for arm in made:
            arm.set_tile(name, tile)
    return found


def check_all(record: dict[str, Any], library: Any, sets: list[Any], rows: int, count: int, every: bool) -> None:
    """One number of rows: both paths against the reference with and without null rows; with ``every`` each variant against the
    reference and, over replays on fresh inputs, against itself run serially; and all sets as layers of one graph."""
    checks = record.setdefault(str(rows), {})
    for null in ((), NULL_ROWS.get(rows, ())) if rows > 1 else ((),):
        oracle = Oracle(sets[0], rows, 7 + rows, null)
        for arm in ("stock", "candidate"):

            def judge(arm: str = arm, oracle: Oracle = oracle) -> dict[str, Any]:
                inputs = oracle.inputs()
                made = Stock(sets[0], inputs) if arm == "stock" else Candidate(library, sets[0], inputs)
                result = oracle.judge(made, inputs, 3)
                return result | {"good": good(result)}

            guarded(checks, f"{arm}{' with null rows' if null else ''}", judge)
    oracle = Oracle(sets[0], rows, 7 + rows)
    for kernel in candidate(rows) if every else ():
        for index in range(len(tactics(kernel, rows))):

            def variant(kernel: str = kernel, index: int = index) -> dict[str, Any]:
                inputs = oracle.inputs()
                arm = Candidate(library, sets[0], inputs, {kernel: index})
                result = oracle.judge(arm, inputs)
                return {"good": good(result), "out": result.get("out")} | replays([(arm, inputs)], count // 6, 1000)

            guarded(checks, f"{kernel} {index}", variant)

    def layers() -> dict[str, Any]:
        made = []
        for weights in sets:
            inputs = draw_inputs(rows, 3, "cuda")
            made.append((Candidate(library, weights, inputs), inputs))
        return replays(made, count, 5000)

    guarded(checks, f"{len(sets)} layers of a graph", layers)


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
    parser.add_argument(
        "--replays", type=int, default=300, help="of the default variants; a sixth for each other variant"
    )
    parser.add_argument("--chosen-only", action="store_true", help="check the variants in use, not every one")
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

    record["checks"] = {}
    for rows in (int(r) for r in args.checks.split(",") if r):
        check_all(record["checks"], library, sets, rows, args.replays, not args.chosen_only)
        save()
    bad = [
        f"{rows} rows, {name}"
        for rows, found in record["checks"].items()
        for name, r in found.items()
        if "failed" in r or r.get("wrong") or not r.get("good", True)
    ]
    record["wrong"] = bad
    print("wrong:", bad or "nothing", flush=True)
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
