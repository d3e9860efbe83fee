"""Honest controls: what must not be stopped. Other orders, layouts and precisions within the rules, none of them a fault."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from .seam import of_baseline, of_candidate
from .stages import after, instead

CHUNK = 24
"""Tokens of a piece of attention; no multiple of a page."""
_HALF = torch.bfloat16


def _core_in_float64(layer: Any) -> None:
    """The delta rule in double precision, with the same roundings at its edges."""
    heads = layer.w.a_log.shape[0]
    slots = layer.window.tensors["slots"].long()
    alive = slots > 0
    q, k, v = layer.v.z.double().reshape(slots.shape[0], 3, heads, -1).unbind(1)
    eps, dim = layer.fact("eps.kda_l2"), q.shape[-1]
    q = q / torch.sqrt(q.square().sum(dim=-1, keepdim=True) + eps) / dim**0.5
    k = k / torch.sqrt(k.square().sum(dim=-1, keepdim=True) + eps)
    raw = (layer.v.raw.double() + layer.w.dt_bias).reshape(-1, heads, dim)
    decay = torch.exp(
        layer.fact("gate_lower_bound") * torch.sigmoid(torch.exp(layer.w.a_log.double()).unsqueeze(-1) * raw)
    )
    beta = torch.sigmoid(layer.v.b.double()).unsqueeze(-1)
    state = layer.w.recurrent_state[slots].double() * decay.unsqueeze(2)
    state = state + (beta * (v - (state @ k.unsqueeze(-1)).squeeze(-1))).unsqueeze(-1) * k.unsqueeze(2)
    layer.v.o = (state @ q.unsqueeze(-1)).squeeze(-1).masked_fill(~alive.reshape(-1, 1, 1), 0).to(_HALF)
    live = alive.nonzero().flatten()
    layer.w.recurrent_state[slots[live]] = state[live].float()


def _core_rearranged(layer: Any) -> None:
    """The delta rule with its decay taken into the keys: S alpha k is S (alpha k), and the output from the old state."""
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
    old = layer.w.recurrent_state[slots]
    write = beta * (v - torch.einsum("rhvk,rhk->rhv", old, decay * k))
    o = torch.einsum("rhvk,rhk->rhv", old, decay * q) + write * (k * q).sum(dim=-1, keepdim=True)
    layer.v.o = o.masked_fill(~alive.reshape(-1, 1, 1), 0).to(_HALF)
    live = alive.nonzero().flatten()
    layer.w.recurrent_state[slots[live]] = (old * decay.unsqueeze(2) + write.unsqueeze(-1) * k.unsqueeze(2))[live]


def _attention_in_pieces(layer: Any) -> None:
    """Attention over pieces of the context with a running maximum and sum."""
    window, latent = layer.window, layer.fact("kv_lora")
    scale = (layer.fact("nope") + layer.fact("pe")) ** -0.5
    query = layer.v.query.float()
    layer.v.parts = []
    for rank in range(window.ranks):
        lengths = window.tensors["local_lens"][rank].long().unsqueeze(1)
        top = torch.full(query.shape[:2], -torch.inf)
        total, mixed = torch.zeros(query.shape[:2]), torch.zeros(*query.shape[:2], latent)
        for start in range(0, int(lengths.max()), CHUNK):
            positions = window.positions[start : start + CHUNK]
            safe = torch.minimum(positions, lengths - 1).clamp(min=0)
            pages = window.tensors["block_table"].gather(1, safe // window.page)
            slots = pages.long() * window.page + safe % window.page
            rows = layer.w.kv_cache[rank].view(-1, query.shape[-1])[slots].float()
            behind = (positions >= lengths).unsqueeze(1)
            scores = ((query * scale) @ rows.transpose(1, 2)).masked_fill(behind, -torch.inf)
            higher = torch.maximum(top, scores.amax(dim=-1))
            safe_top = higher.masked_fill(higher == -torch.inf, 0)
            shrink, shares = torch.exp(top - safe_top), torch.exp(scores - safe_top.unsqueeze(-1))
            total = total * shrink + shares.sum(dim=-1)
            mixed = mixed * shrink.unsqueeze(-1) + shares @ rows[..., :latent].masked_fill(behind.transpose(1, 2), 0)
            top = higher
        empty = lengths == 0
        lse = (torch.log(total.clamp(min=1e-38)) + top).masked_fill(empty, -torch.inf)
        part = (mixed / total.clamp(min=1e-38).unsqueeze(-1)).masked_fill(empty.unsqueeze(-1), 0)
        layer.v.parts.append((part.to(_HALF), lse))
    layer.v.latent = layer.v.parts[0][0]


def _projected_in_halves(layer: Any) -> None:
    """The output projection split along its sum, joined in single precision."""
    first, second = layer.v.attention.float().chunk(2, dim=-1)
    left, right = layer.w.o_proj.float().chunk(2, dim=-1)
    layer.v.partial = (functional.linear(second, right) + functional.linear(first, left)).to(_HALF)


def _shared_wide(layer: Any) -> None:
    """The shared expert's activation in double precision from gate and up that were not rounded."""
    both = functional.linear(layer.v.x.float(), layer.w.shared_gate_up.float()).double()
    gate, up = both.chunk(2, dim=-1)
    b1, b2 = layer.fact("situ_beta"), layer.fact("situ_linear_beta")
    bent = b1 * torch.tanh(gate / b1) * torch.sigmoid(gate) * (b2 * torch.tanh(up / b2))
    layer.v.shared_hidden = bent.to(_HALF)


def _convolved_in_reverse(layer: Any) -> None:
    """The convolution's products added from the newest to the oldest, in double precision."""
    slots = layer.window.tensors["slots"].long()
    live = (slots > 0).nonzero().flatten()
    taps = torch.cat((layer.w.conv_state[slots], layer.v.qkv.unsqueeze(1)), dim=1)
    z = torch.zeros_like(taps[:, 0], dtype=torch.float64)
    for tap in reversed(range(taps.shape[1])):
        z = z + taps[:, tap].double() * layer.w.conv[:, tap].double()
    layer.v.z = functional.silu(z).to(_HALF)
    layer.w.conv_state[slots[live]] = taps[live, 1:]


def _experts_one_by_one(layer: Any) -> None:
    """The second product of the experts one pair at a time, in single precision."""
    experts = layer.v.ids.flatten()[layer.v.order].tolist()
    rows = [row.float() @ layer.w.w2[e].float().t() for row, e in zip(layer.v.hidden, experts, strict=True)]
    layer.v.pairs = torch.stack(rows).to(_HALF)


def _kept_wide(layer: Any) -> None:
    """Router logits from a product in double precision."""
    layer.v.logits = (layer.v.x.double() @ layer.w.router.double().t()).float()


baseline_again = of_baseline()
"""The stock path against itself. Must not be called better."""

candidate_again = of_candidate()
"""The house candidate through the seam. Must be better, like the candidate itself."""

core_in_float64 = instead("delta_recurrence", _core_in_float64)
core_rearranged = instead("delta_recurrence", _core_rearranged)
attention_in_pieces = instead("attention", _attention_in_pieces)
projected_in_halves = instead("o_proj", _projected_in_halves)
shared_expert_wide = instead("shared_situ", _shared_wide)
convolved_in_reverse = instead("conv_update_silu", _convolved_in_reverse)
experts_one_by_one = instead("experts_down", _experts_one_by_one)
router_in_float64 = after("router", _kept_wide)
