"""Do the checks catch a planted fault? Replays of one layer with each mutant in it: python benchmarks/gpu/mutants.py LIBRARY OUT.json

The library must be built with --mutants. A mutant that no replay catches makes the exit status 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from checks import replays  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.tactics import MUTANTS  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import draw_inputs, draw_weights  # noqa: E402

COUNT = 200


def main() -> int:
    """Each mutant, and the layer without one as a control."""
    library, target = Library(Path(sys.argv[1])), Path(sys.argv[2])
    weights = draw_weights(0, "cuda", keep_codes=False)
    record: dict[str, dict] = {"device": {"name": torch.cuda.get_device_name()}}
    for fault, (kernel, rows, _) in {"none": ("in_proj", 8, {}), **MUTANTS}.items():
        inputs = draw_inputs(rows, 3, "cuda")
        arm = Candidate(library, weights, inputs, {} if fault == "none" else {kernel: fault})
        record[fault] = replays([(arm, inputs)], COUNT, 7000)
        print(fault, record[fault], flush=True)
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    missed = [fault for fault in MUTANTS if not record[fault]["wrong"]]
    print("missed:", missed or "none", "; control wrong:", record["none"]["wrong"])
    return int(bool(missed) or bool(record["none"]["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
