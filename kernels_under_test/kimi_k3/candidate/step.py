"""One decode step: the stages of every layer in order, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from .arena import plan
from .dense import Dense
from .experts import Experts
from .kda import Kda
from .mla import Mla
from .residual import Residual, Site
from .rows import Rows
from .verify import VerifyKda, VerifyMla, VerifyRows


class Step:
    """One decode step, callable; ``stages`` names its kernels in order."""

    def __init__(self, facts: Mapping[str, Any], shape: Any, tensors: Mapping[str, Tensor]) -> None:
        views = plan(facts, shape).carve(tensors["workspace"])
        drafts = facts.get("speculative_tokens", 0) > 0
        rows: Rows = VerifyRows(shape, tensors, facts["dcp_interleave"]) if drafts else Rows(shape, tensors)
        kda, mla = (VerifyKda, VerifyMla) if drafts else (Kda, Mla)
        residual = Residual(facts, views["streams"], tensors)
        self.stages = ["window/enter", "window/R"]
        sites = self._sites(facts, tensors, views, residual)
        self._runs: list[Callable[[], None]] = [partial(self._enter, rows, residual), sites[0].mix_in]
        dense_layers = facts.get("dense_layers", ())
        for place, (index, kind) in enumerate(facts["layers"]):
            own = {
                n.removeprefix(f"layers.{index}."): t for n, t in tensors.items() if n.startswith(f"layers.{index}.")
            }
            packed = {n.removeprefix(f"{index}."): t for n, t in views.items() if n.startswith(f"{index}.")}
            before, after, following = sites[2 * place : 2 * place + 3]
            attention: Kda | Mla = (kda if kind == "kda" else mla)(facts, own, packed, rows, before)
            experts: Dense | Experts
            if index in dense_layers:
                experts = Dense(facts, own, packed, views["mailbox"], after)
            else:
                ids = tensors["expert_ids"][place - len(dense_layers)]
                experts = Experts(facts, own, packed, views["mailbox"], ids, after)
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
    def _next_residual(experts: Dense | Experts, following: Site) -> None:
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
