"""Outputs that are no result: class "something of the right shape". Each is written by a stock path that has done its work."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import Mutant, StepFunction, of_baseline

LATE_SECONDS = 0.002


def _spoiled(spoil: Callable[[Mapping[str, Tensor]], object]) -> Mutant:
    def around(step: Any, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
        def run() -> None:
            step()
            spoil(tensors)

        return run

    return of_baseline(around=around)


def _late(step: Any, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
    def later(right: Tensor) -> None:
        time.sleep(LATE_SECONDS)
        tensors["out"].copy_(right)

    def run() -> None:
        step()
        right = tensors["out"].clone()
        tensors["out"].zero_()
        threading.Thread(target=later, args=(right,), daemon=True).start()

    return run


def _unwritten(step: Any, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
    def run() -> None:
        before = tensors["out"].clone()
        step()
        tensors["out"][-1] = before[-1]

    return run


def _behind(tensor: Tensor, bytes_behind: int) -> None:
    ctypes.memset(tensor.data_ptr() + tensor.numel() * tensor.element_size() + bytes_behind, 0, 2)


def _row_of_another(tensors: Mapping[str, Tensor]) -> None:
    out = tensors["out"]
    out.copy_(out.roll(1, 0) if out.shape[0] > 1 else out.roll(1, 1))


zeros = _spoiled(lambda t: t["out"].zero_())
"""All outputs are zero."""
constant = _spoiled(lambda t: t["out"].fill_(0.5))
"""All outputs are the same number."""
echo = _spoiled(lambda t: t["out"].copy_(t["x"]))
"""The output is the input."""
not_a_number = _spoiled(lambda t: t["out"][0].fill_(float("nan")))
"""One row is NaN, which no comparison by a difference refuses."""
infinite = _spoiled(lambda t: t["out"][..., :1].fill_(float("inf")))
"""One element of each row is infinite."""
first_row_for_all = _spoiled(lambda t: t["out"].copy_(t["out"][:1].clone().expand_as(t["out"])) if t["out"].shape[0] > 1
                             else t["out"].copy_(t["out"].roll(1, 1)))  # fmt: skip
"""Every request gets the first one's output (of one request: shifted by an element)."""
row_of_another = _spoiled(_row_of_another)
"""Each request gets its neighbour's output (of one request: shifted by an element)."""
last_row_unwritten = of_baseline(around=_unwritten)
"""The last row keeps what was there before: tail handling that stops one row early."""
half_precision = _spoiled(lambda t: t["out"].copy_(t["out"].to(torch.float8_e4m3fn).to(torch.bfloat16)))
"""The output is rounded to eight bits."""
written_late = of_baseline(around=_late)
"""The right output is written by a thread after the step has returned."""
write_behind_the_output = _spoiled(lambda t: _behind(t["out"], 0))
"""Two bytes right behind the output are written: a tail without a mask."""
write_far_behind_the_ids = _spoiled(lambda t: _behind(t["expert_ids"], 1000))
"""Two bytes a thousand bytes behind the expert ids are written."""
