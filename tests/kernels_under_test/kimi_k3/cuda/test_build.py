"""The candidate's kernels compile, without a device, for three architectures; only where the DSL is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_kernels_compile_for(arch: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    kernels = ["attention_residual", "kda", "route_group_shared_down", "experts", "tail_up"]
    kernels += ["mla_latents", "mla_absorb", "mla_core", "mla_merge", "mla_values"]
    subprocess.run(
        [sys.executable, "-m", "kernels_under_test.kimi_k3.cuda.cute.build", str(tmp_path), "8", *kernels, "--chosen"],
        check=True,
        cwd=root,
        env={**os.environ, "CUTE_DSL_ARCH": arch, "PYTHONPATH": str(root)},
    )
    facts = json.loads((tmp_path / "kernels.json").read_text(encoding="utf-8"))
    assert sorted(f["kernel"] for f in facts) == sorted(kernels)
    assert all(0 < f["registers"] <= 255 and len(f["sha256"]) == 64 for f in facts)
    assert (tmp_path / "kernels.so").stat().st_size > 0
