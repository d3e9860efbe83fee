"""The workspace: which packed weights and buffers lie in it, and where."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes; one cache line."""


class Plan:
    """Names, shapes and dtypes of everything in the workspace, laid out one behind the other."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, tuple[int, ...], torch.dtype]] = {}
        self.size = 0

    def add(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        """Reserve a tensor."""
        self._entries[name] = (self.size, shape, dtype)
        length = prod(shape) * dtype.itemsize
        self.size += -(-length // ALIGNMENT) * ALIGNMENT

    def carve(self, workspace: Tensor) -> dict[str, Tensor]:
        """Return views of ``workspace`` [size] uint8 by name.

        Raises:
            ValueError: if the workspace is too small.
        """
        if workspace.numel() < self.size:
            raise ValueError(f"workspace must have {self.size} bytes, found {workspace.numel()}")
        views = {}
        for name, (offset, shape, dtype) in self._entries.items():
            length = prod(shape) * dtype.itemsize
            views[name] = workspace[offset : offset + length].view(dtype).view(shape)
        return views


def dtype_of(facts: Mapping[str, Any], shape: Any, family: str) -> str:
    """Return the dtype of a tensor family: the configuration's, or the problem's default."""
    return str(dict(shape.dtypes).get(family, facts.get(f"dtype.{family}", "bf16")))


def _add_experts(made: Plan, at: str, facts: Mapping[str, Any], shape: Any) -> None:
    """Packed weights and buffers of a layer's experts; MXFP4 matrices lie there as bf16, in which their values are exact."""
    experts, wide, latent, half = facts["experts"], facts["expert_intermediate"], facts["latent"], torch.bfloat16
    made.add(at + "front", experts + latent, facts["hidden"])
    made.add(at + "latent_norm", latent)
    made.add(at + "minus_bias", experts)
    made.add(at + "w2", latent, experts * wide, dtype=half)
    made.add(at + "spread", shape.rows, experts, wide, dtype=half)
    made.add(at + "expert_scale", 2 * wide)
    made.add(at + "shared_scale", 2 * facts["shared_intermediate"])
    if dtype_of(facts, shape, "experts") == "mxfp4":
        made.add(at + "w13", experts * 2 * wide, latent, dtype=half)


def plan(facts: Mapping[str, Any], shape: Any) -> Plan:
    """Lay out the workspace for a shape: residual streams, then each layer's packed weights and hand-over buffers."""
    made, rows, hidden = Plan(), shape.rows, facts["hidden"]
    half = torch.bfloat16
    made.add("streams", rows, facts["blocks"] + 1, hidden)
    made.add("mailbox", rows, hidden, dtype=half)
    made.add("closing.direction", hidden)
    made.add("closing.norm", hidden)
    for index, kind in facts["layers"]:
        at = f"{index}."
        for name in ("attn_res.direction", "attn_res.norm", "mlp_res.direction", "mlp_res.norm"):
            made.add(at + name, hidden)
        if index in facts.get("dense_layers", ()):
            made.add(at + "dense_scale", 2 * facts["dense_intermediate"])
        else:
            _add_experts(made, at, facts, shape)
        heads = facts["heads"]
        if kind == "kda":
            width = heads * facts["kda_dim"]
            made.add(at + "attention", rows, width, dtype=half)
            made.add(at + "conv", facts["conv_width"], 3 * width)
            made.add(at + "f_b", facts["forget_rank"], width)
            made.add(at + "dt_bias", width)
            made.add(at + "o_norm", facts["kda_dim"])
        else:
            made.add(at + "attention", rows, heads * facts["v_dim"], dtype=half)
            made.add(at + "query", heads * (facts["kv_lora"] + facts["pe"]), facts["q_lora"])
            made.add(at + "kv_a_norm", facts["kv_lora"])
            made.add(at + "value", heads, facts["kv_lora"], facts["v_dim"])
    return made
