"""Faults in the recurrent state, each of the class "state updated wrongly or not at all"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .seam import Mutant, StepFunction, named, of_baseline, of_candidate
from .stages import after


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
    """Change the states of the live slots after each step; ``change`` gets one slot and changes it in place."""

    def around(
        step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
    ) -> StepFunction:
        states = [tensors[name] for name in named(tensors, ".recurrent_state")]

        def run() -> None:
            step()
            for slot in tensors["slots"].tolist():
                if slot > 0:
                    for state in states:
                        change(state[slot])

        return run

    return around


def _null_slot(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    states = [tensors[name] for name in named(tensors, ".recurrent_state")]

    def run() -> None:
        step()
        for state in states:
            state[0].zero_()

    return run


def _through_bf16(state: Tensor) -> None:
    state.copy_(state.to(torch.bfloat16))


def _leaking(state: Tensor) -> None:
    state.mul_(1 - 2.0**-14)


def _stuck(state: Tensor) -> None:
    """Bits below 2^-14 of a unit are cut off, towards zero: what a state in fixed point does."""
    state.copy_(torch.trunc(state * 2.0**14) / 2.0**14)


skip_every_second_update = of_candidate(around=_skip_every_second)
"""Every second step leaves the recurrent state as it was. Must be WRONG: outputs and end states drift apart."""

state_through_bf16 = of_candidate(around=_after_each_step(_through_bf16))
"""The fp32 state is rounded to bf16 after each step. Must be WRONG; short chains hardly show it, the one-step check does."""

null_slot_written = of_candidate(around=_null_slot)
"""Slot 0, reserved for padded rows, is written. Must be WRONG: the untouched mask names the tensor."""

decay_off = of_candidate(facts=lambda facts: facts | {"gate_lower_bound": 1.01 * facts["gate_lower_bound"]})
"""The log decay is 1 % too strong. Must be WRONG; the error bound hides it, the signed gain of the states may show it, the
one-step check does."""


def _restored(ending: str, rows: slice | int = slice(None)) -> Callable[..., StepFunction]:
    """Put a state back as it was before the step: all of it, or one slot."""

    def around(
        step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
    ) -> StepFunction:
        states = [tensors[name] for name in named(tensors, ending)]

        def run() -> None:
            before = [state[rows].clone() for state in states]
            step()
            for state, old in zip(states, before, strict=True):
                state[rows] = old

        return run

    return around


def _in_ten_bits(state: Tensor) -> None:
    """Keep ten bits of the mantissa, as a tensor core's input format does."""
    state.copy_(((state.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32))


def _bounded(state: Tensor) -> None:
    live = torch.isfinite(state)
    state.copy_(torch.where(live, state.clamp(-0.5, 0.5), state))


def _of_seen_slots(change: Callable[[Tensor], Tensor]) -> Mutant:
    """The step sees other slots than it was given."""

    def tensors(given: dict[str, Tensor]) -> dict[str, Tensor]:
        return given | {"slots": given["slots"].clone()}

    def around(
        step: StepFunction, tensors: Mapping[str, Tensor], seen: Mapping[str, Tensor], _shape: Any
    ) -> StepFunction:
        def run() -> None:
            seen["slots"].copy_(change(tensors["slots"]))
            step()

        return run

    return of_baseline(tensors=tensors, around=around)


def _turned(layer: Any) -> None:
    """Transpose the square state of the first live slot."""
    slots = layer.window.tensors["slots"]
    live = slots[slots > 0].long()
    state = layer.w.recurrent_state
    state[live] = state[live].transpose(-1, -2).clone()


def _undecayed(layer: Any) -> None:
    """The convolution's newest input is kept twice, the oldest is lost."""
    slots = layer.window.tensors["slots"]
    live = slots[slots > 0].long()
    layer.w.conv_state[live, 0] = layer.w.conv_state[live, 1]


def _beta_ignored(layer: Any) -> None:
    layer.v.b = torch.full_like(layer.v.b, 20.0)


def _spare_slot_written(
    step: StepFunction, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any
) -> StepFunction:
    states = [tensors[name] for name in named(tensors, ".recurrent_state")]

    def run() -> None:
        step()
        used = set(tensors["slots"].tolist())
        for state in states:
            free = next(slot for slot in range(1, state.shape[0]) if slot not in used)
            state[free].zero_()

    return run


conv_state_not_shifted = of_candidate(around=_restored(".conv_state"))
"""The convolution's inputs are never stored."""

conv_state_of_one_slot_stale = of_candidate(around=_restored(".conv_state", 1))
"""The convolution's inputs of slot 1 are never stored: one request in many."""

recurrent_state_never_stored = of_candidate(around=_restored(".recurrent_state"))
"""The recurrent state is read and never written."""

recurrent_state_of_one_slot_stale = of_candidate(around=_restored(".recurrent_state", 1))
"""The recurrent state of slot 1 is never written: one request in many."""

state_in_ten_bits = of_candidate(around=_after_each_step(_in_ten_bits))
"""The state keeps ten bits of its mantissa."""

state_leaks = of_candidate(around=_after_each_step(_leaking))
"""The state loses 2^-14 of itself with each step. Each step is right to rounding, thousands are not."""

state_in_fixed_point = of_candidate(around=_after_each_step(_stuck))
"""The state is cut to multiples of 2^-14."""

state_bounded = of_candidate(around=_after_each_step(_bounded))
"""The state is clamped to a range that it usually, not always, lies in."""

spare_slot_written = of_candidate(around=_spare_slot_written)
"""A slot that belongs to no request of this step is cleared."""

slot_of_the_neighbour = _of_seen_slots(lambda slots: torch.where(slots > 1, slots - 1, slots))
"""Slots are counted from the wrong end: two requests share one, one reads another's state."""

padded_row_takes_a_slot = _of_seen_slots(lambda slots: torch.where(slots == 0, slots.max(), slots))
"""A padded row works on a live request's slot. Seen where a run has padded rows."""

state_transposed = after("delta_recurrence", _turned)
"""Keys and values of the state change places after each step."""

conv_input_doubled = after("conv_update_silu", _undecayed)
"""The convolution's oldest stored input is overwritten by the one behind it."""

write_strength_ignored = after("in_proj", lambda layer: _beta_ignored(layer) if layer.kind == "kda" else None)
"""beta is one: the delta rule overwrites instead of correcting."""
