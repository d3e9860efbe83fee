"""Faults in the attention residuals and in the streams that run through them."""

from __future__ import annotations

from typing import Any

import torch

from .stages import after, instead


def _swap_blocks(window: Any) -> None:
    first = window.first_blocks
    if first > 1:
        window.blocks[:, :first] = window.blocks[:, :first].flip(1)
    else:
        window.blocks[:, 0] = window.prefix


def _enter_without_x(window: Any) -> None:
    window.prefix.copy_(window.tensors["prefix_in"])
    window.blocks[:, : window.first_blocks].copy_(window.tensors["blocks_in"])
    window.delta = torch.zeros_like(window.x)


def _twice(window: Any) -> None:
    window.prefix.add_(window.delta)


def _keep_old_prefix(layer: Any) -> None:
    if layer.opens_block:
        window = layer.window
        window.prefix.add_(window.blocks[:, layer.index // layer.block_size])


def _forget_block(layer: Any) -> None:
    if layer.opens_block:
        layer.window.blocks[:, layer.index // layer.block_size].zero_()


input_not_added = instead("enter", _enter_without_x)
"""The output of the layer before the window is left out."""

old_block_seen = after("enter", _swap_blocks)
"""The blocks before the window are taken in another order, or the only one is the running prefix."""

delta_added_twice = after("tail_copy", lambda layer: _twice(layer.window))
"""The feed-forward output joins the prefix a second time."""

prefix_not_replaced = after("attn_res_post_norm", _keep_old_prefix)
"""Where a block opens, the attention output is added to the old prefix instead of beginning a new one."""

opened_block_lost = after("attn_res_input_norm", _forget_block)
"""The block that a layer opens is zero for all later residuals."""
