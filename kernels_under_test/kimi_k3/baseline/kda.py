"""Kimi delta attention, one token per request, as the unfused chain: convolution and core output are rounded to bf16."""

from __future__ import annotations

import torch
from torch.nn import functional

from .layer import Layer


def in_proj(layer: Layer) -> None:
    """Project to q | k | v | g | f_a | b | padding, all [rows, ...] bf16 slices of one buffer."""
    d, rank, heads = layer.w.f_b.shape[0], layer.w.f_b.shape[1], layer.w.a_log.shape[0]
    y = functional.linear(layer.v.x, layer.w.in_proj)
    layer.v.qkv = y[:, : 3 * d]
    layer.v.gate = y[:, 3 * d : 4 * d]
    layer.v.f_a = y[:, 4 * d : 4 * d + rank]
    layer.v.b = y[:, 4 * d + rank : 4 * d + rank + heads]


def forget_gate_b(layer: Layer) -> None:
    """Second half of the low-rank forget gate: raw [rows, d] bf16."""
    layer.v.raw = functional.linear(layer.v.f_a, layer.w.f_b)


def conv_update_silu(layer: Layer) -> None:
    """Causal depthwise convolution over the last inputs, SiLU, and the shift of the convolution state."""
    slots = layer.window.tensors["slots"].long()
    live = (slots > 0).nonzero().flatten()
    taps = torch.cat((layer.w.conv_state[slots], layer.v.qkv.unsqueeze(1)), dim=1)
    z = (taps.float() * layer.w.conv.t()).sum(dim=1)
    layer.v.z = functional.silu(z).to(torch.bfloat16)
    layer.w.conv_state[slots[live]] = taps[live, 1:]


def delta_recurrence(layer: Layer) -> None:
    """Gate, L2 norms and the gated delta rule: S <- S alpha, S <- S + beta (v - S k) k^T, o = S q, in fp32."""
    heads = layer.w.a_log.shape[0]
    slots = layer.window.tensors["slots"].long()
    alive = slots > 0
    q, k, v = layer.v.z.float().reshape(slots.shape[0], 3, heads, -1).unbind(1)
    eps, dim = layer.fact("eps.kda_l2"), q.shape[-1]
    q = q * torch.rsqrt(q.square().sum(dim=-1, keepdim=True) + eps) * dim**-0.5
    k = k * torch.rsqrt(k.square().sum(dim=-1, keepdim=True) + eps)
    raw = (layer.v.raw.float() + layer.w.dt_bias).reshape(-1, heads, dim)
    decay = torch.exp(layer.fact("gate_lower_bound") * torch.sigmoid(torch.exp(layer.w.a_log).unsqueeze(-1) * raw))
    beta = torch.sigmoid(layer.v.b.float()).unsqueeze(-1)
    state = layer.w.recurrent_state[slots] * decay.unsqueeze(2)
    error = v - (state @ k.unsqueeze(-1)).squeeze(-1)
    state = state + (beta * error).unsqueeze(-1) * k.unsqueeze(2)
    o = (state @ q.unsqueeze(-1)).squeeze(-1)
    layer.v.o = o.masked_fill(~alive.reshape(-1, 1, 1), 0).to(torch.bfloat16)
    live = alive.nonzero().flatten()
    layer.w.recurrent_state[slots[live]] = state[live]


def copy_attention_output(layer: Layer) -> None:
    """Copy the core's output into the attention output buffer."""
    layer.v.core = layer.v.o.clone()


def gated_norm(layer: Layer) -> None:
    """RMSNorm over the head's values, times the output gate's sigmoid: [rows, d] bf16."""
    o = layer.v.core.float()
    gate = torch.sigmoid(layer.v.gate.float()).reshape(o.shape)
    scale = torch.rsqrt(o.square().mean(dim=-1, keepdim=True) + layer.fact("eps.kda_norm"))
    layer.v.attention = (o * scale * layer.w.o_norm.float() * gate).to(torch.bfloat16).flatten(1)
