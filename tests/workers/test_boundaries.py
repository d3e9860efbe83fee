"""The boundary search: every value that code may branch on is asked at, and what is found is the smallest of its kind."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.domain.configuration import Configuration
from workers.boundaries import Finding, Space, search, shrink, smaller_than

SPACE = Space(
    rows=(1, 8), page_sizes=(4, 16), least_context=1, largest_context=200, decode_context_parallel=(1, 2),
    thresholds={"rows": (5,), "context": (128,)},
)  # fmt: skip


def asker(wrong):
    asked = []

    def ask(configurations):
        asked.extend(configurations)
        return [Finding(c, "COR_MISMATCH", "made up") if wrong(c) else None for c in configurations]

    return ask, asked


def test_every_edge_value_is_asked_at():
    points = list(SPACE.edges(random.Random(1)))
    assert {c.rows for c in points} == {1, 2, 4, 5, 6, 7, 8}
    for page in (4, 16):
        for ranks in (1, 2):
            found = {c.context for c in points if (c.page_size, c.decode_context_parallel) == (page, ranks)}
            edges = {page - 1, page, page + 1, page * ranks - 1, page * ranks + 1, 127, 128, 129, 1, 2, 199, 200}
            assert edges <= found
    assert all(1 <= c.context <= 200 for c in points)


@given(row=st.integers(1, 8), over=st.integers(1, 200), ranks=st.sampled_from([1, 2]), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_what_grows_with_size_is_shrunk_to_its_smallest_point(row, over, ranks, seed):
    ask, _ = asker(lambda c: c.rows >= row and c.context >= over and c.decode_context_parallel >= ranks)
    found, points = search(SPACE, ask, seed=seed, points=400)
    assert found is not None and points <= 400
    smallest = found.configuration
    assert (smallest.rows, smallest.context, smallest.decode_context_parallel) == (row, over, ranks)
    assert smallest.page_size == 1


@given(seed=st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_a_fault_right_behind_a_page_edge_is_found_and_stays_one_while_it_shrinks(seed):
    def wrong(c):
        return c.context % c.page_size == 1 and c.context > c.page_size and c.rows > 2

    ask, _ = asker(wrong)
    found, _ = search(SPACE, ask, seed=seed, points=400)
    assert found is not None and wrong(found.configuration)
    assert not any(wrong(c) for c in smaller_than(found.configuration))


def test_nothing_wrong_is_nothing_found_and_no_point_is_asked_twice():
    ask, asked = asker(lambda c: False)
    found, points = search(SPACE, ask, seed=3, points=80)
    assert found is None and points == 80 == len({c.label for c in asked})
    again, _ = asker(lambda c: False)
    assert search(SPACE, again, seed=3, points=80, more=lambda: False) == (None, 0)


def test_a_space_around_configurations_holds_their_values():
    made = [
        Configuration(rows=rows, context=context, page_size=8, decode_context_parallel=ranks)
        for rows, context, ranks in ((1, 64, 1), (4, 1024, 1), (8, 128, 2))
    ]
    space = Space.around(made)
    assert (space.rows, space.page_sizes, space.decode_context_parallel) == ((1, 4, 8), (8,), (1, 2))
    assert (space.least_context, space.largest_context) == (64, 1024)
    assert {127, 128, 129} <= set(space.contexts(8, 1))


def test_query_tokens_keep_rows_whole_while_they_shrink():
    start = Finding(Configuration(rows=12, query_tokens=4, context=64, page_size=4), "X", "")
    ask, asked = asker(lambda c: c.query_tokens == 4 and c.rows >= 8)
    assert shrink(start, ask).configuration.rows == 8
    assert all(c.rows % c.query_tokens == 0 for c in asked)
