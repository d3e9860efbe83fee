"""The layer in float64 with stock's rounding points (SM90 contract, fp32 core), for comparison on a device."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda import mxfp4
from kernels_under_test.kimi_k3.cuda.sizes import (
    B_COLUMN,
    DIM,
    HEADS,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    RANK,
    SHARED,
    TOP_K,
    WIDTH,
)
from kernels_under_test.kimi_k3.cuda.tensors import Weights


def bf(value: Tensor) -> Tensor:
    """Rounded to bf16, kept in float64."""
    return value.to(torch.bfloat16).double()


def product(x: Tensor, w: Tensor) -> Tensor:
    """x W^T in float64."""
    return x.double() @ w.double().t()


def situ(gate: Tensor, up: Tensor) -> Tensor:
    """The expert activation."""
    return 4 * torch.tanh(gate / 4) * torch.sigmoid(gate) * 25 * torch.tanh(up / 25)


def mix(prefix: Tensor, blocks: Tensor, w: dict[str, Tensor], call: str) -> Tensor:
    """Attention residual of the blocks and the prefix, with its norm."""
    source = torch.cat((blocks.double(), prefix[:, None]), dim=1)
    logit = source @ (w[f"{call}_gamma"].double() * w[f"{call}_query"].double())
    logit = logit * torch.rsqrt((source * source).mean(-1) + 1e-5)
    mixed = (torch.softmax(logit, dim=1)[..., None] * source).sum(1)
    return bf(mixed * torch.rsqrt((mixed * mixed).mean(-1, keepdim=True) + 1e-5) * w[f"{call}_norm"].double())


def before_experts(w: dict[str, Tensor], t: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything up to the input of the experts: x, prefix, states, full logits and latents."""
    rows = t["delta"].shape[0]
    prefix = bf(t["prefix"].double() + t["delta"].double())
    x = mix(prefix, t["blocks"], w, "pre")
    y = bf(product(x, w["in_proj"]))
    raw = bf(product(y[:, 4 * WIDTH : 4 * WIDTH + RANK], w["f_b"])).view(rows, HEADS, DIM)
    live = t["slots"] > 0
    slot = t["slots"].long()
    old = t["conv_state"][slot].double()
    taps = torch.cat((old, y[:, None, : 3 * WIDTH]), dim=1)
    z = (taps * w["conv"].double().permute(1, 0, 2).reshape(4, 3 * WIDTH)).sum(1)
    q, k, v = (z * torch.sigmoid(z)).view(rows, 3, HEADS, DIM).unbind(1)
    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * DIM**-0.5
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    alpha = torch.exp(
        -5 * torch.sigmoid(torch.exp(w["a_log"].double())[:, None] * (raw + w["dt_bias"].double().view(HEADS, DIM)))
    )
    beta = torch.sigmoid(y[:, B_COLUMN : B_COLUMN + HEADS])
    state = t["state"][slot].double() * alpha[:, :, None, :]
    e = v - torch.einsum("bhvk,bhk->bhv", state, k)
    state = state + (beta[..., None] * e)[..., None] * k[:, :, None, :]
    o = torch.einsum("bhvk,bhk->bhv", state, q)
    gate = torch.sigmoid(y[:, 3 * WIDTH : 4 * WIDTH]).view(rows, HEADS, DIM)
    o = bf(o * torch.rsqrt((o * o).mean(-1, keepdim=True) + 1e-5) * w["o_norm"].double() * gate).reshape(rows, WIDTH)
    o = torch.where(live[:, None], o, 0.0)
    return into_experts(w, t, prefix, o) | {"y": y, "state": state[live], "conv_state": taps[live, 1:]}


def into_experts(w: dict[str, Tensor], t: dict[str, Tensor], prefix: Tensor, core: Tensor) -> dict[str, Tensor]:
    """From the attention's output [rows, 1536] to the experts' input: prefix, x, full logits and latents."""
    a = bf(bf(product(core, w["o_proj"])) + t["peers_o"].double().sum(0))
    prefix = bf(prefix + a)
    x = mix(prefix, t["blocks"], w, "post")
    return {
        "prefix": prefix, "x": x, "core": core, "logits": product(x, w["router"]), "z": bf(product(x, w["latent_down"])),
    }  # fmt: skip


def after_routing(weights: Weights, t: dict[str, Tensor], r: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Experts (pinned to ``ids``), shared expert and tail; returns this rank's columns of the output, [rows, 896]."""
    w = weights.dense
    rows = ids.shape[0]
    score = torch.sigmoid(r["logits"].gather(1, ids.long()))
    share = bf(score / (score.sum(1, keepdim=True) + 1e-20))
    latent = torch.zeros(rows, LATENT, dtype=torch.float64, device=ids.device)
    for expert in sorted(set(ids.flatten().tolist())):
        where = (ids == expert).nonzero()
        z = r["z"][where[:, 0]]
        w13 = mxfp4.values(weights.codes["in_codes"][expert], weights.codes["in_scales"][expert])
        w2 = mxfp4.values(weights.codes["out_codes"][expert], weights.codes["out_scales"][expert])
        both = bf(product(z, w13))
        out = bf(product(bf(situ(both[:, :INTER], both[:, INTER:])), w2))
        latent.index_add_(0, where[:, 0], share[where[:, 0], where[:, 1]][:, None] * out)
    latent = bf(bf(latent) + t["peers_latent"].double().sum(0))
    n = bf(latent * torch.rsqrt(bf(latent * latent).sum(-1, keepdim=True) / LATENT + 1e-5) * w["latent_norm"].double())
    both = bf(product(r["x"], w["gate_up"]))
    shared = bf(product(bf(situ(both[:, :SHARED], both[:, SHARED:])), w["shared_down"]))[:, :OUT_SHARD]
    shared = bf(shared + t["peers_shared"].double().sum(0))
    return bf(bf(product(n, w["latent_up"])) + shared)


def shortfall(r: dict[str, Tensor], bias: Tensor, ids: Tensor) -> float:
    """How far the worst chosen expert lies below the reference's 16th score."""
    score = torch.sigmoid(r["logits"]) + bias.double()
    last = score.topk(TOP_K, dim=1).values[:, -1]
    return float((last[:, None] - score.gather(1, ids.long())).max().clamp(min=0))


assert HIDDEN == 8 * OUT_SHARD
