"""The oracle: Kimi K3 decode layers in float64, with nothing rounded, following one run of an arm.

Written straight from the definitions, for reading and not for speed, and in other forms than the implementations where there is
a choice: attention forms every head's keys and values from the cached latents and reads all tokens in order whatever rank
they lie on (the implementations absorb the projections and merge shards); experts are visited one row at a time; the tokens of a
verify step pass one after the other. With several ranks of tensor parallelism each makes its part from its own shard, and the
parts are added up. FP8 and MXFP4 are storage here: what is stored at the start counts as it is, new values are not rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.contract import EXPERT_IDS, OUT, Problem, Role, Shape, Trace
from kernels_under_test.kimi_k3.parts import SHARDED, part_of

F64 = torch.float64
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the three lower bits of a code; the fourth is the sign."""


def silu(z: Tensor) -> Tensor:
    """z sigmoid(z)."""
    return z * torch.sigmoid(z)


def rms_norm(value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """value / sqrt(mean value^2 + eps) x weight, over the last axis."""
    return value / torch.sqrt((value * value).mean(dim=-1, keepdim=True) + eps) * weight


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float) -> Tensor:
    """The expert activation beta tanh(g / beta) sigmoid(g) x linear_beta tanh(u / linear_beta)."""
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)


def mxfp4(codes: Tensor, scales: Tensor) -> Tensor:
    """Values of packed codes [..., K / 2] (two a byte, even k in the low half) and E8M0 scales [..., K / 32]: [..., K] float64."""
    pairs = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2).long()
    grid = torch.tensor((*E2M1, *(-v for v in E2M1)), dtype=F64, device=codes.device)
    return grid[pairs] * torch.exp2(scales.to(F64) - 127).repeat_interleave(32, dim=-1)


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
    """What serving prepared for one step: lengths [requests], the block table, state slots [requests][1 + drafts] and cache slots
    [ranks, rows]; of each request's last step, ``accepted`` tokens were kept. Every request has ``query_tokens`` rows."""

    seq_lens: list[int]
    block_table: Tensor
    slots: list[list[int]]
    slot_mapping: Tensor
    page: int
    ranks: int
    query_tokens: int = 1
    accepted: list[int] = field(default_factory=list)
    cache_unit: float = 1.0
    """What a stored 1 stands for in the cache."""
    shards: int = 1
    """Ranks of tensor parallelism."""

    def kept(self, request: int) -> int:
        """How many tokens of its last step a request kept; 1 where nothing is said."""
        return self.accepted[request] if self.accepted else 1


class Weights:
    """Float64 tensors of a layer by the rest of their names; :meth:`of_ranks` gives each rank's own."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str) -> None:
        self._tensors = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def of_ranks(self, ranks: int) -> list[Weights]:
        """One view for each rank of tensor parallelism, over the same memory."""
        if ranks == 1:
            return [self]
        return [
            Weights({n: t[rank] if part_of(n) in SHARDED else t for n, t in self._tensors.items()}, "")
            for rank in range(ranks)
        ]


def kda(x: Tensor, w: Weights, facts: Mapping[str, Any], now: Schedule) -> Tensor:
    """Kimi delta attention, [rows, hidden] to [rows, hidden] (one rank's part of it); advances both states in place.

    A request starts from the state that its last accepted token left, and each token leaves its own in the token's slot.
    """
    heads, dim, rank, q_tokens = w["a_log"].shape[0], facts["kda_dim"], facts["forget_rank"], now.query_tokens
    d = heads * dim
    result = torch.zeros(x.shape[0], w["o_proj"].shape[0], dtype=F64, device=x.device)
    for request, slots in enumerate(now.slots):
        kept = now.kept(request)
        if slots[kept - 1] <= 0:
            continue
        memory = w["recurrent_state"][slots[kept - 1]].clone()
        history = w["conv_state"][slots[0], kept - 1 : kept - 2 + facts["conv_width"]]
        for token in range(q_tokens):
            row = request * q_tokens + token
            y = w["in_proj"] @ x[row]
            history = torch.vstack((history, y[: 3 * d]))
            z = silu((w["conv"] * history[-facts["conv_width"] :].T).sum(dim=1))
            q, k, v = (part.reshape(heads, dim) for part in (z[:d], z[d : 2 * d], z[2 * d :]))
            gate = y[3 * d : 4 * d].reshape(heads, dim)
            raw = (w["f_b"] @ y[4 * d : 4 * d + rank] + w["dt_bias"]).reshape(heads, dim)
            beta = torch.sigmoid(y[4 * d + rank : 4 * d + rank + heads])
            q = q / torch.sqrt((q * q).sum(dim=-1, keepdim=True) + facts["eps.kda_l2"]) / dim**0.5
            k = k / torch.sqrt((k * k).sum(dim=-1, keepdim=True) + facts["eps.kda_l2"])
            alpha = torch.exp(facts["gate_lower_bound"] * torch.sigmoid(torch.exp(w["a_log"])[:, None] * raw))
            for head in range(heads):
                memory[head] *= alpha[head]
                memory[head] += beta[head] * torch.outer(v[head] - memory[head] @ k[head], k[head])
            o = torch.einsum("hvk,hk->hv", memory, q)
            o = rms_norm(o, w["o_norm"], facts["eps.kda_norm"]) * torch.sigmoid(gate)
            result[row] = w["o_proj"] @ o.reshape(d)
            if slots[token] > 0:
                w["recurrent_state"][slots[token]] = memory
        w["conv_state"][slots[0], : history.shape[0] - 1] = history[1:]
    return result


def cached_tokens(cache: Tensor, now: Schedule, request: int, length: int, interleave: int) -> Tensor:
    """The first ``length`` cached rows of a request in the order of their positions: [length, latent + pe]."""
    tokens = []
    table: list[int] = now.block_table[request].tolist()
    for position in range(length):
        turn, place = divmod(position, interleave)
        local = turn // now.ranks * interleave + place
        page = table[local // now.page]
        tokens.append((turn % now.ranks) * cache.shape[1] * now.page + page * now.page + local % now.page)
    return cache.reshape(-1, cache.shape[-1])[tokens] * now.cache_unit


def mla(x: Tensor, w: Weights, facts: Mapping[str, Any], now: Schedule) -> Tensor:
    """Latent attention, [rows, hidden] to [rows, hidden] (one rank's part of it); stores the new tokens in the cache.

    A token sees those before it and itself: of the rows of one request, each sees one more.
    """
    latent, rank, q_tokens = facts["kv_lora"], facts["q_lora"], now.query_tokens
    heads = w["w_uk"].shape[0]
    cache = w["kv_cache"]
    result = torch.zeros(x.shape[0], w["o_proj"].shape[0], dtype=F64, device=x.device)
    for row in range(x.shape[0]):
        request, token = divmod(row, q_tokens)
        length = now.seq_lens[request] - q_tokens + token + 1
        if now.seq_lens[request] == 0:
            continue
        y = w["in_proj"] @ x[row]
        q_a, kv, k_pe, gate = torch.split(y, [rank, latent, facts["pe"], heads * facts["v_dim"]])
        for owner in range(now.ranks):
            target = int(now.slot_mapping[owner, row])
            if target >= 0:
                place = cache[owner, target // now.page, target % now.page]
                place[:latent] = rms_norm(kv, w["kv_a_norm"], facts["eps.kv_a_norm"]) / now.cache_unit
                place[latent:] = k_pe / now.cache_unit
        q = (w["q_b"] @ rms_norm(q_a, w["q_a_norm"], facts["eps.q_a_norm"])).reshape(heads, -1)
        tokens = cached_tokens(cache, now, request, length, facts["dcp_interleave"])
        content, position = tokens[:, :latent], tokens[:, latent:]
        keys = torch.einsum("tl,hnl->htn", content, w["w_uk"])
        values = torch.einsum("tl,hvl->htv", content, w["w_uv"])
        scores = torch.einsum("hn,htn->ht", q[:, : facts["nope"]], keys) + q[:, facts["nope"] :] @ position.T
        shares = torch.softmax(scores / (facts["nope"] + facts["pe"]) ** 0.5, dim=-1)
        o = torch.einsum("ht,htv->hv", shares, values).reshape(-1) * torch.sigmoid(gate)
        result[row] = w["o_proj"] @ o
    return result


def mlp(x: Tensor, gate_up: Tensor, down: Tensor, facts: Mapping[str, Any]) -> Tensor:
    """A feed-forward with the expert activation: the shared expert's and that of layer 0, [rows, hidden] to [rows, hidden]."""
    gate, up = (x @ gate_up.T).chunk(2, dim=-1)
    return situ(gate, up, facts["situ_beta"], facts["situ_linear_beta"]) @ down.T


def dense(x: Tensor, ranks: list[Weights], facts: Mapping[str, Any]) -> Tensor:
    """The feed-forward of layer 0, [rows, hidden] to [rows, hidden]: the sum of every rank's part."""
    total = torch.zeros_like(x)
    for w in ranks:
        total += mlp(x, w["dense_gate_up"], w["dense_down"], facts)
    return total


def latent_moe(
    x: Tensor, ids: Tensor, w: Weights, facts: Mapping[str, Any], ranks: list[Weights] | None = None
) -> tuple[Tensor, Tensor]:
    """Experts ``ids`` [rows, k] and the shared expert: ([rows, hidden], shortfall [rows] of the chosen ids).

    Routing and the latent's projections are the same on every rank; experts and the shared expert are sums over ``ranks``.
    """
    scores = torch.sigmoid(x @ w["router"].T)
    ranking = scores + w["router_bias"]
    last_chosen = ranking.sort(dim=-1, descending=True).values[:, ids.shape[1] - 1]
    shortfall = (last_chosen - ranking.gather(1, ids).min(dim=1).values).clamp(min=0)
    down = x @ w["latent_down"].T
    latent, shared = torch.zeros_like(down), torch.zeros_like(x)
    for own in ranks or [w]:
        for row in range(x.shape[0]):
            picked = scores[row, ids[row]]
            shares = picked * facts["routed_scaling"] / (picked.sum() + facts["eps.renormalise"])
            for share, expert in zip(shares, ids[row].tolist(), strict=True):
                latent[row] += share * mlp(down[row], own["w13"][expert], own["w2"][expert], facts)
        shared += mlp(x, own["shared_gate_up"], own["shared_down"], facts)
    routed = rms_norm(latent, w["latent_norm"], facts["eps.latent_norm"]) @ w["latent_up"].T
    return routed + shared, shortfall


def layer_step(
    index: int, kind: str, streams: Streams, ids: Tensor | None, w: Weights, facts: Mapping[str, Any], now: Schedule
) -> Tensor | None:
    """One decoder layer: advances the streams and the layer's states, returns the shortfall [rows]; None in a dense layer."""
    opens = index % facts["block_size"] == 0
    score_eps, norm_eps = facts["eps.residual_score"], facts["eps.layer_norm"]
    ranks = w.of_ranks(now.shards)
    streams.prefix = streams.prefix + streams.delta
    mix = residual_mix([*streams.blocks, streams.prefix], w["attn_res.gamma"], w["attn_res.query"], score_eps)
    x = rms_norm(mix, w["input_norm"], norm_eps)
    attention = torch.zeros_like(x)
    for own in ranks:
        attention += kda(x, own, facts, now) if kind == "kda" else mla(x, own, facts, now)
    if opens:
        streams.blocks.append(streams.prefix)
        streams.prefix = attention
    else:
        streams.prefix = streams.prefix + attention
    mix = residual_mix([*streams.blocks, streams.prefix], w["mlp_res.gamma"], w["mlp_res.query"], score_eps)
    x = rms_norm(mix, w["post_norm"], norm_eps)
    if ids is None:
        streams.delta = dense(x, ranks, facts)
        return None
    streams.delta, shortfall = latent_moe(x, ids, w, facts, ranks)
    return shortfall


def check_ids(expert_ids: Tensor, wanted: tuple[int, ...], experts: int) -> Tensor:
    """Return expert ids as int64.

    Raises:
        ValueError: for another shape, no integers, an id out of range, or one that a row holds twice.
    """
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
        """Run the layers in float64 over ``x`` [steps, rows, hidden], experts pinned to ``expert_ids`` [steps, layers, rows, k],
        where only layers with experts count.

        Raises:
            ValueError: if an id is out of range or repeated within a row, a shape does not fit, or the problem is one rank alone.
        """
        facts, steps = problem.facts, x.shape[0]
        if facts["communication"] != "simulated":
            raise ValueError(
                f"expected a problem with all ranks simulated, found communication {facts['communication']}"
            )
        if tuple(x.shape[1:]) != (shape.rows, facts["hidden"]):
            raise ValueError(f"x: expected [steps, {shape.rows}, {facts['hidden']}], found {tuple(x.shape)}")
        sparse = [index for index, _ in facts["layers"] if index not in facts["dense_layers"]]
        ids = check_ids(expert_ids, (steps, len(sparse), shape.rows, facts["top_k"]), facts["experts"])
        specs = problem.tensors(shape)
        wide = _widened({s.name: initial[s.name] for s in specs if s.role in (Role.WEIGHT, Role.STATE)})
        layers = [(index, kind, Weights(wide, f"layers.{index}.")) for index, kind in facts["layers"]]
        out = torch.empty(x.shape, dtype=F64, device=x.device)
        shortfall = torch.empty(ids.shape[:3], dtype=F64, device=x.device)
        for step in range(steps):
            now = _schedule(initial, shape, step, facts)
            streams = _entry(initial, x[step].to(F64))
            for index, kind, weights in layers:
                place = sparse.index(index) if index in sparse else None
                mine = None if place is None else ids[step, place]
                missed = layer_step(index, kind, streams, mine, weights, facts, now)
                if missed is not None:
                    shortfall[step, place] = missed
            sources = [*streams.blocks, streams.prefix + streams.delta]
            mix = residual_mix(sources, wide["final_res.gamma"], wide["final_res.query"], facts["eps.residual_score"])
            out[step] = rms_norm(mix, wide["final_norm"], facts["eps.layer_norm"])
        states = {s.name: wide[s.name] for s in specs if s.role is Role.STATE}
        return Trace(outputs={OUT: out}, states=states, shortfall=shortfall)


def _widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Float64 copies; packed experts become their values, under the name that plain ones have."""
    wide: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("_scale"):
            continue
        packed = f"{name}_scale" in tensors
        wide[name] = mxfp4(tensor, tensors[f"{name}_scale"]) if packed else tensor.to(F64, copy=True)
    return wide


def _entry(initial: Mapping[str, Tensor], x: Tensor) -> Streams:
    """The streams that enter the window: at layer 0 the embedding ``x`` alone, else what earlier layers left."""
    if "prefix_in" not in initial:
        return Streams(x, [], torch.zeros_like(x))
    return Streams(initial["prefix_in"].to(F64), list(initial["blocks_in"].to(F64).unbind(1)), x)


def _schedule(initial: Mapping[str, Tensor], shape: Shape, step: int, facts: Mapping[str, Any]) -> Schedule:
    cache = dict(shape.dtypes).get("kv_cache", facts["dtype.kv_cache"])
    return Schedule(
        seq_lens=initial["seq_lens"][step].tolist(),
        block_table=initial["block_table"],
        slots=initial["slots"].reshape(shape.requests, -1).tolist(),
        slot_mapping=initial["slot_mapping"][step],
        page=shape.page_size,
        ranks=shape.decode_context_parallel,
        query_tokens=shape.query_tokens,
        accepted=initial["num_accepted"][step].tolist() if "num_accepted" in initial else [],
        cache_unit=facts["k_scale"] if cache == "fp8_e4m3" else 1.0,
        shards=shape.tensor_parallel,
    )


def oracle() -> KimiOracle:
    """Return the oracle; it holds nothing between runs."""
    return KimiOracle()
