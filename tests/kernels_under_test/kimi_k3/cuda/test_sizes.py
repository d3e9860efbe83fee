"""Sizes, bytes and floors against the published sizes of the model."""

import pytest

from kernels_under_test.kimi_k3.cuda import sizes


def test_one_expert_and_one_projection_have_the_known_bytes() -> None:
    assert pytest.approx(2.193e6, rel=1e-3) == sizes.EXPERT_BYTES
    assert pytest.approx(90.145e6, rel=1e-4) == 2 * sizes.PROJECTION * sizes.HIDDEN
    assert sizes.FRONT == 112 + 448 + 1536


@pytest.mark.parametrize(("rows", "megabytes"), [(2, 234.4), (8, 442.6), (64, 1653.6)])
def test_layer_bytes_agree_with_a_count_by_hand(rows: int, megabytes: float) -> None:
    total = sum(b.at(rows) for b in sizes.kernel_bytes(sizes.expected_experts(rows), sharded=True))
    assert total / 1e6 == pytest.approx(megabytes, rel=0.02)


@pytest.mark.parametrize(("rows", "expected"), [(1, 16.0), (2, 31.7), (8, 120.3), (64, 613.2)])
def test_distinct_experts(rows: int, expected: float) -> None:
    assert sizes.expected_experts(rows) == pytest.approx(expected, abs=0.05)


def test_stock_reads_the_whole_front() -> None:
    small = sizes.floor_us(1, 16, 4.3e12)
    large = sizes.floor_us(1, 16, 4.3e12, sharded=False)
    assert large - small == pytest.approx(2 * 7168 * (896 + 3584 - 560) / 4.3e6, rel=1e-6)


def test_every_row_count_has_a_bin_and_others_are_refused() -> None:
    assert [sizes.bin_rows(m) for m in (1, 2, 3, 8, 9, 33, 64)] == [1, 2, 8, 8, 16, 64, 64]
    for rows in (0, 65):
        with pytest.raises(ValueError, match="1 to 64"):
            sizes.bin_rows(rows)
