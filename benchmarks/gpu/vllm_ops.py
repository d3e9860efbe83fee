"""Compiled ops of the vllm wheel beside the matching stock kernels, cold, at the layer's shapes.

    python benchmarks/gpu/vllm_ops.py OUT.json _moe_C_stable_libtorch.abi3.so _C_stable_libtorch.abi3.so

The two libraries come out of the vllm 0.33.0 wheel; the package itself is not imported. The grouped products get random words (any
word is a valid weight), so their results are only checked to be finite.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from timing import quick  # noqa: E402

from kernels_under_test.kimi_k3.cuda.sizes import EXPERTS, ROWS, TOP_K  # noqa: E402
from kernels_under_test.kimi_k3.cuda.stock import experts, products  # noqa: E402
from kernels_under_test.kimi_k3.cuda.stock.layer import GROUPED, PRODUCTS, SKINNY, UNIT, default_tiles  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import BF16, STOCK_BLOCK  # noqa: E402

E2M1 = (1 << 49) | (1 << 16) | (1 << 8) | 2
"""The op's number for a float of 2 exponent bits and 1 mantissa bit, signed, finite only."""
DRAWS = {1: 8, 2: 8, 8: 8, 16: 4, 32: 2, 64: 2}
SETS = 2


def units(rows: int, gen: torch.Generator) -> list[torch.Tensor]:
    """Uniform routing of some rows, and the stock table of units: ids, count, expert, token, pair."""
    ids = torch.rand(rows, EXPERTS, device="cuda", generator=gen).topk(TOP_K, 1).indices.to(torch.int32).contiguous()
    pairs = rows * TOP_K
    made = [torch.zeros(n, dtype=torch.int32, device="cuda") for n in (1, pairs, pairs * UNIT, pairs * UNIT)]
    experts.permute[(EXPERTS // 8,)](ids, *made, PAIRS=pairs, W=1024, UNIT=UNIT, TOP=TOP_K, B=8, num_warps=4)
    return [ids, *made]


def grouped(kind: str, rows: int, words: list, scales: list, gen: torch.Generator) -> dict[str, Any]:
    """Microseconds of one grouped product: stock and the wheel's weight-only kernel (Marlin)."""
    n, k = GROUPED[kind]
    pairs, draws = rows * TOP_K, DRAWS[rows]
    tables = [units(rows, gen) for _ in range(draws)]
    x = torch.randn(rows if kind == "in" else pairs, k, device="cuda", generator=gen).to(BF16)
    y = torch.zeros(pairs, n, device="cuda", dtype=BF16)
    tile, warps, stages = default_tiles(rows)[kind]
    workspace = torch.zeros(132 * 4, dtype=torch.int32, device="cuda")
    weight = torch.rand(rows, TOP_K, device="cuda")
    sorted_ids = [torch.where(t[3] < 0, pairs, t[4]) for t in tables]
    padded = [t[1] * UNIT for t in tables]
    e8m0 = [s.view(torch.uint8).view(EXPERTS, k // 32, n).view(torch.float8_e8m0fnu) for s in scales]
    marlin_words = [w.view(EXPERTS, k // 16, n * 2) for w in words]

    def stock() -> None:
        for d, (_, count, expert, token, pair) in enumerate(tables):
            experts.experts[(n // tile, pairs)](
                x, words[d % SETS], scales[d % SETS], count, expert, token, pair, y, N=n, K=k, BN=tile, KW=STOCK_BLOCK[kind],
                UNIT=UNIT, OWN=kind == "out", num_warps=warps, num_stages=stages,
            )  # fmt: skip

    def marlin() -> None:
        for d, table in enumerate(tables):
            torch.ops._moe_C.moe_wna16_marlin_gemm(
                x, y, marlin_words[d % SETS], None, e8m0[d % SETS], None, None, None, workspace, sorted_ids[d], table[2], padded[d],
                weight, UNIT, TOP_K if kind == "in" else 1, kind == "out", E2M1, x.shape[0], n, k, False, True, False, -1, -1, -1,
            )  # fmt: skip

    bytes_ = sum(int(t[1]) for t in tables) / draws * (n * k / 2 + n * k / 32)
    found: dict[str, Any] = {"experts": sum(int(t[1]) for t in tables) / draws}
    for name, run in (("stock", stock), ("marlin", marlin)):
        us = quick(run, 5, 6) / draws
        found[name] = {"us": us, "TB/s": bytes_ / us / 1e6, "finite": bool(y.isfinite().all())}
    return found


def timed(run: Callable[[], Any], count: int) -> float | str:
    """Microseconds of one of ``count`` calls, or why the op refused."""
    try:
        return quick(run, 5, 10) / count
    except Exception as refusal:
        return f"{type(refusal).__name__}: {str(refusal)[:160]}"


def dense(gen: torch.Generator) -> dict[str, Any]:
    """The dense products: library, stock tile at one and two rows, and the wheel's low-latency product where it takes the shape."""
    found: dict[str, Any] = {}
    for name, (n, k) in PRODUCTS.items():
        sets = max(2, min(24, round(3e8 / (2 * n * k))))
        ws = [(torch.randn(n, k, device="cuda", generator=gen) * k**-0.5).to(BF16) for _ in range(sets)]
        for rows in (1, 2, 8, 16):
            x = torch.randn(rows, k, device="cuda", generator=gen).to(BF16)
            y = torch.zeros(rows, n, device="cuda", dtype=BF16)
            row: dict[str, Any] = {"library": timed(lambda: [torch.mm(x, w.t(), out=y) for w in ws], sets)}  # noqa: B023
            row["wheel"] = timed(lambda: [torch.ops._C.dsv3_fused_a_gemm(y, x, w.t(), False) for w in ws], sets)  # noqa: B023
            if name in SKINNY.get(rows, {}):
                bn, bk, warps = SKINNY[rows][name]
                row["stock"] = timed(
                    lambda: [
                        products.skinny[(n // bn,)](  # noqa: B023
                            x, w, y, y, n, k, n, K=k, M=rows, BN=bn, BK=bk, ADD=False, num_warps=warps  # noqa: B023
                        )
                        for w in ws  # noqa: B023
                    ],
                    sets,
                )  # fmt: skip
            found[f"{name} {rows}"] = row
    return found


def routing(gen: torch.Generator) -> dict[str, Any]:
    """Top 16 and the unit table."""
    found: dict[str, Any] = {}
    for rows in (1, 8, 64):
        logits = torch.randn(rows, EXPERTS, device="cuda", generator=gen)
        bias = torch.randn(EXPERTS, device="cuda", generator=gen) * 0.05
        ids = torch.zeros(rows, TOP_K, device="cuda", dtype=torch.int32)
        share = torch.zeros(rows, TOP_K, device="cuda")
        pairs = rows * TOP_K
        table = [torch.zeros(n, dtype=torch.int32, device="cuda") for n in (1, pairs, pairs * UNIT, pairs * UNIT)]
        out = [torch.zeros(pairs * UNIT + UNIT, dtype=torch.int32, device="cuda") for _ in range(2)]
        found[str(rows)] = {
            "stock route": timed(
                lambda: [experts.route[(rows,)](logits, bias, ids, share, E=EXPERTS, W=1024, TOP=TOP_K, num_warps=4) for _ in range(8)], 8  # noqa: B023
            ),
            "wheel grouped_topk": timed(
                lambda: [torch.ops._moe_C.grouped_topk(logits, 1, 1, TOP_K, True, 1.0, bias, 1) for _ in range(8)], 8  # noqa: B023
            ),
            "stock permute": timed(
                lambda: [
                    experts.permute[(EXPERTS // 8,)](ids, *table, PAIRS=pairs, W=1024, UNIT=UNIT, TOP=TOP_K, B=8, num_warps=4) for _ in range(8)  # noqa: B023
                ], 8
            ),
            "wheel moe_align_block_size": timed(
                lambda: [
                    torch.ops._moe_C.moe_align_block_size(ids, EXPERTS, UNIT, out[0], out[1], table[0], None, None) for _ in range(8)  # noqa: B023
                ], 8
            ),
        }  # fmt: skip
    return found


def main() -> None:
    """All comparisons into one record."""
    target, *libraries = (Path(a) for a in sys.argv[1:])
    for library in libraries:
        torch.ops.load_library(str(library))
    gen = torch.Generator(device="cuda").manual_seed(11)
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "wheel": "vllm 0.33.0",
        "routing": routing(gen),
        "dense": dense(gen),
        "grouped": {},
    }
    for kind, (n, k) in GROUPED.items():
        words = [
            torch.randint(-(2**31), 2**31 - 1, (EXPERTS, n, k // 8), device="cuda", dtype=torch.int32, generator=gen)
            for _ in range(SETS)
        ]
        scales = [
            torch.randint(119, 122, (EXPERTS, n, k // 32), device="cuda", generator=gen)
            .to(torch.uint8)
            .view(torch.int32)
            for _ in range(SETS)
        ]
        for rows in ROWS:
            found = record["grouped"][f"{kind} {rows}"] = grouped(kind, rows, words, scales, gen)
            print(kind, rows, json.dumps(found), flush=True)
        del words, scales
        torch.cuda.empty_cache()
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(json.dumps(record["dense"]), json.dumps(record["routing"]))


if __name__ == "__main__":
    main()
