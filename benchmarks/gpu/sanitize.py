"""Every kernel of the candidate a few times, for compute-sanitizer:

    compute-sanitizer --tool racecheck --kernel-name kernel_substring=cutlass python benchmarks/gpu/sanitize.py LIBRARY 8

memcheck needs PYTORCH_NO_CUDA_MEMORY_CACHING=1, or an overrun inside torch's pool goes unseen; synccheck needs
``--num-cuda-barriers 65536``; initcheck needs ``host``, for it knows of copies from the host but not of what torch's kernels wrote.
The tool starts kernels one after the other, so it finds no race between kernels: that is what the replays of ``k3_layer.py`` are for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

from checks import NULL_ROWS  # noqa: E402
from mla_checks import ragged  # noqa: E402

from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.library import Library  # noqa: E402
from kernels_under_test.kimi_k3.cuda.cute.mla_layer import CandidateMla  # noqa: E402
from kernels_under_test.kimi_k3.cuda.mla_tensors import draw_mla_inputs, mla_weights, poison  # noqa: E402
from kernels_under_test.kimi_k3.cuda.tensors import draw_inputs, draw_weights  # noqa: E402


def from_host(tensors: dict[str, torch.Tensor]) -> None:
    """Writes each tensor once more, by a copy from the host."""
    for tensor in tensors.values():
        tensor.copy_(tensor.cpu())


def main() -> None:
    """One layer, null rows included, for each number of rows on the command line; with ``mla`` there, an MLA layer. With ``host`` all
    weights and inputs are copied from the host."""
    latent = "mla" in sys.argv
    library = Library(Path(sys.argv[1]))
    weights = draw_weights(0, "cuda", keep_codes=False)
    if latent:
        weights = mla_weights(weights, 0)
    if "host" in sys.argv:
        from_host(weights.dense | weights.candidate)
    for rows in (int(a) for a in sys.argv[2:] if a.isdigit()):
        if latent:
            inputs = draw_mla_inputs(ragged(rows, 1, 700), rows, "cuda")
            poison(inputs)
            arm: Candidate = CandidateMla(library, weights, inputs)
        else:
            inputs = draw_inputs(rows, rows, "cuda", NULL_ROWS.get(rows, ()))
            arm = Candidate(library, weights, inputs)
        if "host" in sys.argv:
            from_host(inputs)
        arm.fill_front(torch.randn(arm.logits.shape, device="cuda"), torch.randn(arm.z.shape, device="cuda").bfloat16())
        arm.run()
        torch.cuda.synchronize()
        print(f"{rows} rows: ran, output finite {bool(arm.out.isfinite().all())}", flush=True)


if __name__ == "__main__":
    main()
