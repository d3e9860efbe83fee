"""The candidate's host side: 11 launches at one or two rows, 10 above."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kernels_under_test.kimi_k3.cuda.cute.tactics import SMS, chosen, name
from kernels_under_test.kimi_k3.cuda.kernel_lists import candidate
from kernels_under_test.kimi_k3.cuda.sizes import (
    EXPERTS,
    HIDDEN,
    INTER,
    LATENT,
    OUT_SHARD,
    PARTS,
    PROJECTION,
    SHARED,
    TOP_K,
    UNIT,
    WIDTH,
)
from kernels_under_test.kimi_k3.cuda.tensors import BF16, Weights


class Candidate:
    """One KDA layer of one rank. The columns of logits and latents that other ranks compute are inputs: ``fill_front`` sets them.

    Raises:
        ValueError: on a device with fewer multiprocessors than the persistent kernel has CTAs, which wait for each other.
    """

    def __init__(
        self, library: Any, weights: Weights, inputs: dict[str, Tensor], choice: Mapping[str, int | str] | None = None
    ) -> None:
        w, c, t = weights.dense, weights.candidate, inputs
        self.library, self.choice = library, dict(choice or {})
        self.m = m = t["delta"].shape[0]
        found = torch.cuda.get_device_properties(t["delta"].device).multi_processor_count
        if "experts" in self.kernels and found < SMS:
            raise ValueError(f"expected at least {SMS} multiprocessors, found {found}")
        self.w, self.t = w, t
        pairs, new = m * TOP_K, self.new
        i32, f32 = torch.int32, torch.float32
        x, part, x2 = new(m, HIDDEN), new(m, HIDDEN), new(m, HIDDEN)
        self.x, self.core, self.x2 = x, new(m, WIDTH), x2
        self.logits, self.z, h = new(m, EXPERTS, dtype=f32), new(m, LATENT), new(m, SHARED)
        self.ids, share = new(m, TOP_K, dtype=i32), new(m, TOP_K, dtype=f32)
        units = [new(1, dtype=i32), new(pairs, dtype=i32), new(pairs * UNIT, dtype=i32), new(pairs * UNIT, dtype=i32)]
        if m <= 2:
            units[1] = self.ids.view(-1)
        self.done = done = new(pairs, dtype=i32)
        act, rows, down = new(pairs, INTER), new(pairs, LATENT), new(m, HIDDEN)
        n, shard = new(m, LATENT), new(m, OUT_SHARD)
        self.out = t["peers_out"].clone()
        self.scratch = [x, part, x2, self.core, h, share, act, rows, down, n, shard]
        """Buffers that one launch writes and a later one reads; a step depends on nothing that they held before."""
        self.args: dict[str, list[Tensor]] = {
            "attention_residual": [
                t["delta"], t["peers_o"], t["prefix"], t["blocks"], w["pre_gamma"], w["pre_query"], w["pre_norm"], x,
            ],
            "o_proj": [self.core, w["o_proj"], part, part, part],
            "ffn_residual": [
                part, t["peers_o"], t["prefix"], t["blocks"], w["post_gamma"], w["post_query"], w["post_norm"], x2,
            ],
            "front": [x2, c["front"], self.logits, self.z, h],
            "route_shared_down": [self.logits, w["bias"], self.ids, share, done, h, w["shared_down"], down],
            "route_group_shared_down": [
                self.logits, w["bias"], self.ids, share, *units, done, new(1, dtype=i32), h, w["shared_down"], down,
            ],
            "experts": [
                self.z, c["in_codes"], c["in_scales"], c["out_codes"], c["out_scales"], *units, done, act, rows,
            ],
            "experts_in": [self.z, c["in_codes"], c["in_scales"], units[1], act],
            "experts_out": [act, c["out_codes"], c["out_scales"], units[1], rows],
            "tail_finalise": [
                rows, share, t["peers_latent"], w["latent_norm"], n, down, t["peers_shared"].view((PARTS - 1) * m, OUT_SHARD), shard,
            ],
            "tail_up": [n, w["latent_up"], self.out, shard, shard],
        }  # fmt: skip
        self.args |= self.attention()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The launches in order."""
        return candidate(self.m)

    def new(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        """A buffer."""
        return torch.zeros(*shape, device=self.t["delta"].device, dtype=dtype)

    def attention(self) -> dict[str, list[Tensor]]:
        """Arguments of the attention half's own kernels; its buffers join the scratch."""
        w, t = self.w, self.t
        y = self.y = self.new(self.m, PROJECTION)
        self.scratch.append(y)
        return {
            "in_proj": [self.x, w["in_proj"], y, y, y],
            "kda": [
                y, w["f_b"], w["conv"], t["conv_state"], w["a_log"], w["dt_bias"], t["slots"], t["state"], w["o_norm"], self.core,
            ],
        }  # fmt: skip

    def fill_front(self, logits: Tensor, z: Tensor) -> None:
        """The other ranks' columns (this rank's are overwritten): logits [rows, 896], latents [rows, 3584]."""
        self.logits.copy_(logits)
        self.z.copy_(z)

    def variant(self, kernel: str) -> int | str:
        """The variant of a kernel that is launched."""
        return self.choice.get(kernel, chosen(kernel, self.m))

    def launch(self, kernel: str) -> None:
        """One kernel."""
        self.library[name(kernel, self.m, self.variant(kernel))](*self.args[kernel])

    def run(self) -> None:
        """All kernels in order."""
        for kernel in self.kernels:
            self.launch(kernel)
