"""The oracle: Kimi K3 decode layers in float64, with nothing rounded, following one run of an arm.

Written straight from the definitions, for reading and not for speed, and in other forms than the implementations where there is
a choice: attention forms every head's keys and values from the cached latents and reads all tokens in order whatever rank
they lie on (the implementations absorb the projections and merge shards); experts are visited one row at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.contract import EXPERT_IDS, OUT, Problem, Role, Shape, Trace

F64 = torch.float64


def silu(z: Tensor) -> Tensor:
    """z sigmoid(z)."""
    return z * torch.sigmoid(z)


def rms_norm(value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """value / sqrt(mean value^2 + eps) x weight, over the last axis."""
    return value / torch.sqrt((value * value).mean(dim=-1, keepdim=True) + eps) * weight


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float) -> Tensor:
    """The expert activation beta tanh(g / beta) sigmoid(g) x linear_beta tanh(u / linear_beta)."""
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)


def residual_mix(sources: list[Tensor], gamma: Tensor, query: Tensor, eps: float) -> Tensor:
    """Mix the sources, each [rows, hidden], by softmax of <v / rms(v), gamma x query>; the mix itself is un-normalised."""
    logits = torch.stack([rms_norm(v, gamma, eps) @ query for v in sources])
    shares = torch.softmax(logits, dim=0)
    mix = torch.zeros_like(sources[0])
    for share, source in zip(shares, sources, strict=True):
        mix += share[:, None] * source
    return mix


@dataclass
class Streams:
    """Residual streams of one step: the prefix [rows, hidden], the complete blocks, and the output not yet added."""

    prefix: Tensor
    blocks: list[Tensor]
    delta: Tensor


@dataclass
class Schedule:
    """What serving prepared for one step: lengths [rows], the block table, state slots and cache slots [ranks, rows]."""

    seq_lens: list[int]
    block_table: Tensor
    slots: list[int]
    slot_mapping: Tensor
    page: int
    ranks: int


class Weights:
    """Float64 copies of the tensors under a name prefix, by the rest of their names."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str) -> None:
        self._tensors = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]


def kda(x: Tensor, w: Weights, facts: Mapping[str, Any], now: Schedule) -> Tensor:
    """Kimi delta attention of one token per request, [rows, hidden] to [rows, hidden]; advances both states in place."""
    heads, dim = facts["heads"], facts["kda_dim"]
    d = heads * dim
    rank = facts["forget_rank"]
    result = torch.zeros(x.shape[0], w["o_proj"].shape[0], dtype=F64, device=x.device)
    for row, slot in enumerate(now.slots):
        if slot <= 0:
            continue
        y = w["in_proj"] @ x[row]
        history = torch.vstack((w["conv_state"][slot], y[: 3 * d]))
        w["conv_state"][slot] = history[1:]
        z = silu((w["conv"] * history.T).sum(dim=1))
        q, k, v = (part.reshape(heads, dim) for part in (z[:d], z[d : 2 * d], z[2 * d :]))
        gate = y[3 * d : 4 * d].reshape(heads, dim)
        raw = (w["f_b"] @ y[4 * d : 4 * d + rank] + w["dt_bias"]).reshape(heads, dim)
        beta = torch.sigmoid(y[4 * d + rank : 4 * d + rank + heads])
        q = q / torch.sqrt((q * q).sum(dim=-1, keepdim=True) + facts["eps.kda_l2"]) / dim**0.5
        k = k / torch.sqrt((k * k).sum(dim=-1, keepdim=True) + facts["eps.kda_l2"])
        alpha = torch.exp(facts["gate_lower_bound"] * torch.sigmoid(torch.exp(w["a_log"])[:, None] * raw))
        for head in range(heads):
            memory = w["recurrent_state"][slot, head]
            memory *= alpha[head]
            memory += beta[head] * torch.outer(v[head] - memory @ k[head], k[head])
        o = torch.einsum("hvk,hk->hv", w["recurrent_state"][slot], q)
        o = rms_norm(o, w["o_norm"], facts["eps.kda_norm"]) * torch.sigmoid(gate)
        result[row] = w["o_proj"] @ o.reshape(d)
    return result


def cached_tokens(cache: Tensor, now: Schedule, row: int, interleave: int) -> Tensor:
    """All cached rows of a request in the order of their positions: [length, latent + pe]."""
    tokens = []
    table: list[int] = now.block_table[row].tolist()
    for position in range(now.seq_lens[row]):
        turn, place = divmod(position, interleave)
        local = turn // now.ranks * interleave + place
        page = table[local // now.page]
        tokens.append((turn % now.ranks) * cache.shape[1] * now.page + page * now.page + local % now.page)
    return cache.reshape(-1, cache.shape[-1])[tokens]


def mla(x: Tensor, w: Weights, facts: Mapping[str, Any], now: Schedule) -> Tensor:
    """Latent attention of one token per request, [rows, hidden] to [rows, hidden]; stores the new token in the cache."""
    heads, latent, rank = facts["heads"], facts["kv_lora"], facts["q_lora"]
    cache = w["kv_cache"]
    result = torch.zeros(x.shape[0], w["o_proj"].shape[0], dtype=F64, device=x.device)
    for row, length in enumerate(now.seq_lens):
        if length == 0:
            continue
        y = w["in_proj"] @ x[row]
        q_a, kv, k_pe, gate = torch.split(y, [rank, latent, facts["pe"], heads * facts["v_dim"]])
        for owner in range(now.ranks):
            target = int(now.slot_mapping[owner, row])
            if target >= 0:
                place = cache[owner, target // now.page, target % now.page]
                place[:latent] = rms_norm(kv, w["kv_a_norm"], facts["eps.kv_a_norm"])
                place[latent:] = k_pe
        q = (w["q_b"] @ rms_norm(q_a, w["q_a_norm"], facts["eps.q_a_norm"])).reshape(heads, -1)
        tokens = cached_tokens(cache, now, row, facts["dcp_interleave"])
        content, position = tokens[:, :latent], tokens[:, latent:]
        keys = torch.einsum("tl,hnl->htn", content, w["w_uk"])
        values = torch.einsum("tl,hvl->htv", content, w["w_uv"])
        scores = torch.einsum("hn,htn->ht", q[:, : facts["nope"]], keys) + q[:, facts["nope"] :] @ position.T
        shares = torch.softmax(scores / (facts["nope"] + facts["pe"]) ** 0.5, dim=-1)
        o = torch.einsum("ht,htv->hv", shares, values).reshape(-1) * torch.sigmoid(gate)
        result[row] = w["o_proj"] @ o
    return result


def latent_moe(x: Tensor, ids: Tensor, w: Weights, facts: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Experts ``ids`` [rows, k] and the shared expert: ([rows, hidden], shortfall [rows] of the chosen ids)."""
    scores = torch.sigmoid(x @ w["router"].T)
    ranking = scores + w["router_bias"]
    last_chosen = ranking.sort(dim=-1, descending=True).values[:, ids.shape[1] - 1]
    shortfall = (last_chosen - ranking.gather(1, ids).min(dim=1).values).clamp(min=0)
    beta, linear_beta = facts["situ_beta"], facts["situ_linear_beta"]
    down = x @ w["latent_down"].T
    latent = torch.zeros_like(down)
    for row in range(x.shape[0]):
        picked = scores[row, ids[row]]
        shares = picked * facts["routed_scaling"] / (picked.sum() + facts["eps.renormalise"])
        for share, expert in zip(shares, ids[row].tolist(), strict=True):
            gate, up = (w["w13"][expert] @ down[row]).chunk(2)
            latent[row] += share * (w["w2"][expert] @ situ(gate, up, beta, linear_beta))
    routed = rms_norm(latent, w["latent_norm"], facts["eps.latent_norm"]) @ w["latent_up"].T
    gate, up = (x @ w["shared_gate_up"].T).chunk(2, dim=-1)
    return routed + situ(gate, up, beta, linear_beta) @ w["shared_down"].T, shortfall


def layer_step(
    index: int, kind: str, streams: Streams, ids: Tensor, w: Weights, facts: Mapping[str, Any], now: Schedule
) -> Tensor:
    """One decoder layer: advances the streams and the layer's states, returns the shortfall [rows]."""
    opens = index % facts["block_size"] == 0
    score_eps, norm_eps = facts["eps.residual_score"], facts["eps.layer_norm"]
    streams.prefix = streams.prefix + streams.delta
    mix = residual_mix([*streams.blocks, streams.prefix], w["attn_res.gamma"], w["attn_res.query"], score_eps)
    x = rms_norm(mix, w["input_norm"], norm_eps)
    attention = kda(x, w, facts, now) if kind == "kda" else mla(x, w, facts, now)
    if opens:
        streams.blocks.append(streams.prefix)
        streams.prefix = attention
    else:
        streams.prefix = streams.prefix + attention
    mix = residual_mix([*streams.blocks, streams.prefix], w["mlp_res.gamma"], w["mlp_res.query"], score_eps)
    streams.delta, shortfall = latent_moe(rms_norm(mix, w["post_norm"], norm_eps), ids, w, facts)
    return shortfall


def _check_ids(expert_ids: Tensor, wanted: tuple[int, ...], experts: int) -> Tensor:
    if tuple(expert_ids.shape) != wanted:
        raise ValueError(f"{EXPERT_IDS}: expected shape {wanted}, found {tuple(expert_ids.shape)}")
    if expert_ids.dtype.is_floating_point:
        raise ValueError(f"{EXPERT_IDS}: expected integers, found {expert_ids.dtype}")
    ids = expert_ids.long()
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= experts:
        raise ValueError(f"{EXPERT_IDS}: expected ids in 0..{experts - 1}, found {low if low < 0 else high}")
    ordered = ids.sort(dim=-1).values
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        raise ValueError(f"{EXPERT_IDS}: expected distinct ids in each row, found a repeated one")
    return ids


class KimiOracle:
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
        ids = _check_ids(expert_ids, (steps, problem.layers, shape.rows, facts["top_k"]), facts["experts"])
        specs = problem.tensors(shape)
        wide = {s.name: initial[s.name].to(F64, copy=True) for s in specs if s.role in (Role.WEIGHT, Role.STATE)}
        prefix_in, blocks_in = initial["prefix_in"].to(F64), initial["blocks_in"].to(F64)
        layers = [(index, kind, Weights(wide, f"layers.{index}.")) for index, kind in facts["layers"]]
        out = torch.empty(x.shape, dtype=F64, device=x.device)
        shortfall = torch.empty(ids.shape[:3], dtype=F64, device=x.device)
        for step in range(steps):
            now = _schedule(initial, shape, step)
            streams = Streams(prefix_in, list(blocks_in.unbind(1)), x[step].to(F64))
            for place, (index, kind, weights) in enumerate(layers):
                shortfall[step, place] = layer_step(index, kind, streams, ids[step, place], weights, facts, now)
            sources = [*streams.blocks, streams.prefix + streams.delta]
            mix = residual_mix(sources, wide["final_res.gamma"], wide["final_res.query"], facts["eps.residual_score"])
            out[step] = rms_norm(mix, wide["final_norm"], facts["eps.layer_norm"])
        states = {s.name: wide[s.name] for s in specs if s.role is Role.STATE}
        return Trace(outputs={OUT: out}, states=states, shortfall=shortfall)


def _schedule(initial: Mapping[str, Tensor], shape: Shape, step: int) -> Schedule:
    return Schedule(
        seq_lens=initial["seq_lens"][step].tolist(),
        block_table=initial["block_table"],
        slots=initial["slots"].tolist(),
        slot_mapping=initial["slot_mapping"][step],
        page=shape.page_size,
        ranks=shape.decode_context_parallel,
    )


def oracle() -> KimiOracle:
    """Return the oracle; it holds nothing between runs."""
    return KimiOracle()
