"""Variants of the candidate's MLA kernels: they exist, and they fit."""

import pytest

from kernels_under_test.kimi_k3.cuda.cute import mla_tactics, mla_variants
from kernels_under_test.kimi_k3.cuda.cute.tactics import SHARED_MEMORY
from kernels_under_test.kimi_k3.cuda.kernel_lists import mla_candidate
from kernels_under_test.kimi_k3.cuda.mla_sizes import BLOCK, CACHED, KV_RANK, VALUE
from kernels_under_test.kimi_k3.cuda.sizes import ROWS

HALF_BLOCK = BLOCK // 2 * CACHED * 2
QUERY_ROWS = 16 * (2 * CACHED + 16)


@pytest.mark.parametrize("rows", ROWS)
def test_every_kernel_of_a_layer_has_variants_and_tensors(rows: int) -> None:
    own = [k for k in mla_candidate(rows) if k in mla_tactics.KERNELS]
    assert len(own) == (5 if rows <= 2 else 7)
    for kernel in own:
        assert mla_tactics.tactics(kernel, rows)
        assert 0 <= mla_tactics.chosen(kernel, rows) < len(mla_tactics.tactics(kernel, rows))
        assert all(None not in shape[1:] or kernel == "mla_core" for _, shape in mla_variants.signature(kernel, rows))


@pytest.mark.parametrize("rows", ROWS)
def test_products_cut_their_matrices_evenly_and_fit(rows: int) -> None:
    for kernel, (n, k, _) in mla_tactics.PRODUCTS.items():
        if kernel == "mla_up" and rows <= 2:
            continue
        for tactic in mla_tactics.tactics(kernel, rows):
            if tactic["design"] == "ring":
                assert n % tactic["tr"] == 0 and k % tactic["kc"] == 0 and (tactic["kc"] // 16) % tactic["wk"] == 0
                assert tactic["s"] * tactic["kc"] * 2 * (tactic["tr"] + rows) < SHARED_MEMORY
            else:
                assert k % (256 * tactic["p"]) == 0
                assert tactic["p"] * tactic["q"] * tactic["s"] * k // tactic["p"] * 2 < SHARED_MEMORY
    for tactic in mla_tactics.tactics("mla_values", 8):
        assert VALUE % tactic["tr"] == 0 and KV_RANK % tactic["kc"] == 0 and (tactic["kc"] // 16) % 8 == 0


def test_the_ring_of_the_core_fits_beside_the_query() -> None:
    for tactic in mla_tactics.tactics("mla_core", 64):
        assert tactic["s"] * HALF_BLOCK + QUERY_ROWS + 4096 < SHARED_MEMORY


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(KeyError):
        mla_tactics.tactics("no_such_kernel", 8)


def test_special_variants_are_none_that_a_layer_could_choose() -> None:
    for special, (kernel, rows, tactic) in mla_tactics.SPECIAL.items():
        assert kernel in mla_candidate(rows) and tactic not in mla_tactics.tactics(kernel, rows)
        assert tactic.get("fault", special) == special
    for rows in ROWS:
        for kernel in mla_tactics.KERNELS:
            if kernel in mla_candidate(rows):
                assert all("fault" not in t and "ranks" not in t for t in mla_tactics.tactics(kernel, rows))
