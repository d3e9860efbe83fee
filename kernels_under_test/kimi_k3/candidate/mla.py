"""MLA layers: projection (P1), query and cache insert (A1), attention over the pages (A2), value and gate (A3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .residual import Site
from .rows import Rows

FP8_MOST = 448.0
"""Largest number of E4M3."""


class Mla:
    """Latent attention for one token per request over a paged cache; ``unit`` is what a stored 1 stands for in an FP8 one.

    q_b, the absorbed W_UK, the query norm's weight and the softmax scale are one packed matrix. Every shard of decode context
    parallelism is attended apart and merged by its log-sum-exp. Padded rows give zero.
    """

    def __init__(
        self, facts: Mapping[str, Any], w: Mapping[str, Tensor], packed: Mapping[str, Tensor], rows: Rows, before: Site
    ) -> None:
        self._unit: float | None = facts["k_scale"] if w["kv_cache"].element_size() == 1 else None
        self._w, self._p, self._rows, self._before = w, packed, rows, before
        self._heads, self._rank, self._latent = facts["heads"], facts["q_lora"], facts["kv_lora"]
        self._row: int = facts["kv_lora"] + facts["pe"]
        self._q_eps: float = facts["eps.q_a_norm"]
        self._kv_eps: float = facts["eps.kv_a_norm"]
        q_b = w["q_b"].float().view(self._heads, -1, self._rank)
        absorbed = torch.bmm(w["w_uk"].float().transpose(1, 2), q_b[:, : facts["nope"]])
        both = torch.cat((absorbed, q_b[:, facts["nope"] :]), dim=1) * (facts["nope"] + facts["pe"]) ** -0.5
        packed["query"].copy_(both.flatten(0, 1) * w["q_a_norm"].float())
        packed["kv_a_norm"].copy_(w["kv_a_norm"])
        packed["value"].copy_(w["w_uv"].transpose(1, 2))
        self._positions = torch.arange(rows.tensors["block_table"].shape[1] * rows.page)
        self.partial = torch.empty(0)

    def stages(self) -> list[tuple[str, Callable[[], None]]]:
        """Names and functions, in order."""
        return [("P1", self.project), ("A1", self.query), ("A2", self.attend), ("A3", self.value)]

    def project(self) -> None:
        """q_a | kv | k_pe | gate of all rows, bf16."""
        self._y = functional.linear(self._before.x.to(torch.bfloat16), self._w["in_proj"])

    def query(self) -> None:
        """Query rows [rows, heads, latent + pe] fp32, softmax scale included; the new token goes into the cache."""
        y = self._y[:, : self._rank + self._row].float()
        normed = functional.rms_norm(y[:, : self._rank], (self._rank,), None, self._q_eps)
        self._q = functional.linear(normed, self._p["query"]).view(-1, self._heads, self._row)
        token, latent = y[:, self._rank :], self._latent
        token[:, :latent] = functional.rms_norm(token[:, :latent], (latent,), self._p["kv_a_norm"], self._kv_eps)
        cache, page = self._w["kv_cache"], self._rows.page
        if self._unit is not None:
            token.mul_(1.0 / self._unit).clamp_(-FP8_MOST, FP8_MOST)
        for rank, row, slot in self._rows.cache_slots:
            cache[rank, slot // page, slot % page].copy_(token[row])

    def _read(self, rank: int, table: Tensor, count: int) -> Tensor:
        """The tokens of ``count`` requests in a shard's pages: [count, tokens, latent + pe] fp32."""
        cache = self._w["kv_cache"][rank]
        if self._unit is None:
            return cache.index_select(0, table).view(count, -1, self._row).float()
        held = cache.view(torch.uint8).index_select(0, table).view(cache.dtype)
        return held.view(count, -1, self._row).float().mul_(self._unit)

    def attend(self) -> None:
        """Latent results [rows, heads, latent] fp32. Cache rows behind a length are cleared, since they may hold anything."""
        rows = self._rows
        pages = max(-(-rows.longest // rows.page), 1)
        table = rows.tensors["block_table"][:, :pages].flatten()
        parts, tops = [], []
        for rank in range(rows.ranks):
            lengths = rows.tensors["local_lens"][rank].view(-1, 1)
            behind = (self._positions[: pages * rows.page] >= lengths).unsqueeze(-1)
            tokens = self._read(rank, table, rows.count).masked_fill_(behind, 0)
            scores = torch.bmm(self._q, tokens.transpose(1, 2)).masked_fill_(behind.transpose(1, 2), -1e30)
            if rows.ranks == 1:
                # A row without tokens mixes cleared rows: exactly zero.
                self._o = torch.bmm(torch.softmax(scores, dim=-1), tokens[..., : self._latent])
                return
            tops.append(torch.logsumexp(scores, dim=-1))
            parts.append(torch.bmm(torch.softmax(scores, dim=-1), tokens[..., : self._latent]))
        shares = torch.softmax(torch.stack(tops), dim=0)
        self._o = (torch.stack(parts) * shares.unsqueeze(-1)).sum(0)

    def value(self) -> None:
        """Values of all heads times the output gate."""
        values = torch.bmm(self._o.transpose(0, 1), self._p["value"]).transpose(0, 1).flatten(1)
        self._p["attention"].copy_(values.mul_(torch.sigmoid(self._y[:, self._rank + self._row :].float())))

    def o_proj(self) -> None:
        """Output projection, [rows, hidden] bf16."""
        self.partial = functional.linear(self._p["attention"], self._w["o_proj"])
