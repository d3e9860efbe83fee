"""What any run shows without an oracle: stray writes, left poison, values that are not finite, and bits that differ when it is
run again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels_under_test.contract import Problem, Shape
from workers.arena import POISON_BYTE
from workers.loop.runs import Snapshot

Seen = tuple[str, str, str, str]
"""Code, tensor, what was expected, what was found."""


def inspect(problem: Problem, shape: Shape, shot: Snapshot) -> list[Seen]:
    """Return what is wrong with a run; states are looked at only where histories and guard bands are whole."""
    found: list[Seen] = [
        ("COR_STRAY_WRITE", stray.tensor, "untouched guard bands", f"a write at byte {stray.offset}")
        for stray in shot.strays
    ]
    found += _of_histories(shot)
    return found or list(_of_states(problem, shape, shot))


def _of_histories(shot: Snapshot) -> Iterator[Seen]:
    for name, history in shot.histories.items():
        raw = history.contiguous().view(torch.uint8).reshape(shot.data.steps, -1)
        unwritten = (raw == POISON_BYTE).all(dim=1).nonzero()
        if len(unwritten):
            yield "COR_UNWRITTEN", name, "every step written", f"step {int(unwritten[0])} not"
        elif history.is_floating_point() and not bool(finite(history).all()):
            yield "COR_NONFINITE", name, "finite values", _first_bad(history)


def _of_states(problem: Problem, shape: Shape, shot: Snapshot) -> Iterator[Seen]:
    masks = problem.untouched(shape, shot.data.initial, shot.data.steps)
    for name, state in shot.states.items():
        before, mask = shot.data.initial[name], masks[name]
        kept = bits(state)[mask] == bits(before)[mask]
        if not bool(kept.all()):
            changed = f"{int((~kept).sum())} elements changed"
            yield "COR_STRAY_WRITE", name, "state that no step addresses unchanged", changed
        elif not bool(finite(state[~mask]).all()):
            yield "COR_NONFINITE", name, "finite values", "NaN or infinity"


def difference(first: Snapshot, again: Snapshot) -> tuple[str, str] | None:
    """Return tensor and place of the first bits that differ between two runs of one arm over the same data, or None."""
    for name, history in first.histories.items():
        apart = (bits(history) != bits(again.histories[name])).reshape(first.data.steps, -1)
        if bool(apart.any()):
            step = int(apart.any(dim=1).nonzero()[0])
            return name, f"{int(apart[step].sum())} elements differ at step {step}"
    for name, state in first.states.items():
        apart = bits(state) != bits(again.states[name])
        if bool(apart.any()):
            return name, f"{int(apart.sum())} elements of the end state differ"
    return None


def bits(tensor: Tensor) -> Tensor:
    """Return the same shape as integers, so that NaN equals the same NaN."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def finite(tensor: Tensor) -> Tensor:
    """Return where a tensor holds finite values, bool of its shape; torch itself has no answer for eight bits."""
    return torch.isfinite(tensor.float() if tensor.element_size() == 1 else tensor)


def _first_bad(history: Tensor) -> str:
    place = (~finite(history)).nonzero()[0].tolist()
    return f"{float(history[tuple(place)])} at {place}"
