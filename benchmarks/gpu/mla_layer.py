"""Kimi K3, one MLA layer with experts on one rank of eight: the 26-kernel stock path against the CuTe DSL candidate.

    python benchmarks/gpu/mla_layer.py LIBRARY OUT.json [--rows 1,2,8] [--contexts 1024,8192] [--checks 1,8] [--tune] [--seconds 500]

As ``k3_layer.py``: one process, cold weights and caches (the sets rotate), both paths interleaved block by block, comm = shard. A
benchmark's ratios, no verdict. The cache is bf16, pages of 64 in shuffled order, and each row's length lies less than a page below the
context.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from checks import replays  # noqa: E402
from k3_layer import guarded, profile, run_all  # noqa: E402
from mla_checks import Draws, MlaOracle, mla_good, mla_load, mla_outcome, ragged  # noqa: E402
from mla_tuning import each, part, tune, tune_attention, tune_tiles, two_products  # noqa: E402
from timing import capture, copy_bandwidth, interleaved, nodes, quick, spread  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute import mla_tactics  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.mla_layer import CandidateMla  # noqa: E402
from kernels_under_test.kimi_k3.cuda.mla_sizes import CONTEXTS, cached_bytes, mla_bytes, mla_floor_us  # noqa: E402
from kernels_under_test.kimi_k3.cuda.mla_tensors import draw_mla_inputs, mla_weights  # noqa: E402
from kernels_under_test.kimi_k3.cuda.sizes import ROWS  # noqa: E402
from kernels_under_test.kimi_k3.cuda.stock.mla_layer import BY_HEAD, StockMla  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import draw_weights  # noqa: E402


def timed_lengths(rows: int, context: int) -> list[int]:
    """Lengths less than a page below the context, another for each of 64 rows."""
    return [context - (37 * row + 11) % 64 for row in range(rows)]


class Race:
    """Both paths at one number of rows; tiles found at the first context serve the others."""

    def __init__(self, library: Library, sets: list[Any], rows: int, blocks: int, tuned: bool, candidate: bool) -> None:
        self.library, self.sets, self.rows, self.blocks, self.tuned = library, sets, rows, blocks, tuned
        self.candidate = candidate
        self.tiles: dict[str, Any] | None = None

    def at(self, context: int, bandwidth: float) -> dict[str, Any]:
        """Times, ratio and floor at one context."""
        rows, sets = self.rows, self.sets
        record: dict[str, Any] = {}
        lengths = timed_lengths(rows, context)
        stock, cand, kept = [], [], []
        for index, weights in enumerate(sets):
            inputs = draw_mla_inputs(lengths, 100 + rows + index, "cuda")
            mine = {k: v if k == "cache" else v.clone() for k, v in inputs.items()}
            kept.append((inputs["prefix"].clone(), inputs["prefix"], mine["prefix"]))
            stock.append(StockMla(weights, inputs))
            cand.append(CandidateMla(self.library, weights, mine))
        if self.tiles is None:
            record["stock_tiles"] = tune_tiles(stock)
            self.tiles = dict(stock[0].tiles)
            guarded(record, "stock_projection", lambda: two_products(stock))
        for arm in stock:
            arm.tiles = dict(self.tiles)
        record["stock_attention"] = tune_attention(stock, context)
        if not self.candidate:
            alone = interleaved({"stock": capture(run_all(stock))}, 9, 4)["stock"]
            return record | {"stock_us": spread([t / len(sets) for t in alone])}

        def restore() -> None:
            for value, *places in kept:
                for place in places:
                    place.copy_(value)

        restore()
        run_all(stock)()
        for s, c in zip(stock, cand, strict=True):
            c.fill_front(s.logits, s.latent)
        kernels = [k for k in cand[0].kernels if k in mla_tactics.KERNELS]
        if self.tuned:
            few = [k for k in kernels if k in ("mla_core", "mla_value", "mla_values")]
            record["tuning"] = tune(cand, kernels if context == CONTEXTS[0] else few)
        restore()
        for made in (stock, cand):
            run_all(made)()
        record["outputs_agree"] = [
            float((s.core.float() - c.core.float()).norm() / s.core.float().norm())
            for s, c in zip(stock, cand, strict=True)
        ]
        record["same_experts"] = [float((s.ids == c.ids).float().mean()) for s, c in zip(stock, cand, strict=True)]
        rounds = 1 if rows * context > 1 << 21 else 6
        record["candidate_alone"] = {
            k: round(quick(each(cand, lambda arm, k=k: arm.launch(k), rounds), 3, 3) / (rounds * len(sets)), 2)  # type: ignore[misc]
            for k in (cand[0].kernels if context == CONTEXTS[0] else kernels)
        }
        record["stock_alone"] = {
            k: round(quick(each(stock, lambda arm, k=k: part(arm, k), rounds), 3, 3) / (rounds * len(sets)), 2)  # type: ignore[misc]
            for k in ("in_proj", "q_b", *BY_HEAD)
        }
        graphs = {"stock": capture(run_all(stock)), "candidate": capture(run_all(cand))}
        for name, graph in graphs.items():
            record[f"{name}_nodes_per_layer"] = sum(nodes(graph).values()) / len(sets)
        guarded(record, "stock_profile", lambda: profile(graphs["stock"], len(sets), 26))
        guarded(record, "candidate_profile", lambda: profile(graphs["candidate"], len(sets), len(cand[0].kernels)))
        restore()
        fewer = rows * context > 1 << 21
        times = interleaved(
            graphs, max(9, self.blocks // 3) if fewer else self.blocks, 2 if fewer else 12 if rows <= 8 else 6
        )
        per = {name: [t / len(sets) for t in values] for name, values in times.items()}
        record["stock_us"], record["candidate_us"] = spread(per["stock"]), spread(per["candidate"])
        record["speed_up"] = spread([a / b for a, b in zip(per["stock"], per["candidate"], strict=True)])
        experts = sum(int(arm.ids.unique().numel()) for arm in cand) / len(cand)
        tokens = sum(lengths)
        record |= {
            "tokens": tokens, "cache_bytes": cached_bytes(tokens), "distinct_experts": experts,
            "floor_us": mla_floor_us(rows, tokens, experts, bandwidth),
            "stock_floor_us": mla_floor_us(rows, tokens, experts, bandwidth, sharded=False),
            "bytes": {b.name: b.at(rows) for b in mla_bytes(experts, sharded=True)},
            "variants": {k: cand[0].variant(k) for k in cand[0].kernels},
        }  # fmt: skip
        record["floor_share"] = record["floor_us"] / record["candidate_us"]["median"]
        return record


def check_rows(record: dict[str, Any], library: Library, sets: list[Any], rows: int, count: int, every: bool) -> None:
    """One number of rows: both paths against the reference; every variant too; replays on fresh inputs against serial launches."""
    checks = record.setdefault(str(rows), {})
    for first in (0, 8):
        oracle = MlaOracle(sets[0], ragged(rows, first), 7 + rows + first)
        for name in ("stock", "candidate"):

            def judge(name: str = name, oracle: MlaOracle = oracle) -> dict[str, Any]:
                inputs = oracle.inputs()
                arm = StockMla(sets[0], inputs) if name == "stock" else CandidateMla(library, sets[0], inputs)
                result = oracle.judge(arm, inputs, 3)
                return result | {"good": mla_good(result)}

            guarded(checks, f"{name}, lengths from {first}", judge)
    kernels = [k for k in CandidateMla(library, sets[0], oracle.inputs()).kernels if k in mla_tactics.KERNELS]
    for kernel in kernels if every else ():
        for index in range(len(mla_tactics.tactics(kernel, rows))):

            def variant(kernel: str = kernel, index: int = index) -> dict[str, Any]:
                inputs = oracle.inputs()
                result = oracle.judge(CandidateMla(library, sets[0], inputs, {kernel: index}), inputs)
                return {k: result.get(k) for k in ("core", "out")} | {"good": mla_good(result)}

            guarded(checks, f"{kernel} {index}", variant)

    def layers() -> dict[str, Any]:
        draws = [Draws(rows, 9000 if rows <= 8 else 3000, 40 + j) for j in range(len(sets))]
        made = [
            (CandidateMla(library, w, t), t) for w, t in ((w, d.inputs(3)) for w, d in zip(sets, draws, strict=True))
        ]
        return replays(made, count, 5000, draws[0].draw, mla_load, mla_outcome)

    if count:
        guarded(checks, f"{len(sets)} layers of a graph", layers)


def numbers(text: str) -> list[int]:
    """Numbers between commas."""
    return [int(n) for n in text.split(",") if n]


def main() -> None:
    """Check, tune, time; write the record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--contexts", default=",".join(map(str, CONTEXTS)))
    parser.add_argument("--checks", default=",".join(map(str, ROWS)))
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--every", action="store_true", help="check every variant too")
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=31)
    parser.add_argument("--stock-only", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--seconds", type=float, default=560, help="no new part is begun after this time")
    args = parser.parse_args()
    start = time.time()
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "library_sha256": hashlib.sha256(args.library.read_bytes()).hexdigest(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sets": args.sets,
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "default"),
        "workload": "MLA layer with experts, tensor parallelism 8, rank 0, 7 blocks, bf16 cache, pages of 64, act=bf16, comm=shard",
        "checks": {},
        "rows": {},
        "skipped": [],
    }

    def save() -> None:
        args.out.write_text(json.dumps(record, indent=1), encoding="utf-8")

    library = Library(args.library)
    sets = [mla_weights(draw_weights(seed, "cuda", keep_codes=seed == 0), seed) for seed in range(args.sets)]
    torch.cuda.empty_cache()
    print(f"[{time.time() - start:6.1f} s] weights drawn", flush=True)
    bandwidth = guarded(record, "bandwidth", copy_bandwidth)
    torch.cuda.empty_cache()
    for rows in numbers(args.checks):
        if time.time() - start > args.seconds:
            record["skipped"].append(f"checks of {rows} rows")
            continue
        check_rows(record["checks"], library, sets, rows, args.replays, args.every)
        torch.cuda.empty_cache()
        save()
    record["wrong"] = [
        f"{rows} rows, {name}"
        for rows, found in record["checks"].items()
        for name, r in found.items()
        if "failed" in r or r.get("wrong") or not r.get("good", True)
    ]
    print("wrong:", record["wrong"] or "nothing", flush=True)
    for rows in numbers(args.rows):
        race = Race(library, sets, rows, args.blocks, args.tune, not args.stock_only)
        for context in numbers(args.contexts):
            name = f"{rows} rows, {context} tokens"
            if time.time() - start > args.seconds:
                record["skipped"].append(name)
                continue
            found = guarded(record["rows"], name, lambda: race.at(context, max(bandwidth.values())))  # noqa: B023
            torch.cuda.empty_cache()
            save()
            if "speed_up" in found:
                print(
                    f"== {name}: stock {found['stock_us']['median']:.1f} ({found['stock_nodes_per_layer']:.0f}), candidate "
                    f"{found['candidate_us']['median']:.1f} us ({found['candidate_nodes_per_layer']:.0f}), "
                    f"x{found['speed_up']['median']:.3f} [{found['speed_up']['p10']:.3f}, {found['speed_up']['p90']:.3f}], "
                    f"floor {found['floor_us']:.1f}, share {found['floor_share']:.3f}",
                    flush=True,
                )
    save()


if __name__ == "__main__":
    main()
