"""One decode step: the stages of every layer in order, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .arena import plan
from .experts import Experts
from .kda import Kda
from .mla import Mla
from .residual import Residual, Site


class Rows:
    """The rows of the current step: which are live, their state slots, lengths and cache slots. Read anew in every step."""

    def __init__(self, shape: Any, tensors: Mapping[str, Tensor]) -> None:
        self.count: int = shape.rows
        self.ranks: int = shape.decode_context_parallel
        self.page: int = shape.page_size
        self.tensors = tensors
        self.live: Tensor | None = None
        self.slots = torch.zeros(0, dtype=torch.int64)
        self.cache_slots: list[tuple[int, int, int]] = []
        self.longest = 0

    def read(self) -> None:
        """Read slots, lengths and mappings; ``live`` is None where every row is live."""
        slots: list[int] = self.tensors["slots"].tolist()
        rows = [row for row, slot in enumerate(slots) if slot > 0]
        self.live = None if len(rows) == self.count else torch.tensor(rows, dtype=torch.int64)
        self.slots = torch.tensor([slots[row] for row in rows], dtype=torch.int64)
        self.longest = int(self.tensors["local_lens"].max())
        mapping: list[list[int]] = self.tensors["slot_mapping"].tolist()
        self.cache_slots = [
            (rank, row, slot) for rank, ranked in enumerate(mapping) for row, slot in enumerate(ranked) if slot >= 0
        ]


class Step:
    """One decode step, callable; ``stages`` names its kernels in order."""

    def __init__(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> None:
        views = plan(facts, shape).carve(tensors["workspace"])
        rows = Rows(shape, tensors)
        residual = Residual(facts, views["streams"], tensors)
        self.stages = ["window/enter", "window/R"]
        sites = self._sites(facts, tensors, views, residual)
        self._runs: list[Callable[[], None]] = [partial(self._enter, rows, residual), sites[0].mix_in]
        for place, (index, kind) in enumerate(facts["layers"]):
            own = {
                n.removeprefix(f"layers.{index}."): t for n, t in tensors.items() if n.startswith(f"layers.{index}.")
            }
            packed = {n.removeprefix(f"{index}."): t for n, t in views.items() if n.startswith(f"{index}.")}
            before, after, following = sites[2 * place : 2 * place + 3]
            attention = (
                Kda(facts, own, packed, rows, before) if kind == "kda" else Mla(facts, own, packed, rows, before)
            )
            experts = Experts(facts, own, packed, views["mailbox"], tensors["expert_ids"][place], after)
            opens = index % facts["block_size"] == 0
            stages: list[tuple[str, Callable[[], None]]] = [
                *attention.stages(),
                ("O1", attention.o_proj),
                ("O2", partial(self._hand_over, attention, after, opens)),
                *experts.stages(),
                ("R", partial(self._next_residual, experts, following)),
            ]
            self.stages += [f"layer.{index}/{name}" for name, _ in stages]
            self._runs += [run for _, run in stages]
        self._runs.append(partial(sites[-1].close, tensors["out"]))
        self.stages.append("window/close")

    @staticmethod
    def _enter(rows: Rows, residual: Residual) -> None:
        rows.read()
        residual.enter()

    @staticmethod
    def _hand_over(attention: Kda | Mla, after: Site, opens: bool) -> None:
        """O2: the reduced attention output joins the prefix, or begins a new one where a block opened."""
        after.take(attention.partial, replace=opens)

    @staticmethod
    def _next_residual(experts: Experts, following: Site) -> None:
        """R: the feed-forward output joins the prefix, and the next layer's residual is mixed."""
        following.take(experts.delta, replace=False)

    @staticmethod
    def _sites(
        facts: Mapping[str, Any], tensors: Mapping[str, Tensor], views: Mapping[str, Tensor], residual: Residual
    ) -> list[Site]:
        """Every attention residual in order: before and after attention of each layer, then the closing one."""
        sites = []
        for index, _ in facts["layers"]:
            sources = -(-index // facts["block_size"])
            opens = int(index % facts["block_size"] == 0)
            for name, norm, more in (("attn_res", "input_norm", 0), ("mlp_res", "post_norm", opens)):
                weights = [tensors[f"layers.{index}.{part}"] for part in (f"{name}.gamma", f"{name}.query", norm)]
                packed = views[f"{index}.{name}.direction"], views[f"{index}.{name}.norm"]
                sites.append(Site(residual, sources + more, weights, packed))
        weights = [tensors[name] for name in ("final_res.gamma", "final_res.query", "final_norm")]
        sites.append(Site(residual, facts["blocks"], weights, (views["closing.direction"], views["closing.norm"])))
        return sites

    def __call__(self) -> None:
        for run in self._runs:
            run()
