"""What must not matter: ranks, shards, pages, padded requests, and whether tokens come in one step or one after the other.

All in float64 by the oracle, experts pinned, so that no near-tie can break an equality.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_under_test import hashrng
from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.parts import SHARDED, part_of
from kernels_under_test.kimi_k3.problem import load
from kernels_under_test.kimi_k3.shards import split
from tests.kernels_under_test.kimi_k3.steps import any_ids, changed, close, filled, followed, inputs, same, stepped

QUICK = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 1 << 32)
QUERIES = st.sampled_from([1, 2, 3, 8])
CACHES = st.sampled_from(["bf16", "fp8_e4m3"])


def relaid(problem, shape, initial, target_problem, target, seed):
    """The same requests in other pages and shards: token by token, with a block table drawn anew.

    Token i lies on rank (i / I) % N at local index floor(i / (I N)) I + i % I; an entry of the table covers page x N tokens.
    """
    moved, steps = dict(initial), initial["seq_lens"].shape[0]
    fresh = filled(target_problem, target, steps, seed)
    lengths, q = initial["seq_lens"].tolist(), shape.query_tokens
    interleave, old_interleave = target_problem.facts["dcp_interleave"], problem.facts["dcp_interleave"]

    def place(position, one, every, page):
        return (position // every) % one, position // (every * one) * every + position % every, page

    table = torch.zeros_like(fresh["block_table"])
    pages = next(t.shape[1] for n, t in fresh.items() if n.endswith("kv_cache"))
    order = (hashrng.permutation(seed, "pages", pages - 1) + 1).tolist()
    for request, longest in enumerate(lengths[-1]):
        for entry in range(-(-longest // (target.page_size * target.decode_context_parallel))):
            table[request, entry] = order.pop()
    caches = {n: torch.full_like(t, torch.nan) for n, t in fresh.items() if n.endswith("kv_cache")}
    mapping = torch.full_like(fresh["slot_mapping"], -1)
    local = torch.zeros_like(fresh["local_lens"])
    for request in range(shape.requests):
        for position in range(lengths[0][request] - q):
            rank, at, page = place(position, shape.decode_context_parallel, old_interleave, shape.page_size)
            source = int(initial["block_table"][request, at // page]), at % page
            to_rank, to, page = place(position, target.decode_context_parallel, interleave, target.page_size)
            goal = int(table[request, to // page]), to % page
            for name, cache in caches.items():
                cache[to_rank, goal[0], goal[1]] = initial[name][rank, source[0], source[1]]
        for step in range(steps):
            length = lengths[step][request]
            for position in range(length):
                rank, at, page = place(position, target.decode_context_parallel, interleave, target.page_size)
                local[step, rank, request] += 1
                if position >= length - q:
                    row = request * q + position - (length - q)
                    mapping[step, rank, row] = int(table[request, at // page]) * page + at % page
    return {**moved, **caches, "block_table": table, "slot_mapping": mapping, "local_lens": local}


def tokens_of(problem, shape, tensors, name, request, length):
    """Cached rows of a request in order."""
    every, ranks, found = problem.facts["dcp_interleave"], shape.decode_context_parallel, []
    for position in range(length):
        at = position // (every * ranks) * every + position % every
        page = int(tensors["block_table"][request, at // shape.page_size])
        found.append(tensors[name][(position // every) % ranks, page, at % shape.page_size])
    return torch.stack(found).double()


def check_ranks(problem, rows, q, ranks, cache, seed, steps=2):
    dtypes = {"kv_cache": cache, "experts": "mxfp4"}
    one = Shape(rows * q, q, 32, 4, dtypes=dtypes)
    several = replace(one, tensor_parallel=ranks)
    x, ids = inputs(problem, one, steps, seed), any_ids(problem, one, steps, seed)
    wanted = followed(problem, one, filled(problem, one, steps, seed), x, ids)
    found = followed(problem, several, filled(problem, several, steps, seed), x, ids)
    assert close(found.outputs["out"], wanted.outputs["out"])
    kinds = dict(problem.facts["layers"])
    for name, state in wanted.states.items():
        if part_of(name) in SHARDED:
            state = split(name, state, problem.file.sizes, ranks, kinds[int(name.split(".")[1])])
        assert close(found.states[name], state)


@QUICK
@given(
    st.sampled_from(["verify", "opening"]), st.integers(1, 3), QUERIES, st.sampled_from([2, 4]), CACHES, SEEDS
)  # fmt: skip
def test_ranks_of_tensor_parallelism_add_up_to_one(name, rows, q, ranks, cache, seed) -> None:
    check_ranks(load(name), rows, q, ranks, cache, seed)


def check_shards(problem, rows, q, shards, interleave, page, cache, seed, steps=2):
    target_problem = changed(problem, dcp_interleave=interleave)
    one = Shape(rows * q, q, 32, 4, dtypes={"kv_cache": cache})
    target = replace(one, decode_context_parallel=shards, page_size=page)
    x, ids = inputs(problem, one, steps, seed), any_ids(problem, one, steps, seed)
    initial = filled(problem, one, steps, seed)
    moved = relaid(problem, one, initial, target_problem, target, seed)
    wanted = followed(problem, one, initial, x, ids)
    found = followed(target_problem, target, moved, x, ids)
    assert close(found.outputs["out"], wanted.outputs["out"])
    for name in wanted.states:
        if name.endswith("kv_cache"):
            for request, length in enumerate(initial["seq_lens"][-1].tolist()):
                left = tokens_of(problem, one, {**initial, name: wanted.states[name]}, name, request, length)
                right = tokens_of(target_problem, target, {**moved, name: found.states[name]}, name, request, length)
                assert close(right, left)
        else:
            assert close(found.states[name], wanted.states[name])


@QUICK
@given(st.integers(1, 3), QUERIES, st.sampled_from([1, 2, 4]), st.booleans(), st.sampled_from([4, 8]), CACHES, SEEDS)
def test_shards_and_pages_do_not_matter(rows, q, shards, paged, page, cache, seed) -> None:
    """Decode context parallelism with one token or a whole page at a time, and pages of either size."""
    check_shards(load("verify"), rows, q, shards, page if paged else 1, page, cache, seed)


@pytest.mark.parametrize("q", [1, 3])
def test_the_whole_model_is_the_same_on_any_ranks_and_shards(q: int) -> None:
    check_ranks(load("whole"), 2, q, 4, "bf16", 5, steps=1)
    check_shards(load("whole"), 2, q, 4, 1, 8, "bf16", 6, steps=1)


def single_steps(problem, shape, initial, x, ids):
    """One step of q tokens as q steps of one token: outputs [rows], and the states after each token."""
    q, one = shape.query_tokens, replace(shape, rows=shape.requests, query_tokens=1)
    states, outs, after = {}, [], []
    for token in range(q):
        mine = torch.arange(shape.requests) * q + token
        now = {**initial, **states}
        for name in ("prefix_in", "blocks_in"):
            if name in initial:
                now[name] = initial[name][mine]
        now["seq_lens"] = initial["seq_lens"] - q + token + 1
        now["slot_mapping"] = initial["slot_mapping"][:, :, mine]
        if token:
            now["num_accepted"] = torch.ones_like(initial["num_accepted"])
        trace = followed(problem, one, now, x[:, mine], ids[:, :, mine])
        states = trace.states
        outs.append(trace.outputs["out"][0])
        after.append(states)
    return torch.stack(outs, dim=1).flatten(0, 1), after


@QUICK
@given(
    st.sampled_from(["verify", "opening"]), st.integers(1, 3), st.integers(1, 8), st.sampled_from([1, 2]), SEEDS
)  # fmt: skip
def test_a_verify_step_is_its_tokens_one_after_the_other(name, requests, q, shards, seed) -> None:
    """Rows, cache, and for each number of tokens that the next step may keep the state slot and the taps that it selects."""
    problem, shape = load(name), Shape(requests * q, q, 32, 4, decode_context_parallel=shards)
    initial = filled(problem, shape, 1, seed)
    x, ids = inputs(problem, shape, 1, seed), any_ids(problem, shape, 1, seed)
    step = followed(problem, shape, initial, x, ids)
    rows, after = single_steps(problem, shape, initial, x, ids)
    assert close(step.outputs["out"][0], rows)
    slots = initial["slots"].long()
    for name, state in step.states.items():
        for token in range(q):
            if name.endswith("recurrent_state"):
                assert close(state[slots[:, token]], after[token][name][slots[:, 0]])
            elif name.endswith("conv_state"):
                assert close(state[slots[:, 0], token : token + 3], after[token][name][slots[:, 0], :3])
        if name.endswith("kv_cache"):
            assert close(state, after[-1][name])


@QUICK
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 2]), SEEDS)
def test_padded_requests_and_wide_tables_change_nothing(requests, q, shards, seed) -> None:
    """A padded request behind the others, its null slot and null page poisoned, and a table with a spare column."""
    problem = load("verify")
    shape = Shape(requests * q, q, 32, 4, decode_context_parallel=shards)
    wide = replace(shape, rows=shape.rows + q)
    initial = filled(problem, shape, 2, seed)
    x, ids = inputs(problem, wide, 2, seed), any_ids(problem, wide, 2, seed)
    padded = dict(initial)
    for name, row in (("slots", 0), ("block_table", 0), ("prefix_in", 3.0), ("blocks_in", 3.0)):
        extra = torch.full((q if name.endswith("_in") else 1, *initial[name].shape[1:]), row, dtype=initial[name].dtype)
        padded[name] = torch.cat((initial[name], extra))
    padded["block_table"] = torch.cat((padded["block_table"], torch.zeros_like(padded["block_table"])), dim=1)
    for name, value, count in (
        ("num_accepted", 1, 1),
        ("seq_lens", 0, 1),
        ("local_lens", 0, 1),
        ("slot_mapping", -1, q),
    ):
        size = (*initial[name].shape[:-1], count)
        padded[name] = torch.cat((initial[name], torch.full(size, value, dtype=initial[name].dtype)), dim=-1)
    wanted = followed(problem, shape, initial, x[:, : shape.rows], ids[:, :, : shape.rows])
    found = followed(problem, wide, padded, x, ids)
    assert close(found.outputs["out"][:, : shape.rows], wanted.outputs["out"])
    assert found.outputs["out"].isfinite().all()
    for name, state in wanted.states.items():
        assert close(found.states[name], state)


@pytest.mark.parametrize("arm", [baseline, candidate], ids=["baseline", "candidate"])
@pytest.mark.parametrize(("name", "q"), [("tiny", 1), ("verify", 1), ("verify", 3)])
def test_a_second_call_equals_a_second_step(arm, name: str, q: int) -> None:
    """The same built step called twice on the same input is the same as a fresh build over what the first call left."""
    problem, shape = load(name), Shape(2 * q, q, 32, 4)
    initial, x = filled(problem, shape, 2, 9), inputs(problem, shape, 1, 9)
    for spec in problem.tensors(shape):
        if spec.role is Role.SCHEDULE:
            initial[spec.name][1] = initial[spec.name][0]
    twice = stepped(arm, problem, shape, initial, torch.cat((x, x)))
    first = stepped(arm, problem, shape, initial, x)
    second = stepped(arm, problem, shape, {**initial, **first.states}, x)
    assert same(twice.out[1], second.out[0])
    assert same(twice.ids[1], second.ids[0])
    for state, wanted in second.states.items():
        assert same(twice.states[state], wanted)
