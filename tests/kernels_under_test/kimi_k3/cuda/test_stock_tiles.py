"""The stock path's tiles cut every matrix evenly; only where Triton is installed."""

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from kernels_under_test.kimi_k3.cuda.sizes import ROWS
from kernels_under_test.kimi_k3.cuda.stock.layer import GROUPED, PRODUCTS, default_tiles
from kernels_under_test.kimi_k3.cuda.stock.mla_layer import SPLITS, default_splits


@pytest.mark.parametrize("rows", ROWS)
def test_default_tiles_cut_every_matrix_evenly(rows: int) -> None:
    tiles = default_tiles(rows)
    assert set(GROUPED) | {"tail_up"} <= set(tiles)
    for kernel, tile in tiles.items():
        n, k = GROUPED[kernel] if kernel in GROUPED else PRODUCTS[kernel]
        assert n % tile[0] == 0
        if len(tile) == 4:
            assert k % (tile[1] * tile[2]) == 0


@pytest.mark.parametrize("rows", ROWS)
def test_attention_is_cut_into_one_part_at_least_and_none_below_64_tokens(rows: int) -> None:
    assert default_splits(rows, 0) == default_splits(rows, 64) == 1
    assert default_splits(rows, 65) == min(2, 264 // rows)
    assert 1 <= default_splits(rows, 1 << 20) <= SPLITS
