"""Latent mixture of experts with a shared expert: bf16 activations, routed weights in fp32.

Routing chooses by sigmoid score plus bias and weights by the score alone. Experts work on a latent of the hidden state; their
weighted sum is normed and projected up, the shared expert's output is added.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Layer


def situ(gate: Tensor, up: Tensor, layer: Layer) -> Tensor:
    """SiTU activation: b1 tanh(gate / b1) sigmoid(gate) x b2 tanh(up / b2), fp32."""
    gate, up = gate.float(), up.float()
    b1, b2 = layer.fact("situ_beta"), layer.fact("situ_linear_beta")
    bent: Tensor = b1 * torch.tanh(gate / b1) * torch.sigmoid(gate) * (b2 * torch.tanh(up / b2))
    return bent


def router(layer: Layer) -> None:
    """Router logits [rows, experts] in fp32, not rounded."""
    layer.v.logits = functional.linear(layer.v.x.float(), layer.w.router.float())


def latent_down(layer: Layer) -> None:
    """Latent input of the experts [rows, latent] bf16."""
    layer.v.latent_in = functional.linear(layer.v.x, layer.w.latent_down)


def prepare_latent(layer: Layer) -> None:
    """Where activations are quantised for the experts; with bf16 activations, the copy into their input buffer."""
    layer.v.expert_in = layer.v.latent_in.clone()


def route_top_k(layer: Layer) -> None:
    """Sigmoid, bias, the top k by sum (ties to the lower id, NaN last) and the renormalised weights."""
    scores = torch.sigmoid(layer.v.logits)
    chosen_by = (scores + layer.w.router_bias).nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    ids = torch.sort(chosen_by, dim=-1, descending=True, stable=True).indices[:, : layer.fact("top_k")]
    picked = scores.gather(1, ids)
    total = picked.sum(dim=-1, keepdim=True) + layer.fact("eps.renormalise")
    layer.v.weights = picked * layer.fact("routed_scaling") / total
    layer.v.ids = ids
    layer.ids.copy_(ids)


def route_permute(layer: Layer) -> None:
    """Order the (row, slot) pairs by expert and count each expert's pairs."""
    flat = layer.v.ids.flatten()
    layer.v.order = torch.sort(flat, stable=True).indices
    layer.v.counts = torch.bincount(flat, minlength=layer.fact("experts")).tolist()


def experts_gate_up_situ(layer: Layer) -> None:
    """First grouped product and activation: [pairs, intermediate] bf16, in expert order."""
    rows = layer.v.expert_in[layer.v.order // layer.fact("top_k")]
    groups = rows.split(layer.v.counts)
    both = torch.cat([functional.linear(g, layer.w.w13[e]) for e, g in enumerate(groups) if g.shape[0]])
    gate, up = both.chunk(2, dim=-1)
    layer.v.hidden = situ(gate, up, layer).to(torch.bfloat16)


def experts_down(layer: Layer) -> None:
    """Second grouped product: [pairs, latent] bf16, in expert order."""
    groups = layer.v.hidden.split(layer.v.counts)
    layer.v.pairs = torch.cat([functional.linear(g, layer.w.w2[e]) for e, g in enumerate(groups) if g.shape[0]])


def shared_gate_up(layer: Layer) -> None:
    """Gate and up of the shared expert, on the full hidden state."""
    layer.v.shared_both = functional.linear(layer.v.x, layer.w.shared_gate_up)


def shared_situ(layer: Layer) -> None:
    """Activation of the shared expert."""
    gate, up = layer.v.shared_both.chunk(2, dim=-1)
    layer.v.shared_hidden = situ(gate, up, layer).to(torch.bfloat16)


def shared_down(layer: Layer) -> None:
    """Output of the shared expert [rows, hidden] bf16."""
    layer.v.shared = functional.linear(layer.v.shared_hidden, layer.w.shared_down)


def finalise(layer: Layer) -> Tensor:
    """Weighted sum over the slots: this rank's part of the latent, [rows, latent] bf16."""
    slots = torch.empty_like(layer.v.pairs)
    slots[layer.v.order] = layer.v.pairs
    slots = slots.view(*layer.v.ids.shape, -1)
    total: Tensor = (layer.v.weights.unsqueeze(-1) * slots.float()).sum(dim=1).to(torch.bfloat16)
    return total


def norm_latent(layer: Layer, latent: Tensor) -> None:
    """Norm of the latent, whose squares are rounded to bf16: [rows, latent] bf16."""
    mean = latent.square().float().sum(dim=-1, keepdim=True) / latent.shape[-1]
    scale = torch.rsqrt(mean + layer.fact("eps.latent_norm"))
    layer.v.normed = (latent.float() * scale * layer.w.latent_norm.float()).to(torch.bfloat16)


def tail_finalise_norm(layer: Layer) -> None:
    """Weighted sum over the slots, stand-in reduction over ranks, and the latent norm."""
    norm_latent(layer, finalise(layer))


def tail_up_add(layer: Layer) -> None:
    """Project the latent up and add the shared expert's output, both rounded before."""
    layer.v.mailbox = functional.linear(layer.v.normed, layer.w.latent_up) + layer.v.shared


def tail_copy(layer: Layer) -> None:
    """Copy the gathered row out of the mailbox: the next layer's delta."""
    layer.window.delta = layer.v.mailbox.clone()
