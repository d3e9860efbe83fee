"""Faults in reading the paged cache: class "right for the first page only"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, of_candidate
from .stages import after


def _private(*names: str) -> Any:
    """The step sees copies of these tensors, which ``around`` fills before each step."""
    return lambda given: given | {name: given[name].clone() for name in names}


def _ignore_table(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    def run() -> None:
        table = tensors["block_table"]
        used = (table > 0).sum(dim=1, keepdim=True)
        order = torch.arange(table.shape[1])
        backwards = table.long().gather(1, (used - 1 - order).clamp(min=0))
        seen["block_table"].copy_(torch.where(order < used, backwards, 0))
        step()

    return run


def _last_page(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], shape: Any
) -> StepFunction:
    def run() -> None:
        table, lengths = tensors["block_table"], tensors["local_lens"]
        full = (lengths.amax(dim=0) - 1).clamp(min=0) // shape.page_size
        order = (torch.arange(table.shape[1]) + full.unsqueeze(1)).clamp(max=table.shape[1] - 1)
        seen["block_table"].copy_(table.gather(1, order))
        seen["local_lens"].copy_((lengths - full * shape.page_size).clamp(min=0))
        step()

    return run


def _newest_unseen(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    def run() -> None:
        here = (tensors["slot_mapping"] >= 0).to(torch.int32)
        seen["local_lens"].copy_((tensors["local_lens"] - here).clamp(min=0))
        step()

    return run


wrong_page_order = of_candidate(tensors=_private("block_table"), around=_ignore_table)
"""Reads each request's pages in reverse order. Must be WRONG: tokens of an unfinished page are missed or empty rows read."""

last_page_only = of_candidate(tensors=_private("block_table", "local_lens"), around=_last_page)
"""Attends to the last page only (window attention). Must be WRONG; faster at long contexts."""

newest_token_unseen = of_candidate(tensors=_private("local_lens"), around=_newest_unseen)
"""Attends before the new token is counted. Must be WRONG."""


def _table_moved(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    def run() -> None:
        table = tensors["block_table"]
        nearer = table.roll(1, dims=1)
        seen["block_table"].copy_(torch.where((table > 0) & (nearer > 0), nearer, table))
        step()

    return run


def _one_too_many(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    def run() -> None:
        lengths = tensors["local_lens"]
        seen["local_lens"].copy_(torch.where(lengths > 0, lengths + 1, lengths))
        step()

    return run


def _shard_lost(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    def run() -> None:
        lengths = tensors["local_lens"].clone()
        if lengths.shape[0] > 1:
            lengths[-1] = torch.where(lengths[0] > 0, 0, lengths[-1])
        else:
            lengths.copy_((lengths - _half(lengths)).clamp(min=0))
        seen["local_lens"].copy_(lengths)
        step()

    return run


def _half(lengths: Tensor) -> Tensor:
    """Half of each length, where there is only one shard to lose."""
    return lengths // 2


def _stored_late(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], shape: Any
) -> StepFunction:
    page = shape.page_size

    def run() -> None:
        mapping = tensors["slot_mapping"]
        seen["slot_mapping"].copy_(torch.where(mapping >= 0, mapping - mapping % page + (mapping + 1) % page, mapping))
        step()

    return run


def _stored_nowhere(
    step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    def run() -> None:
        seen["slot_mapping"].copy_(tensors["slot_mapping"])
        seen["slot_mapping"][..., -1] = -1
        step()

    return run


def _merged_evenly(layer: Any) -> None:
    """Average the shards without their log-sum-exp."""
    layer.v.latent = torch.stack([part[0].float() for part in layer.v.parts]).mean(dim=0).to(torch.bfloat16)


def _position_dropped(layer: Any) -> None:
    layer.v.q_pe = torch.zeros_like(layer.v.q_pe)


def _cache_in_eight_bits(layer: Any) -> None:
    layer.v.c = layer.v.c.to(torch.float8_e4m3fn).to(torch.bfloat16)


def _gate_dropped(layer: Any) -> None:
    layer.v.attention = layer.v.value.flatten(1).to(torch.bfloat16)


def _sharper(layer: Any) -> None:
    layer.v.query = layer.v.query * 1.0625


page_off_by_one = of_candidate(tensors=_private("block_table"), around=_table_moved)
"""Each page is taken for the one before it, but the first."""

tail_unmasked = of_candidate(tensors=_private("local_lens"), around=_one_too_many)
"""One cache row behind each length is read; it holds NaN until a token is stored there."""

shard_lost = of_candidate(tensors=_private("local_lens"), around=_shard_lost)
"""The last shard of decode context parallelism, or half of the only one, is not attended to."""

token_stored_late = of_candidate(tensors=_private("slot_mapping"), around=_stored_late)
"""The new token is stored one row too far in its page."""

last_request_not_stored = of_candidate(tensors=_private("slot_mapping"), around=_stored_nowhere)
"""The last request's new token is not stored."""

merge_without_weights = after("merge_shards", _merged_evenly)
"""Shards are averaged in place of the merge by log-sum-exp."""

position_part_dropped = after("q_b", _position_dropped)
"""The query's position part is left out of the scores."""

latent_in_eight_bits = after("q_kv_norm", _cache_in_eight_bits)
"""The cache holds eight bits where the scope says bf16."""

output_gate_dropped = after("gate_mul", _gate_dropped)
"""The output gate is not applied."""

scores_too_sharp = after("concat_and_cache_insert", _sharper)
"""The scale of the scores is 6 % too large, as with the wrong head size."""
