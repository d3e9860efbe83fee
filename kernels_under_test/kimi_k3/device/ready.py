"""Compiles what the stock path needs on this machine's device ahead of time, so that no jailed process compiles it again.

    python -m kernels_under_test.kimi_k3.device.ready build/kernels/sm_90a [rows ...]

Runs one step of the problem outside any jail: stock is ours. Triton's cache goes into the folder ``triton`` of the first argument.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(folder: Path, rows: list[int]) -> None:
    """Fill the folder's cache for these numbers of rows."""
    os.environ["TRITON_CACHE_DIR"] = str(folder.absolute() / "triton")
    import torch

    from kernels_under_test.contract import Role, Shape
    from kernels_under_test.kimi_k3.device.problem import load
    from kernels_under_test.kimi_k3.device.stock import baseline

    problem = load("rank_kda")
    for count in rows:
        began = time.perf_counter()
        shape = Shape(rows=count, query_tokens=1, context=64, page_size=64, tensor_parallel=8)
        tensors = {
            spec.name: torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device="cuda")
            for spec in problem.tensors(shape)
        }
        problem.fill(shape, tensors, steps=1, seed=1, only=(Role.WEIGHT, Role.METADATA))
        size = baseline.workspace(problem.facts, shape)
        tensors["workspace"] = torch.zeros(size, dtype=torch.uint8, device="cuda")
        step = baseline.build(problem.facts, shape, tensors)
        torch.cuda.synchronize()
        packed = time.perf_counter()
        step()
        torch.cuda.synchronize()
        sys.stdout.write(
            f"rows {count}: packed in {packed - began:.1f} s, first step {time.perf_counter() - packed:.1f} s\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(text) for text in sys.argv[2:]] or [1, 2, 8, 16, 32, 64])
