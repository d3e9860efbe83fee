"""Faults in reading the paged cache: class "right for the first page only"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, of_candidate


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
