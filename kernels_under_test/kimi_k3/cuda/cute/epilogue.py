"""What becomes of two neighbouring outputs of a product."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16

from kernels_under_test.kimi_k3.cuda.cute import ptx
from kernels_under_test.kimi_k3.cuda.mla_sizes import GATE_AT
from kernels_under_test.kimi_k3.cuda.sizes import DOWN_SHARD, ROUTER_SHARD

FRONT_END = ROUTER_SHARD + DOWN_SHARD


class Epilogue:
    """kind "store": y[m, row] = bf16(value).

    kind "front": rows of the packed front: logits (fp32, not rounded) | latent | alternate gate and up rows, which become one
    activation of the shared expert.
    kind "gate": y[m, row] = bf16(bf16(value) sigmoid(projection[m, 2112 + row])), zero where lens[m] is zero.
    kind "tail": out[m, row] = bf16(bf16(value) + shared[m, row]).
    """

    def __init__(self, kind: str) -> None:
        if kind not in ("store", "front", "tail", "gate"):
            raise ValueError(f"expected store, front, tail or gate, found {kind!r}")
        self.kind = kind

    @cute.jit
    def __call__(self, m: Any, row: Any, a: Any, b: Any, y: cute.Tensor, y2: cute.Tensor, y3: cute.Tensor) -> None:
        if cutlass.const_expr(self.kind == "store"):
            y[m, row] = a.to(BFloat16)
            y[m, row + 1] = b.to(BFloat16)
        elif cutlass.const_expr(self.kind == "tail"):
            y[m, row] = (ptx.rounded(a) + y2[m, row].to(cutlass.Float32)).to(BFloat16)
            y[m, row + 1] = (ptx.rounded(b) + y2[m, row + 1].to(cutlass.Float32)).to(BFloat16)
        elif cutlass.const_expr(self.kind == "gate"):
            live = y3[m] > 0
            for i in cutlass.range_constexpr(2):
                gate = y2[m, GATE_AT + row + i].to(cutlass.Float32)
                value = ptx.rounded(b if i else a) * ptx.sigmoid(gate)
                y[m, row + i] = (value if live else cutlass.Float32(0.0)).to(BFloat16)
        else:
            if row < ROUTER_SHARD:
                y[m, row] = a
                y[m, row + 1] = b
            elif row < FRONT_END:
                y2[m, row - ROUTER_SHARD] = a.to(BFloat16)
                y2[m, row - ROUTER_SHARD + 1] = b.to(BFloat16)
            else:
                y3[m, (row - FRONT_END) // 2] = ptx.situ(ptx.rounded(a), ptx.rounded(b)).to(BFloat16)
