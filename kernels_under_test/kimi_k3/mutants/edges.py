"""Faults at configurations that nobody advertised: right wherever a race is timed, wrong where code takes another path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, of_candidate

Change = Callable[[Mapping[str, Tensor]], None]


def _where(here: Callable[[Any], bool], change: Change) -> Callable[..., StepFunction]:
    """Change what a step has written, at the shapes that ``here`` names."""

    def around(
        step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], shape: Any
    ) -> StepFunction:
        if not here(shape):
            return step

        def run() -> None:
            step()
            change(tensors)

        return run

    return around


def _first_for_last(tensors: Mapping[str, Tensor]) -> None:
    tensors["out"][-1] = tensors["out"][0]


def _three_percent(tensors: Mapping[str, Tensor]) -> None:
    tensors["out"].mul_(1.03)


def _null_written(tensors: Mapping[str, Tensor]) -> None:
    next(tensor for name, tensor in tensors.items() if name.endswith(".recurrent_state"))[0].zero_()


def _half_precision(tensors: Mapping[str, Tensor]) -> None:
    tensors["out"].copy_(tensors["out"].to(torch.float8_e4m3fn).to(torch.bfloat16))


last_row_of_odd_rows = of_candidate(around=_where(lambda s: s.rows > 1 and s.rows % 2 == 1, _first_for_last))
"""Rows go in pairs; the one that is left over gets the first one's output."""

one_page_of_context = of_candidate(
    around=_where(lambda s: s.context <= s.page_size * s.decode_context_parallel, _three_percent)
)
"""Where a page holds the whole context, another scale is used."""

no_shards = of_candidate(around=_where(lambda s: s.decode_context_parallel == 1, _half_precision))
"""Without decode context parallelism the merge is skipped, and the output stays in eight bits."""

small_pages = of_candidate(around=_where(lambda s: s.page_size == 4, _null_written))
"""With the smaller page size a write goes to the null slot."""
