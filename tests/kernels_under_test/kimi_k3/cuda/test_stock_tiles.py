"""The stock path's tiles cut every matrix evenly; only where Triton is installed."""

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from kernels_under_test.kimi_k3.cuda.sizes import ROWS
from kernels_under_test.kimi_k3.cuda.stock.layer import GROUPED, PRODUCTS, default_tiles


@pytest.mark.parametrize("rows", ROWS)
def test_default_tiles_cut_every_matrix_evenly(rows: int) -> None:
    tiles = default_tiles(rows)
    assert set(GROUPED) | {"tail_up"} <= set(tiles)
    for kernel, tile in tiles.items():
        n, k = GROUPED[kernel] if kernel in GROUPED else PRODUCTS[kernel]
        assert n % tile[0] == 0
        if len(tile) == 4:
            assert k % (tile[1] * tile[2]) == 0
