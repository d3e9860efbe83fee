"""A launch that does nothing for a while: between two kernels of a chain it shows which of them does not wait.

It lets the next kernel start at once, waits for the kernels before it, and then sleeps. A kernel that waits finds all it needs; one
that does not starts while its predecessors are still running.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, disallow-any-generics=False, warn-return-any=False

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels_under_test.kimi_k3.cuda.cute import ptx


class Delay:
    """One warp sleeps ``slices`` times for half a microsecond or more. The tensor only names the device."""

    def __init__(self, slices: int = 8) -> None:
        self.slices = slices

    @cute.jit
    def __call__(self, device: cute.Tensor, stream: Any) -> None:
        self.kernel(device).launch(
            grid=(1, 1, 1), block=(32, 1, 1), stream=stream, use_pdl=True, min_blocks_per_mp=1
        )  # fmt: skip

    @cute.kernel
    def kernel(self, _device: cute.Tensor) -> None:
        ptx.begin(True, True)
        for _ in cutlass.range(self.slices, unroll=1):
            ptx.sleep(500)
