"""Attention residuals with the norm behind them, the output projection and its all-reduce.

A residual's input is a softmax mix of the complete blocks and the running prefix: each source is scored by the product of its
RMS-normalised self with gamma x query, the sources themselves are mixed un-normalised. Arithmetic is fp32, rounded once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Layer, Window


def _mix(window: Window, count: int, gamma: Tensor, query: Tensor) -> Tensor:
    """Return the mix of the first ``count`` blocks and the prefix: [rows, hidden] fp32."""
    sources = torch.cat((window.blocks[:, :count], window.prefix.unsqueeze(1)), dim=1).float()
    direction = gamma.float() * query.float()
    inverse = torch.rsqrt(sources.square().mean(dim=-1) + window.facts["eps.residual_score"])
    share = torch.softmax((sources @ direction) * inverse, dim=-1)
    return (share.unsqueeze(-1) * sources).sum(dim=1)


def _norm(mixed: Tensor, weight: Tensor, eps: float) -> Tensor:
    scale = torch.rsqrt(mixed.square().mean(dim=-1, keepdim=True) + eps)
    return (mixed * scale * weight.float()).to(torch.bfloat16)


def enter(window: Window) -> None:
    """Load the residual streams that the layers before the window left behind; before layer 0 there is the embedding alone."""
    if not window.first_blocks:
        window.prefix.copy_(window.x)
        window.delta = None
        return
    window.prefix.copy_(window.tensors["prefix_in"])
    window.blocks[:, : window.first_blocks].copy_(window.tensors["blocks_in"])
    window.delta = window.x


def before_attention(layer: Layer) -> None:
    """Add the last feed-forward output to the prefix, open a block where due, mix, and apply the input norm."""
    window = layer.window
    if window.delta is not None:
        window.prefix.add_(window.delta)
    if layer.opens_block:
        window.blocks[:, layer.index // layer.block_size].copy_(window.prefix)
    mixed = _mix(window, layer.complete_blocks, layer.w.attn_res_gamma, layer.w.attn_res_query)
    layer.v.x = _norm(mixed, layer.w.input_norm, layer.fact("eps.layer_norm"))


def o_proj(layer: Layer) -> None:
    """Project the attention output [rows, heads x value] to this rank's partial sum [rows, hidden]."""
    layer.v.partial = functional.linear(layer.v.attention, layer.w.o_proj)


def all_reduce(layer: Layer) -> None:
    """Stand-in for the all-reduce: with one rank, the partial sum moved once."""
    layer.v.reduced = layer.v.partial.clone()


def after_attention(layer: Layer) -> None:
    """Add (or, where a block opened, replace by) the attention output, mix, and apply the post-attention norm."""
    window = layer.window
    if layer.opens_block:
        window.prefix.copy_(layer.v.reduced)
    else:
        window.prefix.add_(layer.v.reduced)
    count = layer.complete_blocks + int(layer.opens_block)
    mixed = _mix(window, count, layer.w.mlp_res_gamma, layer.w.mlp_res_query)
    layer.v.x = _norm(mixed, layer.w.post_norm, layer.fact("eps.layer_norm"))


def closing(window: Window) -> None:
    """The attention residual behind the last layer: all blocks and the prefix, rounded to bf16."""
    if window.delta is not None:
        window.prefix.add_(window.delta)
    tensors = window.tensors
    mixed = _mix(window, window.facts["blocks"], tensors["final_res.gamma"], tensors["final_res.query"])
    window.mixed = mixed.to(torch.bfloat16)


def final_norm(window: Window) -> None:
    """RMSNorm of the closing mix into ``out``."""
    weight, eps = window.tensors["final_norm"], window.facts["eps.layer_norm"]
    window.out.copy_(_norm(window.mixed.float(), weight, eps))
