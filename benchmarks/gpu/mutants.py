"""Do the checks catch a planted fault? python benchmarks/gpu/mutants.py LIBRARY OUT.json

The library must be built with --mutants. Each mutant goes through the replays of one layer, those of MLA through the comparison with
the reference as well. A mutant that nothing catches makes the exit status 1. Also checked here, as it needs a variant that no layer
uses: the merge of eight ranks' parts under decode context parallelism.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from breadth import POOL, delay, pools  # noqa: E402
from checks import error, replays  # noqa: E402
from mla_checks import Draws, MlaOracle, mla_good, mla_load, mla_outcome, ragged  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute import mla_tactics  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.mla_layer import CandidateMla  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.tactics import BESIDE_A_MUTANT, MUTANTS, name  # noqa: E402
from kernels_under_test.kimi_k3.cuda.mla_reference import gated, merge  # noqa: E402
from kernels_under_test.kimi_k3.cuda.mla_sizes import KV_RANK  # noqa: E402
from kernels_under_test.kimi_k3.cuda.mla_tensors import mla_weights  # noqa: E402
from kernels_under_test.kimi_k3.cuda.sizes import HEADS  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import SLOTS, draw_inputs, draw_weights  # noqa: E402

COUNT = 200


def kda(library: Library, weights: Any) -> dict[str, Any]:
    """Each mutant of the KDA layer, and that layer without one as a control: replays, replays with a delay before each kernel, and the
    two pools of states."""
    found = {}
    controls: dict[str, Any] = {f"none {rows}": ("in_proj", rows, {}) for rows in (1, 8)}
    for fault, (kernel, rows, _) in (controls | {k: v for k, v in MUTANTS.items() if k != "held"}).items():
        choice = {} if fault in controls else {kernel: fault, **BESIDE_A_MUTANT.get(fault, {})}
        record: dict[str, Any] = {}
        for way, wait, count in (("plain", None, COUNT), ("delayed", delay(library), COUNT // 4)):
            inputs = draw_inputs(rows, 3, "cuda")
            record[way] = replays([(Candidate(library, weights, inputs, choice), inputs)], count, 7000, delay=wait)
        if kernel == "kda" or fault in controls:
            record["null slots"] = pools(library, weights, rows, SLOTS, choice)
            record["large pool"] = pools(library, weights, rows, POOL, choice)
            torch.cuda.empty_cache()
        by = [way for way, r in record.items() if r.get("wrong") or not r.get("good", True)]
        found[fault] = {"wrong": len(by), "caught_by": by, **record}
        print(fault, "caught by", by, flush=True)
    return found


def mla(library: Library, weights: Any) -> dict[str, Any]:
    """Each mutant of the MLA layer, and that layer without one as a control at the same rows."""
    faults = {k: v for k, v in mla_tactics.SPECIAL.items() if "fault" in v[2]}
    controls: dict[str, Any] = {f"none {rows}": ("mla_core", rows, {}) for rows in (2, 8)}
    found = {}
    for fault, (kernel, rows, _) in (controls | faults).items():
        choice = {kernel: fault} if fault in faults else {}
        oracle = MlaOracle(weights, ragged(rows, 1), 5)
        inputs = oracle.inputs()
        judged = oracle.judge(CandidateMla(library, weights, inputs, choice), inputs)
        draws = Draws(rows, 9000, 77)
        replayed = draws.inputs(3)
        arm = CandidateMla(library, weights, replayed, choice)
        found[fault] = {"good": mla_good(judged), "core": judged["core"]} | replays(
            [(arm, replayed)], COUNT, 8000, draws.draw, mla_load, mla_outcome
        )
    return found


def ranks(library: Library, weights: Any) -> dict[str, Any]:
    """Eight ranks' parts against the reference: valid ones, an empty rank with NaN in its data, an infinite logarithm, and a row whose
    own part is empty."""
    kernel, rows, arguments = mla_tactics.SPECIAL["ranks"]
    own, count = arguments["rank"], arguments["ranks"]
    worst = 0.0
    for lengths in ([5000, 77], [0, 640], [1, 0]):
        oracle = MlaOracle(weights, lengths, 9)
        arm = CandidateMla(library, weights, oracle.inputs())
        arm.fill_front(torch.randn_like(arm.logits), torch.randn_like(arm.z))
        arm.run()
        gen = torch.Generator(device="cuda").manual_seed(4)
        latents = torch.randn(count, rows, HEADS, KV_RANK, device="cuda", generator=gen).bfloat16()
        logs = 4 + 2 * torch.randn(count, rows, HEADS, device="cuda", generator=gen)
        for rank, bad in ((0, float("-inf")), (5, float("nan")), (6, float("inf"))):
            logs[rank], latents[rank] = bad, float("nan")
        others = [rank for rank in range(count) if rank != own]
        part, lse, lens, kv_b, y = arm.args[kernel][:5]
        core = torch.full_like(arm.core, float("nan"))
        library[name(kernel, rows, "ranks")](
            part, lse, lens, kv_b, y, latents[others].view(-1, KV_RANK), logs[others].view(-1, HEADS), core
        )
        torch.cuda.synchronize()
        every, every_logs = latents.double(), logs.double()
        every[own], every_logs[own] = oracle.wanted["latents"], oracle.wanted["logs"]
        live = torch.ones(rows, dtype=torch.bool, device="cuda")
        worst = max(worst, error(core, gated(weights.dense, oracle.wanted["y"], merge(every, every_logs), live)))
    return {"error": worst, "good": worst < 1.5e-2}


def main() -> int:
    """All of it; 1 if a fault passed, or a control failed."""
    library, target = Library(Path(sys.argv[1])), Path(sys.argv[2])
    weights = draw_weights(0, "cuda", keep_codes=True)
    latent = mla_weights(weights, 0)
    record: dict[str, Any] = {"device": {"name": torch.cuda.get_device_name()}, "kda": kda(library, weights)}
    record |= {"mla": mla(library, latent), "ranks": ranks(library, latent)}
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps(record))
    missed, wrong = [], [] if record["ranks"]["good"] else ["ranks"]
    for kind in ("kda", "mla"):
        for fault, found in record[kind].items():
            caught = bool(found["wrong"]) or not found.get("good", True)
            if fault.startswith("none") and caught:
                wrong.append(f"{kind} {fault}")
            if not fault.startswith("none") and not caught:
                missed.append(f"{kind} {fault}")
    print("missed:", missed or "none", "; wrong without a fault:", wrong or "none")
    return int(bool(missed) or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
