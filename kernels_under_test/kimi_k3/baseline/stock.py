"""Entry point of the stock baseline: which steps one decode step consists of, in launch order.

A KDA layer with latent experts is 23 steps (the unfused KDA chain of a rank with six heads), an MLA layer 26, or 27 with
decode context parallelism; layer 0 with its dense feed-forward is 14. With one rank, communication steps are local stand-ins: an
all-reduce has one term, but the store and the read that it costs are made. With several, each step is made on every rank's shard
in turn. Window entry and closing norm are counted apart. The list is the same for every dtype and number of query tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from . import attention_residual, dense, kda, latent_moe, mla, ranks, small_dtypes, verify
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
DENSE: tuple[Stage, ...] = (
    ("dense_gate_up", dense.gate_up),
    ("dense_situ", dense.activation),
    ("dense_down", dense.down),
    ("dense_all_reduce", dense.all_reduce),
)
VERIFY = {"conv_update_silu": verify.conv_update_silu, "delta_recurrence": verify.delta_recurrence}
SERVED = {
    "kv_cache": ("bf16", "fp8_e4m3"),
    "conv_state": ("bf16",),
    "recurrent_state": ("fp32",),
    "experts": ("bf16", "mxfp4"),
    "act": ("bf16", "mxfp8"),
}
"""Dtypes by family."""


def layer_stages(kind: str, shards: int, *, dense_layer: bool = False) -> tuple[Stage, ...]:
    """Return the steps of one layer: ``kind`` is kda or mla, ``shards`` the decode context parallelism."""
    feed_forward = DENSE if dense_layer else MOE
    if kind == "kda":
        return BEFORE + KDA + AFTER + feed_forward
    return BEFORE + MLA + (MLA_MERGE if shards > 1 else ()) + MLA_VALUE + AFTER + feed_forward


def other_forms(facts: Mapping[str, Any], shape: Any) -> small_dtypes.Steps:
    """Return which steps take the place of listed ones at this shape, by name: verify steps and small dtypes."""
    dtype = {f: dict(shape.dtypes).get(f, facts.get(f"dtype.{f}", names[0])) for f, names in SERVED.items()}
    forms: small_dtypes.Steps = {}
    if facts.get("speculative_tokens", 0):
        forms |= VERIFY
    if dtype["kv_cache"] == "fp8_e4m3":
        forms |= small_dtypes.FP8_CACHE
    if dtype["experts"] == "mxfp4":
        forms |= small_dtypes.PACKED
    if dtype["act"] == "mxfp8":
        forms |= small_dtypes.MXFP8
    return forms


class Step:
    """One decode step, callable; ``stages`` names its kernels in order, ``layer.index/kernel``."""

    def __init__(self, window: Window, forms: small_dtypes.Steps) -> None:
        self.stages: list[str] = ["window/enter"]
        self._runs: list[Callable[[], None]] = [partial(attention_residual.enter, window)]
        for layer in window.layers:
            if window.shards > 1:
                ranks.spread(layer)
            for name, function in layer_stages(layer.kind, window.ranks, dense_layer=layer.dense):
                self.stages.append(f"layer.{layer.index}/{name}")
                self._runs.append(ranks.bound(layer, name, forms.get(name, function)))
        for name, closing in (("attn_res", attention_residual.closing), ("final_norm", attention_residual.final_norm)):
            self.stages.append(f"window/{name}")
            self._runs.append(partial(closing, window))

    def __call__(self) -> None:
        for run in self._runs:
            run()


class StockBaseline:
    """The stock path. Serves every shape that a problem with simulated ranks defines."""

    def supports(self, facts: Mapping[str, Any], shape: Any) -> str | None:
        """Return None where served, else all reasons why not, in one line."""
        reasons = []
        if shape.expert_parallel != 1:
            reasons.append(f"expert_parallel must be 1, found {shape.expert_parallel}")
        if (communication := facts.get("communication", "simulated")) != "simulated":
            reasons.append(f"communication must be simulated, found {communication} (one rank alone is the GPU's)")
        drafts = facts.get("speculative_tokens", 0)
        if not 1 <= shape.query_tokens <= 1 + drafts or shape.rows % shape.query_tokens:
            reasons.append(
                f"query_tokens must be in 1..{1 + drafts} and divide rows = {shape.rows}, found {shape.query_tokens}"
            )
        cut = ("heads", "expert_intermediate", "shared_intermediate", "dense_intermediate")
        odd = [f"{name} = {facts[name]}" for name in cut if facts.get(name, 0) % shape.tensor_parallel]
        if odd:
            reasons.append(f"tensor_parallel must divide {', '.join(odd)}, found {shape.tensor_parallel}")
        for family, dtype in sorted(dict(shape.dtypes).items()):
            if dtype not in SERVED.get(family, ()):
                reasons.append(
                    f"dtype of {family} must be {' or '.join(SERVED.get(family, ('left out',)))}, found {dtype}"
                )
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
        return Step(Window(facts, shape, tensors), other_forms(facts, shape))


baseline = StockBaseline()
