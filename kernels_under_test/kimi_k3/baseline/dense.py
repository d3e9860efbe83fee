"""The dense feed-forward of layer 0: gate and up, activation, down, all-reduce."""

from __future__ import annotations

import torch
from torch.nn import functional

from .latent_moe import situ
from .layer import Layer


def gate_up(layer: Layer) -> None:
    """Gate and up on the full hidden state."""
    layer.v.dense_both = functional.linear(layer.v.x, layer.w.dense_gate_up)


def activation(layer: Layer) -> None:
    """SiTU of the dense feed-forward, rounded once."""
    gate, up = layer.v.dense_both.chunk(2, dim=-1)
    layer.v.dense_hidden = situ(gate, up, layer).to(torch.bfloat16)


def down(layer: Layer) -> None:
    """This rank's partial sum of the output, [rows, hidden] bf16."""
    layer.v.dense_partial = functional.linear(layer.v.dense_hidden, layer.w.dense_down)


def all_reduce(layer: Layer) -> None:
    """Stand-in for the all-reduce: with one rank, the partial sum moved once. The next layer's delta."""
    layer.window.delta = layer.v.dense_partial.clone()
