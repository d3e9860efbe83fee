"""The oracle of one rank: its layers in float64 with nothing rounded, following one run of an arm, on the device of its inputs.

The same definitions as :mod:`kernels_under_test.kimi_k3.reference`, whose functions it uses. All steps' inputs are known (they follow
from the arm's own outputs), so everything but the recurrence runs over all steps at once; a decode layer depends on the step before
through its states alone. Experts are widened one at a time: all of them at once would be 30 GB a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.contract import OUT, Problem, Shape, Trace
from kernels_under_test.kimi_k3.reference import check_ids, mxfp4, residual_mix, rms_norm, silu, situ

F64 = torch.float64


@dataclass
class Streams:
    """Residual streams over all steps, [steps x rows, hidden] each: the prefix, the complete blocks, the output not yet added."""

    prefix: Tensor
    blocks: list[Tensor]
    delta: Tensor


class Layer:
    """One layer's tensors by the rest of their names, widened when they are used."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str, steps: int) -> None:
        self._tensors, self._prefix, self.steps = tensors, prefix, steps

    def raw(self, name: str) -> Tensor:
        """Return a tensor as it is stored."""
        return self._tensors[self._prefix + name]

    def __getitem__(self, name: str) -> Tensor:
        return self.raw(name).to(F64)

    def peers(self, name: str) -> Tensor:
        """Return the sum of the other ranks' parts for every step's rows, [steps x rows, width]."""
        return self[f"peers.{name}"].sum(dim=0).repeat(self.steps, 1)

    def gathered(self, name: str, own: Tensor) -> Tensor:
        """Return a mailbox of every step's rows: ``own`` columns first, the other ranks' behind."""
        others = self[f"gathered.{name}"][:, own.shape[1] :]
        return torch.cat((own, others.repeat(self.steps, 1)), dim=1)


def kda(x: Tensor, w: Layer, facts: Mapping[str, Any], slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """This rank's part of the attention output over all steps, and both end states.

    Args:
        x: [steps x rows, hidden].
        slots: [rows] int64; a row with slot 0 adds nothing and leaves no state.

    Returns:
        [steps x rows, hidden], recurrent state [slots, heads, V, K], state of the convolution [slots, 3, channels].
    """
    heads, dim, rank = facts["heads"], facts["kda_dim"], facts["forget_rank"]
    d, steps, rows = heads * dim, w.steps, len(slots)
    y = x @ w["in_proj"].T
    live = slots > 0
    held = slots[live]
    conv, taps = w.raw("conv_state").to(F64, copy=True), w["conv"]
    fresh = y[:, : 3 * d].reshape(steps, rows, 3 * d)[:, live]
    line = torch.cat((conv[held].transpose(0, 1), fresh))
    width = facts["conv_width"]
    z = silu(sum((line[tap : tap + steps] * taps[:, tap] for tap in range(width)), torch.zeros_like(fresh)))
    q, k, v = (part.reshape(steps, -1, heads, dim) for part in torch.split(z, d, dim=-1))
    q = q / torch.sqrt((q * q).sum(dim=-1, keepdim=True) + facts["eps.kda_l2"]) / dim**0.5
    k = k / torch.sqrt((k * k).sum(dim=-1, keepdim=True) + facts["eps.kda_l2"])
    raw = (y[:, 4 * d : 4 * d + rank] @ w["f_b"].T + w["dt_bias"]).reshape(steps, rows, heads, dim)[:, live]
    alpha = torch.exp(facts["gate_lower_bound"] * torch.sigmoid(torch.exp(w["a_log"])[:, None] * raw))
    beta = torch.sigmoid(y[:, 4 * d + rank : 4 * d + rank + heads]).reshape(steps, rows, heads)[:, live]
    recurrent = w.raw("recurrent_state").to(F64, copy=True)
    memory = recurrent[held]
    seen = torch.empty_like(v)
    for t in range(steps):
        memory = memory * alpha[t][:, :, None, :]
        error = v[t] - (memory @ k[t][..., None])[..., 0]
        memory = memory + (beta[t][..., None] * error)[..., None] * k[t][:, :, None, :]
        seen[t] = (memory @ q[t][..., None])[..., 0]
    gate = torch.sigmoid(y[:, 3 * d : 4 * d]).reshape(steps, rows, heads, dim)[:, live]
    result = torch.zeros(steps, rows, d, dtype=F64, device=x.device)
    result[:, live] = (rms_norm(seen, w["o_norm"], facts["eps.kda_norm"]) * gate).reshape(steps, -1, d)
    recurrent[held], conv[held] = memory, line[steps:].transpose(0, 1)
    return result.reshape(-1, d) @ w["o_proj"].T, recurrent, conv


def experts(x: Tensor, ids: Tensor, shares: Tensor, w: Layer, facts: Mapping[str, Any]) -> Tensor:
    """This rank's part of the experts' output, [n, latent]: rows ``x`` [n, latent] sent to ``ids`` [n, k] with ``shares`` [n, k]."""
    total = torch.zeros_like(x)
    codes, tables = [w.raw(name) for name in ("w13", "w2")], [w.raw(f"{name}_scale") for name in ("w13", "w2")]
    for expert in sorted(set(ids.flatten().tolist())):
        rows, places = (ids == expert).nonzero(as_tuple=True)
        into, out = (mxfp4(codes[i][expert], tables[i][expert]) for i in range(2))
        gate, up = (x[rows] @ into.T).chunk(2, dim=-1)
        made = situ(gate, up, facts["situ_beta"], facts["situ_linear_beta"]) @ out.T
        total.index_add_(0, rows, shares[rows, places][:, None] * made)
    return total


def layer(
    w: Layer, streams: Streams, ids: Tensor, facts: Mapping[str, Any], slots: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """One decoder layer over all steps: advances the streams; returns what the states would be and the shortfall [steps x rows]."""
    score_eps, norm_eps, ranks = facts["eps.residual_score"], facts["eps.layer_norm"], facts["ranks"]
    streams.prefix = streams.prefix + streams.delta
    mix = residual_mix([*streams.blocks, streams.prefix], w["attn_res.gamma"], w["attn_res.query"], score_eps)
    attention, recurrent, conv = kda(rms_norm(mix, w["input_norm"], norm_eps), w, facts, slots)
    streams.prefix = streams.prefix + attention + w.peers("o")
    mix = residual_mix([*streams.blocks, streams.prefix], w["mlp_res.gamma"], w["mlp_res.query"], score_eps)
    x = rms_norm(mix, w["post_norm"], norm_eps)
    logits = w.gathered("logits", x @ w.raw("router")[: facts["experts"] // ranks].to(F64).T)
    down = w.gathered("latent", x @ w.raw("latent_down")[: facts["latent"] // ranks].to(F64).T)
    scores = torch.sigmoid(logits)
    ranking = scores + w["router_bias"]
    last = ranking.sort(dim=-1, descending=True).values[:, ids.shape[1] - 1]
    shortfall = (last - ranking.gather(1, ids).min(dim=1).values).clamp(min=0)
    picked = scores.gather(1, ids)
    shares = picked * facts["routed_scaling"] / (picked.sum(dim=1, keepdim=True) + facts["eps.renormalise"])
    latent = experts(down, ids, shares, w, facts) + w.peers("latent")
    routed = rms_norm(latent, w["latent_norm"], facts["eps.latent_norm"]) @ w["latent_up"].T
    gate, up = (x @ w["shared_gate_up"].T).chunk(2, dim=-1)
    own = routed.shape[1]
    shared = situ(gate, up, facts["situ_beta"], facts["situ_linear_beta"]) @ w.raw("shared_down")[:own].to(F64).T
    streams.delta = w.gathered("out", routed + shared + w.peers("shared"))
    mailboxes = {"gathered.logits": logits, "gathered.latent": down, "gathered.out": streams.delta}
    left = {name: value.reshape(w.steps, -1, value.shape[1])[-1] for name, value in mailboxes.items()}
    return {**left, "recurrent_state": recurrent, "conv_state": conv}, shortfall


class RankOracle:
    """Implements :class:`kernels_under_test.contract.Oracle`; states that no step writes come back as they were, NaN included."""

    def follow(
        self, problem: Problem, shape: Shape, initial: Mapping[str, Tensor], x: Tensor, expert_ids: Tensor
    ) -> Trace:
        """Run the layers in float64 over ``x`` [steps, rows, hidden], experts pinned to ``expert_ids`` [steps, layers, rows, k].

        Raises:
            ValueError: if an id is out of range or repeated within a row, or a shape does not fit.
        """
        facts, steps = problem.facts, x.shape[0]
        if tuple(x.shape[1:]) != (shape.rows, facts["hidden"]):
            raise ValueError(f"x: expected [steps, {shape.rows}, {facts['hidden']}], found {tuple(x.shape)}")
        ids = check_ids(expert_ids, (steps, len(facts["layers"]), shape.rows, facts["top_k"]), facts["experts"])
        blocks = [block.repeat(steps, 1) for block in initial["blocks_in"].to(F64).unbind(1)]
        prefix = initial["prefix_in"].to(F64).repeat(steps, 1)
        streams = Streams(prefix, blocks, x.to(F64).reshape(steps * shape.rows, -1))
        slots = initial["slots"].long()
        states: dict[str, Tensor] = {}
        shortfalls = []
        for place, (index, _) in enumerate(facts["layers"]):
            w = Layer(initial, f"layers.{index}.", steps)
            left, short = layer(w, streams, ids[:, place].reshape(steps * shape.rows, -1), facts, slots)
            states |= {f"layers.{index}.{name}": value for name, value in left.items()}
            shortfalls.append(short.reshape(steps, shape.rows))
        gamma, query = (initial[f"final_res.{name}"].to(F64) for name in ("gamma", "query"))
        sources = [*streams.blocks, streams.prefix + streams.delta]
        mix = residual_mix(sources, gamma, query, facts["eps.residual_score"])
        out = rms_norm(mix, initial["final_norm"].to(F64), facts["eps.layer_norm"])
        return Trace({OUT: out.reshape(x.shape)}, states, torch.stack(shortfalls, dim=1))


def oracle() -> RankOracle:
    """Return the oracle; it holds nothing between runs."""
    return RankOracle()
