"""Requests that verify draft tokens: up to 8 query tokens, of which the next step keeps some. Same stages, other insides.

A request has one state slot for each token of a step; it starts from that of the last token that it kept. The queries of one request
share its cached tokens, so attention reads them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .kda import Kda
from .mla import Mla
from .rows import Rows


class VerifyRows(Rows):
    """The requests of the current step: ``slots`` [live, 1 + drafts], ``start`` and ``kept`` [live]; ``live`` are rows."""

    def __init__(self, shape: Any, tensors: Mapping[str, Tensor], interleave: int) -> None:
        super().__init__(shape, tensors)
        self.query_tokens: int = shape.query_tokens
        self.requests: int = shape.rows // shape.query_tokens
        self._interleave = interleave
        self._tokens = torch.arange(self.query_tokens)
        self.start = self.kept = self.slots

    def read(self) -> None:
        """Read slots, accepted tokens, lengths and mappings; ``live`` is None where every request is live."""
        slots, kept = self.tensors["slots"].long(), self.tensors["num_accepted"].long()
        start = slots.gather(1, kept.unsqueeze(1) - 1).squeeze(1)
        live = (start > 0).nonzero().squeeze(1)
        whole = live.numel() == self.requests
        self.live = None if whole else (live.unsqueeze(1) * self.query_tokens + self._tokens).flatten()
        self.slots, self.start, self.kept = slots[live], start[live], kept[live]
        self.longest = int(self.tensors["local_lens"].max())
        mapping: list[list[int]] = self.tensors["slot_mapping"].tolist()
        self.cache_slots = [
            (rank, row, slot) for rank, ranked in enumerate(mapping) for row, slot in enumerate(ranked) if slot >= 0
        ]

    def seen(self, rank: int) -> Tensor:
        """[requests, query tokens]: how many of a rank's tokens each query sees, by global positions."""
        ends = self.tensors["seq_lens"].view(-1, 1) + (self._tokens + (1 - self.query_tokens))
        if self.ranks == 1:
            return ends.clamp_(min=0)
        turn = self._interleave * self.ranks
        ends.clamp_(min=0)
        return ends // turn * self._interleave + (ends % turn - rank * self._interleave).clamp_(0, self._interleave)


class VerifyKda(Kda):
    """Kimi delta attention for several tokens per request, one after the other over the state."""

    def core(self) -> None:
        """Forget gate, convolution, recurrence and gated norm of the live requests."""
        rows, y = self._rows, self._y
        assert isinstance(rows, VerifyRows)
        if rows.live is not None:
            self._p["attention"].zero_()
            y = y.index_select(0, rows.live)
        if y.shape[0] == 0:
            return
        count, tokens, heads, dim = rows.start.shape[0], rows.query_tokens, self._heads, self._dim
        d = heads * dim
        z = self._convolved(y[:, : 3 * d].reshape(count, tokens, -1), rows)
        small = y[:, 3 * d : 4 * d + self._rank + heads].float()
        gates = torch.sigmoid(small)
        raw = torch.addmm(self._p["dt_bias"], small[:, d : d + self._rank], self._p["f_b"])
        decay = raw.sigmoid_().mul_(self._bound).exp_().view(count, tokens, heads, 1, dim)
        beta = gates[:, d + self._rank :].reshape(count, tokens, heads, 1, 1)
        qk = z[..., : 2 * d].reshape(count, tokens, 2, heads, dim)
        qk = qk * (qk * qk).sum(-1, keepdim=True).add_(self._l2).rsqrt_()
        v = z[..., 2 * d :].reshape(count, tokens, heads, dim)
        memory = self._w["recurrent_state"]
        state = memory.index_select(0, rows.start)
        o = torch.empty(count, tokens, heads, dim)
        for token in range(tokens):
            q, k = qk[:, token, 0].reshape(-1, dim, 1), qk[:, token, 1].reshape(-1, dim, 1)
            flat = state.mul_(decay[:, token]).view(-1, dim, dim)
            error = torch.baddbmm(v[:, token].reshape(-1, dim, 1), flat, k, alpha=-1)
            flat.baddbmm_(error.mul_(beta[:, token].reshape(-1, 1, 1)), k.transpose(1, 2))
            o[:, token] = torch.bmm(flat, q).view(count, heads, dim)
            self._store(memory, rows.slots[:, token], state)
        o = functional.rms_norm(o, (dim,), self._p["o_norm"], self._eps).view(-1, d).mul_(gates[:, :d])
        if rows.live is None:
            self._p["attention"].copy_(o)
        else:
            self._p["attention"].index_copy_(0, rows.live, o.to(torch.bfloat16))

    @staticmethod
    def _store(memory: Tensor, slots: Tensor, state: Tensor) -> None:
        """Write each request's state into its slot; a null slot is not written."""
        here = (slots > 0).nonzero().squeeze(1)
        if here.numel() == slots.numel():
            memory.index_copy_(0, slots, state)
        elif here.numel():
            memory.index_copy_(0, slots[here], state[here])

    def _convolved(self, qkv: Tensor, rows: VerifyRows) -> Tensor:
        """Convolution and SiLU of [live, tokens, 3d], fp32; rewrites the first columns of the convolution state."""
        width, state, first = self._p["conv"].shape[0], self._w["conv_state"], rows.slots[:, :1]
        held = state[first, rows.kept.unsqueeze(1) - 1 + torch.arange(width - 1)]
        inputs = torch.cat((held, qkv), dim=1)
        state[first, torch.arange(inputs.shape[1] - 1)] = inputs[:, 1:]
        taps = inputs.float()
        z = taps[:, : qkv.shape[1]] * self._p["conv"][0]
        for tap in range(1, width):
            z += taps[:, tap : tap + qkv.shape[1]] * self._p["conv"][tap]
        return functional.silu(z, inplace=True)


class VerifyMla(Mla):
    """Latent attention for several tokens per request, causal within the step."""

    def attend(self) -> None:
        """Latent results [rows, heads, latent] fp32. A row may see nothing on a rank where its request has tokens."""
        rows = self._rows
        assert isinstance(rows, VerifyRows)
        count, tokens = rows.requests, rows.query_tokens
        pages = max(-(-rows.longest // rows.page), 1)
        table = rows.tensors["block_table"][:, :pages].flatten()
        places = self._positions[: pages * rows.page]
        query = self._q.view(count, tokens * self._heads, self._row)
        parts, tops = [], []
        for rank in range(rows.ranks):
            seen = rows.seen(rank)
            unused = (places >= seen[:, -1:]).unsqueeze(-1)
            held = self._read(rank, table, count).masked_fill_(unused, 0)
            behind = (places >= seen.unsqueeze(-1)).repeat_interleave(self._heads, dim=1)
            scores = torch.bmm(query, held.transpose(1, 2)).masked_fill_(behind, -1e30)
            tops.append(torch.logsumexp(scores, dim=-1))
            parts.append(torch.bmm(torch.softmax(scores, dim=-1), held[..., : self._latent]))
        shares = torch.softmax(torch.stack(tops), dim=0)
        mixed = (torch.stack(parts) * shares.unsqueeze(-1)).sum(0)
        self._o = mixed.view(count * tokens, self._heads, self._latent)
