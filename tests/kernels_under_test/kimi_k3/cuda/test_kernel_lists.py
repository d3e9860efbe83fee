"""Counts of launches, and the table of variants."""

from collections.abc import Callable

import pytest

from kernels_under_test.kimi_k3.cuda.cute.tactics import (
    BESIDE,
    CHOSEN,
    EARLY_READS,
    EXPERT_SHAPES,
    FIRST,
    MUTANTS,
    PRODUCTS,
    SHARED_MEMORY,
    chosen,
    name,
    tactics,
)
from kernels_under_test.kimi_k3.cuda.kernel_lists import CANDIDATE, STOCK, STOCK_MLA, candidate, mla_candidate
from kernels_under_test.kimi_k3.cuda.sizes import ROWS


def test_an_mla_layer_has_26_launches_of_stock_and_14_or_15_of_the_candidate() -> None:
    assert len(STOCK_MLA) == len(set(STOCK_MLA)) == 26
    assert [len(mla_candidate(m)) for m in (1, 2, 5, 64)] == [14, 14, 15, 15]
    for rows in ROWS:
        launches = mla_candidate(rows)
        assert len(set(launches)) == len(launches)
        insert = launches.index("mla_query" if rows <= 2 else "mla_latents")
        assert launches.index("mla_core") - insert >= 2, "the core reads new rows of the cache before its wait"
        assert launches[-6:] == candidate(rows)[-6:]


def test_stock_launches_23_and_the_candidate_10_or_11() -> None:
    assert len(STOCK) == len(set(STOCK)) == 23
    assert len(CANDIDATE) == len(set(CANDIDATE)) == 10
    assert [len(candidate(m)) for m in (1, 2, 5, 64)] == [11, 11, 10, 10]
    assert "route_shared_down" in candidate(2) and "route_group_shared_down" in candidate(3)
    with pytest.raises(ValueError, match="found 65"):
        candidate(65)


@pytest.mark.parametrize("rows", ROWS)
def test_every_kernel_has_variants_that_fit(rows: int) -> None:
    for kernel in candidate(rows):
        variants = tactics(kernel, rows)
        assert variants
        for tactic in variants:
            if kernel in (*PRODUCTS, *BESIDE):
                n, k, _ = PRODUCTS["shared_down" if kernel in BESIDE else kernel]
                if tactic["design"] == "skinny":
                    assert k % (256 * tactic["p"]) == 0 and n % 2 == 0
                    ring = tactic["p"] * tactic["q"] * tactic["s"] * (k // tactic["p"]) * 2
                else:
                    assert n % tactic["tr"] == 0 and k % (tactic["kc"] * tactic["cl"]) == 0
                    assert (tactic["kc"] // 16) % tactic["wk"] == 0
                    assert kernel not in BESIDE or tactic["cl"] == 1
                    ring = tactic["s"] * tactic["kc"] * 2 * (tactic["tr"] + rows)
                assert ring < SHARED_MEMORY
            if kernel == "experts":
                slot, sums = 14 * 3 * (1024 + 64), 4 * 14 * 512
                assert tactic["s"] * slot + sums < SHARED_MEMORY
            if kernel == "experts_in":
                assert not tactic.get("early"), "the launch before it chooses the experts whose weights it reads"
            if kernel in EXPERT_SHAPES:
                n, k = EXPERT_SHAPES[kernel]
                assert n % (16 * tactic.get("wr", 1) * tactic.get("r", 1)) == 0 and (k // 128) % tactic["wk"] == 0


def test_the_chosen_variants_exist() -> None:
    for rows, choice in CHOSEN.items():
        for kernel, index in choice.items():
            assert kernel in candidate(rows) and 0 < index < len(tactics(kernel, rows))
            assert chosen(kernel, rows) == index
    assert chosen("in_proj", 64) == 0


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("launches", [candidate, mla_candidate])
def test_between_a_writer_and_an_early_reader_some_kernel_waits_before_the_next_may_start(
    rows: int, launches: Callable[[int], tuple[str, ...]]
) -> None:
    two = launches(rows) * 2
    for reader, writer in EARLY_READS:
        if reader not in two or writer not in two:
            continue
        at = len(two) - 1 - two[::-1].index(reader)
        written = max(i for i in range(at) if two[i] == writer)
        assert any(kernel not in FIRST for kernel in two[written + 1 : at]), (reader, writer)


def test_only_kernels_of_the_list_let_the_next_one_start_early() -> None:
    for rows in ROWS:
        for kernel in candidate(rows):
            assert (kernel in FIRST) == any(t.get("first") for t in tactics(kernel, rows))


def test_a_mutant_is_no_variant_that_could_be_chosen() -> None:
    for fault, (kernel, rows, tactic) in MUTANTS.items():
        assert kernel in candidate(rows) and tactic not in tactics(kernel, rows)
        assert all("fault" not in t for m in ROWS for k in candidate(m) for t in tactics(k, m))
        assert name(kernel, rows, fault) == f"k3_{kernel}_{rows}_{fault}"


def test_names_are_distinct_and_unknown_kernels_are_refused() -> None:
    names = [name(k, m, i) for m in ROWS for k in candidate(m) for i in range(len(tactics(k, m)))]
    assert len(names) == len(set(names))
    with pytest.raises(KeyError):
        tactics("no_such_kernel", 8)
