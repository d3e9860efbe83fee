"""The stock path on a device as an implementation of the contract: 23 kernels a layer, as ``cuda/stock`` has them.

Three launches stand round the layers of a step: the prefix is set, and the closing attention residual is mixed and normed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda import mxfp4
from kernels_under_test.kimi_k3.cuda.kernel_lists import STOCK
from kernels_under_test.kimi_k3.cuda.sizes import BLOCKS, EXPERTS, HIDDEN, INTER, LATENT, ROWS
from kernels_under_test.kimi_k3.device import wiring

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":0:0")
"""The library's products without split sums: one kernel each, as the 23 are counted. It costs stock at most 1.2 %."""
STOCK_BLOCK = {"in": 32, "out": 16}
SHAPES = {"in": (2 * INTER, LATENT, "w13"), "out": (LATENT, INTER, "w2")}


class StockPath:
    """Implements :class:`kernels_under_test.contract.Implementation` with the launches of ``cuda/stock``."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        """Return None for one rank of eight at full size and a compiled number of rows, else why not."""
        return wiring.declined(facts, shape, ROWS)

    def workspace(self, facts: Mapping[str, Any], shape: Any) -> int:  # noqa: ARG002  (the same for all rows)
        """Return the bytes of the experts' codes in stock's packing and of what else is laid out anew."""
        scratch = wiring.Scratch()
        for _ in facts["layers"]:
            wiring.dense(wiring.Unwritten(), scratch)
            _packed(None, scratch)
        return scratch.used

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Callable[[], None]:
        """Pack the experts' codes, make the layers and return one step of all of them."""
        _ready_kernels()
        from kernels_under_test.kimi_k3.cuda.stock import rows

        scratch = wiring.Scratch(tensors["workspace"])
        layers, prefix = wiring.chain(facts, tensors, lambda own, given, ids: self.layer(own, given, ids, scratch))
        last, prefix_in, out = layers[-1].out, tensors["prefix_in"], tensors["out"]
        gamma, query, norm = wiring.closing(tensors)

        def step() -> None:
            prefix.copy_(prefix_in)
            for layer in layers:
                layer.run()
            rows.residual[(shape.rows,)](
                last, prefix, tensors["blocks_in"], gamma, query, norm, out, D=HIDDEN, NB=BLOCKS, S=8, W=8192, num_warps=8
            )  # fmt: skip

        step.stages = ("set_prefix", *STOCK * len(layers), "closing_residual")  # type: ignore[attr-defined]
        return step

    def layer(self, own: dict[str, Tensor], given: dict[str, Tensor], ids: Tensor, scratch: wiring.Scratch) -> Any:
        """Make one layer over the arena's tensors."""
        from kernels_under_test.kimi_k3.cuda.tensors import Weights
        from kernels_under_test.kimi_k3.device.stock_layer import MailboxStock

        weights = Weights(wiring.dense(own, scratch), _packed(own, scratch), {}, {})
        return MailboxStock(weights, given, own, ids)


def _packed(own: Mapping[str, Tensor] | None, scratch: wiring.Scratch) -> dict[str, Tensor]:
    """Return the experts' matrices in stock's packing; without tensors only count."""
    found: dict[str, Tensor] = {}
    for kind, (rows, inputs, name) in SHAPES.items():
        words = scratch.take((EXPERTS, rows, inputs // 8), torch.int32)
        found[f"{kind}_codes"] = words
        if own is not None:
            for part, codes in wiring.codes(own, name):
                words[part] = mxfp4.words(codes, STOCK_BLOCK[kind])
            found[f"{kind}_scales"] = own[f"{name}_scale"].view(torch.int32)
    return found


def _ready_kernels() -> None:
    """Take over the kernels that were compiled ahead of time: a cache that may be written, which the jail's copy may not."""
    built = os.environ.get("GATEKEEPER_BUILT")
    ready = Path(built, "triton") if built else None
    own = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    if ready and ready.is_dir() and not own.exists():
        shutil.copytree(ready, own)


baseline = StockPath()
