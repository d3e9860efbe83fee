"""The candidate's MLA layer: 14 launches at one or two rows, 15 above."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda.cute import mla_tactics
from kernels_under_test.kimi_k3.cuda.cute.layer import Candidate
from kernels_under_test.kimi_k3.cuda.cute.tactics import SMS
from kernels_under_test.kimi_k3.cuda.kernel_lists import mla_candidate
from kernels_under_test.kimi_k3.cuda.mla_sizes import CACHED, KV_RANK, MLA_PROJECTION, Q_RANK, QUERY
from kernels_under_test.kimi_k3.cuda.sizes import HEADS


class CandidateMla(Candidate):
    """One MLA layer of one rank; inputs as ``mla_tensors.draw_mla_inputs`` makes them."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The launches in order."""
        return mla_candidate(self.m)

    def variant(self, kernel: str) -> int | str:
        """The variant of a kernel that is launched."""
        if kernel in mla_tactics.KERNELS:
            return self.choice.get(kernel, mla_tactics.chosen(kernel, self.m))
        return super().variant(kernel)

    def attention(self) -> dict[str, list[Tensor]]:
        """Arguments of the attention half's own kernels; its buffers join the scratch."""
        w, t, m, new = self.w, self.t, self.m, self.new
        y, latent, up, query = new(m, MLA_PROJECTION), new(m, Q_RANK), new(m, QUERY), new(m, HEADS, CACHED)
        part = new(m + SMS, HEADS, KV_RANK, dtype=torch.float32)
        lse = new(m + SMS, HEADS, dtype=torch.float32)
        self.y, self.query = y, query
        merged = new(HEADS, m, KV_RANK)
        self.scratch += [y, latent, up, query, part, lse, merged]
        latents = [w["q_norm"], w["kv_norm"], t["where"], t["cache"], latent]
        none, no_lse = new(1, KV_RANK), new(1, HEADS, dtype=torch.float32)
        return {
            "mla_in_proj": [self.x, w["in_proj"], y, y, y],
            "mla_query": [y, w["q_b"], *latents, up],
            "mla_latents": [y, *latents],
            "mla_up": [latent, w["q_b"], up, up, up],
            "mla_absorb": [up, w["kv_b"], query],
            "mla_core": [query, t["cache"], t["table"], t["lens"], part, lse],
            "mla_merge": [part, lse, t["lens"], merged],
            "mla_values": [merged, w["kv_b"], self.core, y, t["lens"]],
            "mla_value": [part, lse, t["lens"], w["kv_b"], y, none, no_lse, self.core],
        }
