"""The stateful steps of Kimi delta attention where requests verify draft tokens: several query tokens, several state slots.

A request starts from the state of the last token that it kept, slots[b, accepted - 1]; token t leaves its state in slots[b, t]. The
convolution keeps its inputs in slots[b, 0] alone: the taps begin at column accepted - 1, and the step writes the columns 0 to q + 1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Layer


def _starts(layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Live requests [n] (their start slot is not null), their slots [n, 1 + drafts] and their start slots [n], int64."""
    tensors = layer.window.tensors
    slots = tensors["slots"].long()
    start = slots.gather(1, tensors["num_accepted"].long().unsqueeze(1) - 1).squeeze(1)
    live = (start > 0).nonzero().flatten()
    return live, slots[live], start[live]


def conv_update_silu(layer: Layer) -> None:
    """Causal depthwise convolution over the kept inputs and the new ones, SiLU, and the rewritten convolution state."""
    window, width = layer.window, layer.w.conv.shape[1]
    live, slots, _ = _starts(layer)
    kept = window.tensors["num_accepted"].long()[live].unsqueeze(1)
    first = slots[:, :1]
    held = layer.w.conv_state[first, kept - 1 + torch.arange(width - 1)]
    fresh = layer.v.qkv.reshape(window.requests, window.query_tokens, -1)
    inputs = torch.cat((held, fresh[live]), dim=1)
    z = torch.zeros(fresh.shape, dtype=torch.bfloat16)
    taps = inputs.unfold(1, width, 1).float()
    z[live] = functional.silu((taps * layer.w.conv).sum(dim=-1)).to(torch.bfloat16)
    layer.v.z = z.flatten(0, 1)
    layer.w.conv_state[first, torch.arange(inputs.shape[1] - 1)] = inputs[:, 1:]


def delta_recurrence(layer: Layer) -> None:
    """Gate, L2 norms and the gated delta rule, token by token in fp32; the whole start state is read before the first store."""
    window, heads = layer.window, layer.w.a_log.shape[0]
    live, slots, start = _starts(layer)
    q, k, v = layer.v.z.float().reshape(window.rows, 3, heads, -1).unbind(1)
    eps, dim = layer.fact("eps.kda_l2"), q.shape[-1]
    q = q * torch.rsqrt(q.square().sum(dim=-1, keepdim=True) + eps) * dim**-0.5
    k = k * torch.rsqrt(k.square().sum(dim=-1, keepdim=True) + eps)
    raw = (layer.v.raw.float() + layer.w.dt_bias).reshape(-1, heads, dim)
    decay = torch.exp(layer.fact("gate_lower_bound") * torch.sigmoid(torch.exp(layer.w.a_log).unsqueeze(-1) * raw))
    beta = torch.sigmoid(layer.v.b.float()).unsqueeze(-1)
    q, k, v, decay, beta = (
        part.reshape(window.requests, window.query_tokens, heads, -1)[live] for part in (q, k, v, decay, beta)
    )
    o = torch.zeros(window.requests, window.query_tokens, heads, dim)
    state = layer.w.recurrent_state[start]
    for token in range(window.query_tokens):
        state = state * decay[:, token].unsqueeze(2)
        error = v[:, token] - (state @ k[:, token].unsqueeze(-1)).squeeze(-1)
        state = state + (beta[:, token] * error).unsqueeze(-1) * k[:, token].unsqueeze(2)
        o[live, token] = (state @ q[:, token].unsqueeze(-1)).squeeze(-1)
        stored = slots[:, token] > 0
        layer.w.recurrent_state[slots[stored, token]] = state[stored]
    layer.v.o = o.flatten(0, 1).to(torch.bfloat16)
