"""The arena: sealed, guarded, and read-only where the arm may only read."""

from __future__ import annotations

import mmap
import os
from itertools import pairwise

import pytest

from kernels_under_test.contract import Role, TensorSpec
from workers.arena import CHANGING, FIXED, GUARD, Arena, layout

SPECS = [
    TensorSpec("x", (2, 8), "bfloat16", Role.INPUT),
    TensorSpec("w", (3, 5), "float32", Role.WEIGHT),
    TensorSpec("lens", (2,), "int32", Role.SCHEDULE),
    TensorSpec("state", (2, 4), "float32", Role.STATE),
    TensorSpec("out", (2, 8), "bfloat16", Role.OUTPUT),
]


@pytest.fixture
def arena():
    made = Arena(layout(SPECS, steps=6, workspace=100))
    yield made
    made.close()


def test_every_tensor_stands_between_guard_bands(arena):
    assert arena.tensors["history.out"].shape == (6, 2, 8) and arena.tensors["schedule.lens"].shape == (6, 2)
    for which in (FIXED, CHANGING):
        ends = sorted((p.offset, p.offset + p.size) for p in arena.places.values() if p.arena == which)
        assert ends[0][0] >= GUARD
        assert all(after[0] - before[1] >= GUARD for before, after in pairwise(ends))


def test_writing_all_tensors_leaves_the_bands_alone_and_one_byte_outside_is_named(arena):
    for tensor in arena.tensors.values():
        tensor.fill_(1)
    assert arena.strays() == []
    place = arena.places["out"]
    with mmap.mmap(arena.descriptors[CHANGING], 0) as memory:
        memory[place.offset + place.size + 3] = 0
        (stray,) = arena.strays()
    assert (stray.tensor, stray.offset) == ("out", place.size + 3)
    arena.mend()
    assert arena.strays() == []


def test_the_memory_can_be_neither_shrunk_nor_grown(arena):
    for descriptor in arena.descriptors:
        size = os.fstat(descriptor).st_size
        for wanted in (0, size - 1, size + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, wanted)


def test_what_the_arm_may_only_read_cannot_be_mapped_for_writing(arena):
    with pytest.raises(PermissionError):
        mmap.mmap(arena.descriptors[FIXED], 0)
    with pytest.raises(PermissionError):
        os.pwrite(arena.descriptors[FIXED], b"x", 0)
    seen = mmap.mmap(arena.descriptors[FIXED], 0, prot=mmap.PROT_READ)
    arena.tensors["w"].fill_(2.5)
    offset = arena.places["w"].offset
    assert seen[offset : offset + 4] == b"\x00\x00\x20\x40"
    seen.close()


def test_poison_is_no_right_answer(arena):
    arena.poison(["out", "history.out"])
    assert arena.tensors["out"].isnan().all() and arena.strays() == []
