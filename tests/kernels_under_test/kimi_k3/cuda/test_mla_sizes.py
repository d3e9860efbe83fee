"""Sizes, bytes and the cut into blocks of an MLA layer, against the published sizes and a count by hand."""

import pytest

from kernels_under_test.kimi_k3.cuda import mla_sizes, sizes

LENGTHS = [
    [1],
    [0],
    [0, 0],
    [64],
    [65],
    [131072],
    [5000, 1, 0, 63, 64, 65, 9000, 0],
    [3] * 64,
    [1024] * 64,
    [0] * 63 + [8192],
]


def test_projection_query_and_cache_have_the_known_sizes() -> None:
    assert mla_sizes.MLA_PROJECTION == 3648 and mla_sizes.QUERY == 2304 and mla_sizes.GATE_AT == 2112
    assert mla_sizes.CACHED == 576 and mla_sizes.cached_bytes(131072) == 150_994_944
    assert pytest.approx(192**-0.5) == mla_sizes.SCALE


@pytest.mark.parametrize(("rows", "microseconds"), [(2, 47.5), (8, 94.5), (64, 362.8)])
def test_floor_at_1k_agrees_with_the_design(rows: int, microseconds: float) -> None:
    """The design counts an FP8 cache (half the bytes) and 4.3 TB/s."""
    floor = mla_sizes.mla_floor_us(rows, rows * 512, sizes.expected_experts(rows), 4.3e12)
    assert floor == pytest.approx(microseconds, rel=0.02)


def test_mla_moves_the_projection_query_and_value_instead_of_kda() -> None:
    names = [b.name for b in mla_sizes.mla_bytes(16, sharded=True)]
    assert {"in_proj", "query", "value"} <= set(names) and "kda" not in names and len(names) == len(set(names))
    weights = {b.name: b.weights for b in mla_sizes.mla_bytes(16, sharded=True)}
    assert weights["in_proj"] == pytest.approx(52.298e6, rel=1e-4)
    assert weights["query"] == pytest.approx(7.078e6 + 1.573e6, rel=1e-3)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("grid", [1, 7, 132])
def test_every_block_is_taken_once_and_no_two_parts_share_a_place(lengths: list[int], grid: int) -> None:
    parts = mla_sizes.segments(lengths, grid)
    for row, length in enumerate(lengths):
        taken = [b for r, _, first, count in parts for b in range(first, first + count) if r == row]
        assert taken == list(range(mla_sizes.blocks(length)))
    places = [row + cta for row, cta, _, _ in parts]
    assert len(set(places)) == len(places)
    assert all(0 <= place < len(lengths) + grid for place in places)
    assert all(count > 0 and cta < grid for _, cta, _, count in parts)


def test_work_is_even() -> None:
    loads: dict[int, int] = {}
    for _, cta, _, count in mla_sizes.segments([131072, 1, 70000, 300], 132):
        loads[cta] = loads.get(cta, 0) + count
    assert len(loads) == 132 and max(loads.values()) - min(loads.values()) <= 1


def test_a_block_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a block of 4, found 4"):
        mla_sizes.owner(4, 4, 132)
