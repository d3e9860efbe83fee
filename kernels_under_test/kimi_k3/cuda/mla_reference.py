"""The MLA attention half in float64 with stock's rounding points (bf16 cache, probabilities not rounded)."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda.mla_sizes import (
    CACHED,
    GATE_AT,
    HEAD_IN,
    KV_AT,
    KV_RANK,
    NOPE,
    PAGE,
    Q_RANK,
    SCALE,
)
from kernels_under_test.kimi_k3.cuda.reference import bf, into_experts, mix, product
from kernels_under_test.kimi_k3.cuda.sizes import HEADS, WIDTH


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm, rounded once."""
    return bf(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight.double())


def rows_of(t: dict[str, Tensor], row: int) -> Tensor:
    """Indices in the cache of a request's tokens, in order."""
    length = int(t["lens"][row])
    token = torch.arange(length, device=t["table"].device)
    return t["table"][row].long()[token // PAGE] * PAGE + token % PAGE


def attend(query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Latents [12, 512] (rounded) and natural log sums [12] of one request: query [12, 576], keys [tokens, 576], float64."""
    score = SCALE * query @ keys.t()
    return bf(torch.softmax(score, dim=1) @ keys[:, :KV_RANK]), torch.logsumexp(score, dim=1)


def merge(latents: Tensor, logs: Tensor) -> Tensor:
    """Parts of ranks, latents [ranks, ..., 512] and natural log sums [ranks, ...], rounded once; invalid parts count nothing, all
    invalid gives zero."""
    valid = torch.isfinite(logs)
    logs = torch.where(valid, logs, -torch.inf)
    top = logs.max(0).values
    share = torch.where(valid, torch.exp(logs - torch.where(torch.isfinite(top), top, 0.0)), 0.0)
    total = share.sum(0)
    value = (share[..., None] * torch.where(valid[..., None], latents, 0.0)).sum(0)
    return bf(value / torch.where(total > 0, total, 1.0)[..., None])


def mla_before_experts(w: dict[str, Tensor], t: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything up to the experts' input, and the new rows of the cache ("new", [rows, 576]). The cache is not changed."""
    prefix = bf(t["prefix"].double() + t["delta"].double())
    y = bf(product(mix(prefix, t["blocks"], w, "pre"), w["in_proj"]))
    rows = y.shape[0]
    latent = norm(y[:, KV_AT : KV_AT + KV_RANK], w["kv_norm"])
    new = torch.cat((latent, y[:, KV_AT + KV_RANK : KV_AT + CACHED]), dim=1)
    up = bf(product(norm(y[:, :Q_RANK], w["q_norm"]), w["q_b"])).view(rows, HEADS, HEAD_IN)
    kv_b = w["kv_b"].double()
    query = torch.cat((bf(torch.einsum("mhd,hdl->mhl", up[..., :NOPE], kv_b[:, :NOPE])), up[..., NOPE:]), dim=2)
    latents = torch.zeros(rows, HEADS, KV_RANK, dtype=torch.float64, device=y.device)
    logs = torch.full((rows, HEADS), -torch.inf, dtype=torch.float64, device=y.device)
    for row in range(rows):
        if int(t["lens"][row]):
            keys = t["cache"][rows_of(t, row)].double()
            keys[-1] = new[row]
            latents[row], logs[row] = attend(query[row], keys)
    core = gated(w, y, latents, t["lens"] > 0)
    return into_experts(w, t, prefix, core) | {
        "y": y,
        "new": new,
        "query": query,
        "latents": latents,
        "logs": logs,
        "before": prefix,
    }


def gated(w: dict[str, Tensor], y: Tensor, latents: Tensor, live: Tensor) -> Tensor:
    """Values and their gate, [rows, 1536]; zero where a row is not live."""
    value = bf(torch.einsum("mhl,hvl->mhv", latents, w["kv_b"].double()[:, NOPE:])).reshape(-1, WIDTH)
    return torch.where(live[:, None], bf(value * torch.sigmoid(y[:, GATE_AT:])), 0.0)
