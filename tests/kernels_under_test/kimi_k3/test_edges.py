"""Null slots, skipped stores, empty requests, page edges, odd router inputs, and residuals with none or many blocks."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.problem import load
from tests.kernels_under_test.kimi_k3.chain import bits, row_errors
from tests.kernels_under_test.kimi_k3.steps import POOR, changed, filled, followed, inputs, same, stepped

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
ARMS = [pytest.param(baseline, id="baseline"), pytest.param(candidate, id="candidate")]
ROUNDING = 0.15
"""Most that one row of one step was off by rounding is about half of this."""


def agrees(arm, problem, shape, initial, x) -> None:
    """The arm is near the oracle, and a state element that the oracle leaves alone keeps its bits."""
    ran = stepped(arm, problem, shape, initial, x)
    trace = followed(problem, shape, initial, x, ran.ids)
    assert ran.out.isfinite().all()
    assert row_errors(ran.out, trace.outputs["out"]).max() < ROUNDING
    for name, wanted in trace.states.items():
        before, found = initial[name], ran.states[name]
        kept = (wanted == before.double()) | (wanted.isnan() & before.double().isnan())
        assert bits(before)[kept].equal(bits(found)[kept]), name
        if not kept.all():
            scale = wanted[~kept].norm().clamp(min=1e-3)
            assert (found.double()[~kept] - wanted[~kept]).norm() < 0.1 * scale, name


@pytest.mark.parametrize("arm", ARMS)
@QUICK
@given(
    st.integers(2, 4),
    st.lists(
        st.sampled_from(["plain", "null start", "negative start", "skipped store", "empty"]), min_size=4, max_size=4
    ),
    st.sampled_from([1, 2]),
    st.integers(0, 1 << 32),
)
def test_null_slots_and_empty_requests(arm, q, kinds, shards, seed) -> None:
    """The start slot alone decides whether a request lives; a null slot behind it only skips that store."""
    problem, requests = load("verify"), 8 // q
    shape = Shape(requests * q, q, 48, 4, decode_context_parallel=shards)
    initial = filled(problem, shape, 1, seed)
    for request, kind in enumerate(kinds[:requests]):
        kept = int(initial["num_accepted"][0, request])
        if kind in ("null start", "negative start"):
            initial["slots"][request, kept - 1] = 0 if kind == "null start" else -1
        elif kind == "skipped store":
            spare = [t for t in range(1, q) if t != kept - 1]
            initial["slots"][request, spare] = 0
        elif kind == "empty":
            initial["seq_lens"][0, request] = initial["local_lens"][0, :, request] = 0
            initial["slot_mapping"][0, :, request * q : (request + 1) * q] = -1
            initial["block_table"][request] = 0
    agrees(arm, problem, shape, initial, inputs(problem, shape, 1, seed))


@pytest.mark.parametrize("arm", ARMS)
def test_a_request_without_tokens_attends_to_nothing(arm) -> None:
    """The attention output of an empty request is exactly zero: with a window of the MLA layer its slots do not matter."""
    problem, shape = load("verify"), Shape(4, 2, 32, 4)
    initial, x = filled(problem, shape, 1, 1), inputs(problem, shape, 1, 1)
    initial["seq_lens"][0, 1] = initial["local_lens"][0, :, 1] = 0
    initial["slot_mapping"][0, :, 2:] = -1
    initial["block_table"][1] = 0
    ran = stepped(arm, problem, shape, initial, x)
    other = dict(initial)
    for name in ("layers.7.w_uv", "layers.7.q_b"):
        other[name] = initial[name] * 2
    changed_weights = stepped(arm, problem, shape, other, x)
    assert same(ran.out[0, 2:], changed_weights.out[0, 2:])
    assert not same(ran.out[0, :2], changed_weights.out[0, :2])


@pytest.mark.parametrize("arm", ARMS)
@settings(QUICK, max_examples=4)
@given(st.integers(1, 4), st.sampled_from([4, 8]), st.sampled_from([1, 2]), st.integers(-1, 1), st.integers(0, 1 << 32))
def test_lengths_at_page_and_shard_edges(arm, q, page, shards, beside, seed) -> None:
    """Steps that end before, on and behind a page edge of every shard, and a first step that is all there is."""
    problem = load("verify")
    for length in {max(q, page + beside), max(q, 2 * page * shards + beside), q}:
        shape = Shape(q, q, length, page, decode_context_parallel=shards)
        agrees(arm, problem, shape, filled(problem, shape, 1, seed), inputs(problem, shape, 1, seed))


@pytest.mark.parametrize("arm", ARMS)
def test_kept_tokens_follow_each_other_over_many_steps(arm) -> None:
    """Requests that keep 1 to q tokens a step, over whatever earlier steps left in slots, columns and cache rows."""
    problem, shape, steps = load("verify"), Shape(8, 4, 120, 4), 16
    initial = filled(problem, shape, steps, 3)
    kept = initial["num_accepted"]
    assert set(kept[1:].flatten().tolist()) == {1, 2, 3, 4}
    assert (initial["seq_lens"][1:] - initial["seq_lens"][:-1]).equal(kept[1:])
    agrees(arm, problem, shape, initial, inputs(problem, shape, steps, 3))


@pytest.mark.parametrize("arm", ARMS)
def test_the_number_of_query_tokens_may_change_from_step_to_step(arm) -> None:
    """2 requests with 3, 1, 4 and 2 tokens: how many were kept is counted in tokens of the step before, not of this one."""
    problem, context = load("verify"), 40
    states: dict[str, torch.Tensor] = {}
    lengths = torch.tensor([9, 14])
    for step, (before, q) in enumerate([(8, 3), (3, 1), (1, 4), (4, 2)]):
        shape = Shape(2 * q, q, context, 4)
        initial = filled(problem, shape, 1, 6)
        if step:
            initial |= states
            initial["num_accepted"][0] = torch.tensor([before, 1])
            lengths = lengths - before + initial["num_accepted"][0] + q
        table = torch.arange(1, 21).view(2, 10)
        initial["block_table"].zero_()[:, :10] = table
        initial["seq_lens"][0] = initial["local_lens"][0, 0] = lengths
        position = (lengths.unsqueeze(1) - q + torch.arange(q)).long()
        initial["slot_mapping"][0, 0] = (table.gather(1, position // 4) * 4 + position % 4).flatten()
        if not step:
            cache = initial["layers.7.kv_cache"]
            cache[0, 1:21] = torch.where(cache[0, 1:21].isnan(), 0.5, cache[0, 1:21])
        x = inputs(problem, shape, 1, step)
        agrees(arm, problem, shape, initial, x)
        states = stepped(arm, problem, shape, initial, x).states


@pytest.mark.parametrize("arm", ARMS)
def test_equal_logits_choose_the_first_experts(arm) -> None:
    problem, shape = load("tiny"), Shape(3, 1, 16, 4)
    initial = filled(problem, shape, 1, 2)
    for layer in (7, 8):
        initial[f"layers.{layer}.router"].zero_()
        initial[f"layers.{layer}.router_bias"].zero_()
    ids = stepped(arm, problem, shape, initial, inputs(problem, shape, 1, 2)).ids
    assert ids.eq(torch.arange(4)).all()


@pytest.mark.parametrize("arm", ARMS)
def test_experts_without_a_number_come_last(arm) -> None:
    """Twelve of sixteen logits are NaN: the four others are chosen, whatever their bias, and the output has numbers."""
    problem, shape = load("tiny"), Shape(2, 1, 16, 4)
    initial = filled(problem, shape, 1, 2)
    good = [1, 6, 7, 14]
    for layer in (7, 8):
        bad = torch.ones(16, dtype=torch.bool)
        bad[good] = False
        initial[f"layers.{layer}.router"][bad] = torch.nan
    ran = stepped(arm, problem, shape, initial, inputs(problem, shape, 1, 2))
    assert ran.ids.sort(dim=-1).values.eq(torch.tensor(good)).all()
    assert ran.out.isfinite().all()


@pytest.mark.parametrize("arm", ARMS)
def test_a_large_bias_chooses_but_does_not_weigh(arm) -> None:
    """All rows take the same experts in the order of their bias; the oracle weighs them by the scores alone."""
    problem, shape = load("tiny"), Shape(4, 1, 16, 4)
    initial = filled(problem, shape, 1, 2)
    for layer in (7, 8):
        initial[f"layers.{layer}.router_bias"][[9, 3, 12, 0]] = torch.tensor([1e4, 1e3, 1e2, 10.0])
    x = inputs(problem, shape, 1, 2)
    ran = stepped(arm, problem, shape, initial, x)
    assert ran.ids.eq(torch.tensor([9, 3, 12, 0])).all()
    trace = followed(problem, shape, initial, x, ran.ids)
    assert row_errors(ran.out, trace.outputs["out"]).max() < ROUNDING
    assert not trace.shortfall.any()


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize(("block_size", "first"), [(1, 7), (3, 3), (8, 1), (12, 1)])
def test_residuals_over_any_number_of_blocks(arm, block_size: int, first: int) -> None:
    """Up to eight blocks and the prefix; with a block size of 1 every layer opens one, with 12 none does."""
    problem = changed(load("verify"), block_size=block_size)
    assert problem.facts["first_blocks"] == first
    shape = Shape(4, 2, 24, 4)
    agrees(arm, problem, shape, filled(problem, shape, 2, 4), inputs(problem, shape, 2, 4))


@pytest.mark.parametrize("arm", ARMS)
def test_the_first_layer_has_the_embedding_alone(arm) -> None:
    """No stream enters, the embedding is block 0, and the one source of the first residual is mixed as it is."""
    problem, shape = load("opening"), Shape(2, 1, 24, 4)
    assert not {"prefix_in", "blocks_in"} & {spec.name for spec in problem.tensors(shape)}
    assert problem.facts["first_blocks"] == 0
    initial, x = filled(problem, shape, 2, 4), inputs(problem, shape, 2, 4)
    agrees(arm, problem, shape, initial, x)
    turned = {**initial, "layers.0.attn_res.query": initial["layers.0.attn_res.query"].neg()}
    one, other = stepped(arm, problem, shape, initial, x), stepped(arm, problem, shape, turned, x)
    assert same(one.out, other.out)


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("scale", [2.0**-4, 0.07, 1.0])
def test_scales_of_the_fp8_cache_need_not_be_powers_of_two(arm, scale: float) -> None:
    problem = changed(load("verify"), k_scale=scale, q_scale=1.3 * scale)
    shape = Shape(4, 2, 32, 4, dtypes={"kv_cache": "fp8_e4m3"})
    initial = filled(problem, shape, 2, 4)
    assert initial["layers.7.kv_cache"].dtype == torch.float8_e4m3fn
    agrees(arm, problem, shape, initial, inputs(problem, shape, 2, 4))


def test_a_poor_id_is_no_expert() -> None:
    """What ids hold before a step would be seen: it names the same expert twice."""
    problem, shape = load("tiny"), Shape(1, 1, 16, 4)
    ids = torch.full((1, 2, 1, 4), POOR)
    with pytest.raises(ValueError, match="distinct ids"):
        followed(problem, shape, filled(problem, shape, 1, 1), inputs(problem, shape, 1, 1), ids)
