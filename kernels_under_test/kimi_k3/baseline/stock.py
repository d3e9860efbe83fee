"""Entry point of the stock baseline: which steps one decode step consists of, in launch order.

A KDA layer with latent experts is 23 steps (the unfused KDA chain of a rank with six heads), an MLA layer 26, or 27 with
decode context parallelism. Communication steps are local stand-ins: one rank, so an all-reduce has one term, but the store and
the read that it costs are made. Window entry and closing norm are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from . import attention_residual, kda, latent_moe, mla
from .layer import Layer, Window

Stage = tuple[str, Callable[[Layer], None]]

BEFORE: tuple[Stage, ...] = (("attn_res_input_norm", attention_residual.before_attention),)
AFTER: tuple[Stage, ...] = (
    ("o_proj", attention_residual.o_proj),
    ("attention_all_reduce", attention_residual.all_reduce),
    ("attn_res_post_norm", attention_residual.after_attention),
)
KDA: tuple[Stage, ...] = (
    ("in_proj", kda.in_proj),
    ("forget_gate_b", kda.forget_gate_b),
    ("conv_update_silu", kda.conv_update_silu),
    ("delta_recurrence", kda.delta_recurrence),
    ("copy_attention_output", kda.copy_attention_output),
    ("gated_norm", kda.gated_norm),
)
MLA: tuple[Stage, ...] = (
    ("qkv_a", mla.qkv_a),
    ("gate_proj", mla.gate_proj),
    ("q_kv_norm", mla.q_kv_norm),
    ("q_b", mla.q_b),
    ("absorb_w_uk", mla.absorb_w_uk),
    ("concat_and_cache_insert", mla.concat_and_cache_insert),
    ("attention", mla.attention),
)
MLA_MERGE: tuple[Stage, ...] = (("merge_shards", mla.merge_shards),)
MLA_VALUE: tuple[Stage, ...] = (("value_w_uv", mla.value_w_uv), ("gate_mul", mla.gate_mul))
MOE: tuple[Stage, ...] = (
    ("router", latent_moe.router),
    ("latent_down", latent_moe.latent_down),
    ("prepare_latent", latent_moe.prepare_latent),
    ("route_top_k", latent_moe.route_top_k),
    ("route_permute", latent_moe.route_permute),
    ("experts_gate_up_situ", latent_moe.experts_gate_up_situ),
    ("experts_down", latent_moe.experts_down),
    ("shared_gate_up", latent_moe.shared_gate_up),
    ("shared_situ", latent_moe.shared_situ),
    ("shared_down", latent_moe.shared_down),
    ("tail_finalise_norm", latent_moe.tail_finalise_norm),
    ("tail_up_add", latent_moe.tail_up_add),
    ("tail_copy", latent_moe.tail_copy),
)


def layer_stages(kind: str, ranks: int) -> tuple[Stage, ...]:
    """Return the steps of one layer: ``kind`` is kda or mla, ``ranks`` the decode context parallelism."""
    if kind == "kda":
        return BEFORE + KDA + AFTER + MOE
    return BEFORE + MLA + (MLA_MERGE if ranks > 1 else ()) + MLA_VALUE + AFTER + MOE


class Step:
    """One decode step, callable; ``stages`` names its kernels in order, ``layer.index/kernel``."""

    def __init__(self, window: Window) -> None:
        self.stages: list[str] = ["window/enter"]
        self._runs: list[Callable[[], None]] = [partial(attention_residual.enter, window)]
        for layer in window.layers:
            for name, function in layer_stages(layer.kind, window.ranks):
                self.stages.append(f"layer.{layer.index}/{name}")
                self._runs.append(partial(function, layer))
        for name, closing in (("attn_res", attention_residual.closing), ("final_norm", attention_residual.final_norm)):
            self.stages.append(f"window/{name}")
            self._runs.append(partial(closing, window))

    def __call__(self) -> None:
        for run in self._runs:
            run()


class StockBaseline:
    """The stock path. Serves every shape that the problem defines for one rank and one query token."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:  # noqa: ARG002
        """Return None where served, else all reasons why not, in one line."""
        reasons = [
            f"{name} must be 1, found {getattr(shape, name)}"
            for name in ("query_tokens", "tensor_parallel", "expert_parallel")
            if getattr(shape, name) != 1
        ]
        known = {"kv_cache": "bf16", "conv_state": "bf16", "recurrent_state": "fp32"}
        for family, dtype in sorted(dict(shape.dtypes).items()):
            if known.get(family) != dtype:
                reasons.append(f"dtype of {family} must be {known.get(family, 'left out')}, found {dtype}")
        return "; ".join(reasons) or None

    def workspace(self, facts: Mapping[str, Any], shape: Any) -> int:  # noqa: ARG002
        """No scratch beyond what torch allocates for intermediate results."""
        return 0

    def build(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> Step:
        """Return the step over ``tensors``.

        Raises:
            ValueError: if the shape is not served.
        """
        if reason := self.supports(facts, shape):
            raise ValueError(reason)
        return Step(Window(facts, shape, tensors))


baseline = StockBaseline()
