"""Faults in the recurrent state, each of the class "state updated wrongly or not at all"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import StepFunction, named, of_candidate


def _skip_every_second(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    states, calls = [tensors[name] for name in named(tensors, ".recurrent_state")], 0

    def run() -> None:
        nonlocal calls
        calls += 1
        before = [state.clone() for state in states] if calls % 2 == 0 else []
        step()
        for state, old in zip(states, before, strict=False):
            state.copy_(old)

    return run


def _after_each_step(change: Callable[[Tensor], None]) -> Callable[..., StepFunction]:
    def around(
        step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
    ) -> StepFunction:
        states = [tensors[name] for name in named(tensors, ".recurrent_state")]

        def run() -> None:
            step()
            for state in states:
                change(state)

        return run

    return around


def _through_bf16(state: Tensor) -> None:
    state.copy_(state.to(torch.bfloat16))


def _clear_null_slot(state: Tensor) -> None:
    state[0].zero_()


skip_every_second_update = of_candidate(around=_skip_every_second)
"""Every second step leaves the recurrent state as it was. Must be WRONG: outputs and end states drift apart."""

state_through_bf16 = of_candidate(around=_after_each_step(_through_bf16))
"""The fp32 state is rounded to bf16 after each step. Must be WRONG; short chains hardly show it, the one-step check does."""

null_slot_written = of_candidate(around=_after_each_step(_clear_null_slot))
"""Slot 0, reserved for padded rows, is written. Must be WRONG: the untouched mask names the tensor."""

decay_off = of_candidate(facts=lambda facts: facts | {"gate_lower_bound": 1.01 * facts["gate_lower_bound"]})
"""The log decay is 1 % too strong. Must be WRONG; the error bound hides it, the signed gain of the states may show it, the
one-step check does."""
