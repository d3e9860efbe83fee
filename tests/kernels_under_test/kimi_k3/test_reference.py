"""The oracle against closed forms, invariances and its own repetition."""

import pytest
import torch

from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3 import reference
from kernels_under_test.kimi_k3.baseline.stock import baseline
from tests.kernels_under_test.kimi_k3.chain import run

F64 = torch.float64


@pytest.fixture(scope="module")
def made(tiny):
    """A short run of the stock path, and what the oracle says about it."""
    one = run(baseline, tiny, Shape(3, 1, 32, 4), steps=8)
    return one, follow(tiny, one)


def follow(problem, one, **changed):
    given = {"initial": one.initial, "x": one.x, "expert_ids": one.ids} | changed
    return reference.oracle().follow(problem, one.shape, **given)


def now(**changed) -> reference.Schedule:
    given = {
        "seq_lens": [1],
        "block_table": torch.tensor([[1, 0]]),
        "slots": [[1]],
        "slot_mapping": torch.tensor([[4]]),
        "page": 4,
        "ranks": 1,
    }
    return reference.Schedule(**(given | changed))


def weights(one, index: int) -> reference.Weights:
    wide = {n: t.to(F64) if t.is_floating_point() else t for n, t in one.initial.items()}
    return reference.Weights(wide, f"layers.{index}.")


def test_first_kda_step_on_an_empty_state_has_a_closed_form(tiny, made) -> None:
    facts, w = tiny.facts, weights(made[0], 8)
    w["recurrent_state"][1] = 0
    w["conv_state"][1] = 0
    x = torch.randn(1, 128, dtype=F64, generator=torch.Generator().manual_seed(1))
    y = w["in_proj"] @ x[0]
    z = y[:384] * w["conv"][:, 3]
    z = z * torch.sigmoid(z)
    q, k, v = z.view(3, 4, 32)
    beta = torch.sigmoid(y[544:548])
    q = q * (q.square().sum(-1, keepdim=True) + 1e-6).rsqrt() * 32**-0.5
    k = k * (k.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    o = (beta * (q * k).sum(-1)).unsqueeze(-1) * v
    o = o * (o.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w["o_norm"] * torch.sigmoid(y[384:512].view(4, 32))
    found = reference.kda(x, w, facts, now())
    assert torch.allclose(found[0], w["o_proj"] @ o.flatten(), atol=1e-12)
    assert torch.allclose(w["recurrent_state"][1], torch.einsum("h,hv,hk->hvk", beta, v, k), atol=1e-12)
    assert torch.equal(w["conv_state"][1, 2], y[:384])


def test_kda_without_input_only_decays_between_the_bounds(tiny, made) -> None:
    w = weights(made[0], 8)
    w["conv_state"][1] = 0
    w["recurrent_state"][1] = 1
    reference.kda(torch.zeros(1, 128, dtype=F64), w, tiny.facts, now())
    after = w["recurrent_state"][1]
    alpha = torch.exp(-5 * torch.sigmoid(w["a_log"].exp().unsqueeze(1) * w["dt_bias"].view(4, 32)))
    assert torch.allclose(after, alpha.unsqueeze(1).expand(4, 32, 32), atol=1e-12)


def test_attention_over_one_token_is_that_token(tiny, made) -> None:
    w = weights(made[0], 7)
    x = torch.randn(1, 128, dtype=F64, generator=torch.Generator().manual_seed(2))
    y = w["in_proj"] @ x[0]
    c = y[48:112] * (y[48:112].square().mean() + 1e-5).rsqrt() * w["kv_a_norm"]
    o = torch.einsum("hvl,l->hv", w["w_uv"], c).flatten() * torch.sigmoid(y[128:])
    assert torch.allclose(reference.mla(x, w, tiny.facts, now())[0], w["o_proj"] @ o, atol=1e-12)
    assert torch.allclose(w["kv_cache"][0, 1, 0], torch.cat((c, y[112:128])), atol=1e-12)


def test_absorbed_and_explicit_attention_agree(tiny, made) -> None:
    """The form that implementations use, in float64, over several tokens."""
    w = weights(made[0], 7)
    generator = torch.Generator().manual_seed(3)
    w["kv_cache"][0, 1] = torch.randn(4, 80, dtype=F64, generator=generator)
    x = torch.randn(1, 128, dtype=F64, generator=generator)
    found = reference.mla(x, w, tiny.facts, now(seq_lens=[3], slot_mapping=torch.tensor([[6]])))[0]
    y = w["in_proj"] @ x[0]
    q = (w["q_b"] @ (y[:48] * (y[:48].square().mean() + 1e-5).rsqrt() * w["q_a_norm"])).view(4, 48)
    query = torch.cat((torch.einsum("hn,hnl->hl", q[:, :32], w["w_uk"]), q[:, 32:]), dim=1)
    rows = w["kv_cache"][0, 1, :3]
    latent = torch.softmax(query @ rows.T * 48**-0.5, dim=-1) @ rows[:, :64]
    o = torch.einsum("hl,hvl->hv", latent, w["w_uv"]).flatten() * torch.sigmoid(y[128:])
    assert torch.allclose(found, w["o_proj"] @ o, atol=1e-12)


def test_residual_mix_of_one_or_of_equal_sources_is_the_source() -> None:
    v, gamma, query = torch.randn(3, 2, 16, dtype=F64, generator=torch.Generator().manual_seed(4)).unbind()
    assert torch.allclose(reference.residual_mix([v], gamma[0], query[0], 1e-5), v)
    assert torch.allclose(reference.residual_mix([v, v, v], gamma[0], query[0], 1e-5), v)


def test_residual_mix_scores_are_free_of_the_source_size() -> None:
    a, b = torch.randn(2, 1, 16, dtype=F64, generator=torch.Generator().manual_seed(5)).unbind()
    gamma, query = torch.ones(16, dtype=F64), torch.linspace(-1, 1, 16, dtype=F64)
    share = torch.softmax(torch.stack([x[0] @ query / x[0].square().mean().sqrt() for x in (a, b)]), dim=0)
    found = reference.residual_mix([a * 100, b], gamma, query, 0.0)
    assert torch.allclose(found, share[0] * a * 100 + share[1] * b)


def test_latent_experts_have_a_closed_form(tiny, made) -> None:
    """All experts at once, masked by the routed weights, with the constants written out."""
    w = weights(made[0], 7)
    x = torch.randn(3, 128, dtype=F64, generator=torch.Generator().manual_seed(7))
    scores = 1 / (1 + torch.exp(-x @ w["router"].T))
    ids = (scores + w["router_bias"]).topk(4).indices
    share = torch.zeros_like(scores).scatter(1, ids, scores.gather(1, ids))
    share = share / share.sum(1, keepdim=True)

    def bent(both: torch.Tensor) -> torch.Tensor:
        g, u = both.chunk(2, dim=-1)
        return 4 * torch.tanh(g / 4) / (1 + torch.exp(-g)) * 25 * torch.tanh(u / 25)

    hidden = bent(torch.einsum("rl,eil->rei", x @ w["latent_down"].T, w["w13"]))
    latent = torch.einsum("re,rei,eli->rl", share, hidden, w["w2"])
    normed = latent / (latent.square().mean(1, keepdim=True) + 1e-5).sqrt() * w["latent_norm"]
    wanted = normed @ w["latent_up"].T + bent(x @ w["shared_gate_up"].T) @ w["shared_down"].T
    found, shortfall = reference.latent_moe(x, ids, w, tiny.facts)
    assert torch.allclose(found, wanted, atol=1e-12)
    assert not shortfall.any()


def test_streams_pass_through_the_window_as_defined(tiny, made) -> None:
    """Layer 7 adds to the prefix; layer 8 turns the prefix into a block and begins a new one with its attention output."""
    one, trace = made
    facts, step = tiny.facts, 0
    at = {index: weights(one, index) for index in (7, 8)}
    moment = reference._schedule(one.initial, one.shape, step, facts)
    first = one.initial["blocks_in"][:, 0].to(F64)
    p = one.initial["prefix_in"].to(F64) + one.x[step].to(F64)

    def normed(index: int, sources: list[torch.Tensor], residual: str, norm: str) -> torch.Tensor:
        w = at[index]
        mix = reference.residual_mix(sources, w[f"{residual}.gamma"], w[f"{residual}.query"], 1e-5)
        return mix / (mix.square().mean(1, keepdim=True) + 1e-5).sqrt() * w[norm]

    p = p + reference.mla(normed(7, [first, p], "attn_res", "input_norm"), at[7], facts, moment)
    ffn, _ = reference.latent_moe(normed(7, [first, p], "mlp_res", "post_norm"), one.ids[step, 0].long(), at[7], facts)
    second = p + ffn
    p = reference.kda(normed(8, [first, second], "attn_res", "input_norm"), at[8], facts, moment)
    sources = [first, second, p]
    ffn, _ = reference.latent_moe(normed(8, sources, "mlp_res", "post_norm"), one.ids[step, 1].long(), at[8], facts)
    last = {name: one.initial[name].to(F64) for name in ("final_res.gamma", "final_res.query", "final_norm")}
    mix = reference.residual_mix([first, second, p + ffn], last["final_res.gamma"], last["final_res.query"], 1e-5)
    out = mix / (mix.square().mean(1, keepdim=True) + 1e-5).sqrt() * last["final_norm"]
    assert torch.allclose(out, trace.outputs["out"][step], atol=1e-12)


def test_order_of_the_expert_slots_does_not_matter(tiny, made) -> None:
    one, trace = made
    turned = follow(tiny, one, expert_ids=one.ids.flip(-1))
    assert torch.allclose(turned.outputs["out"], trace.outputs["out"], atol=1e-12)


def test_following_in_two_parts_equals_following_once(tiny, made) -> None:
    one, trace = made
    schedules = [s.name for s in tiny.tensors(one.shape) if s.role is Role.SCHEDULE]
    first = follow(tiny, one, x=one.x[:3], expert_ids=one.ids[:3])
    later = {**one.initial, **first.states, **{name: one.initial[name][3:] for name in schedules}}
    second = follow(tiny, one, initial=later, x=one.x[3:], expert_ids=one.ids[3:])
    assert torch.equal(torch.cat((first.outputs["out"], second.outputs["out"])), trace.outputs["out"])
    for name, state in trace.states.items():
        assert torch.equal(second.states[name].nan_to_num(), state.nan_to_num())


@pytest.mark.parametrize("page", [4, 8])
def test_context_parallel_shards_give_the_same(tiny, page: int) -> None:
    """Two ranks hold the same tokens as one: the float64 outputs agree."""
    single = run(baseline, tiny, Shape(3, 1, 32, page), steps=6)
    shape = Shape(3, 1, 32, page, decode_context_parallel=2)
    double = dict(run(baseline, tiny, shape, steps=6).initial)
    assert double["seq_lens"].equal(single.initial["seq_lens"])
    cache, shards = single.initial["layers.7.kv_cache"], double["layers.7.kv_cache"]
    for row in range(3):
        for token in range(int(single.initial["seq_lens"][0, row]) - 1):
            source = cache[0, int(single.initial["block_table"][row, token // page]), token % page]
            local = token // 2
            shards[token % 2, int(double["block_table"][row, local // page]), local % page] = source
    found = reference.oracle().follow(tiny, shape, double, single.x, single.ids)
    wanted = follow(tiny, single)
    assert torch.allclose(found.outputs["out"], wanted.outputs["out"], atol=1e-12)
    name = "layers.8.recurrent_state"
    assert torch.allclose(found.states[name][1:], wanted.states[name][1:], atol=1e-12)


def test_the_initial_tensors_stay_as_they_are(tiny, made) -> None:
    one, _ = made
    before = {name: tensor.clone() for name, tensor in one.initial.items()}
    follow(tiny, one)
    for name, tensor in one.initial.items():
        assert tensor.view(torch.uint8).equal(before[name].view(torch.uint8)), name


def test_only_addressed_states_change(tiny, made) -> None:
    one, trace = made
    for name, mask in tiny.untouched(one.shape, one.initial, 8).items():
        was, found = one.initial[name].to(F64), trace.states[name]
        assert torch.equal(found[mask].nan_to_num(7), was[mask].nan_to_num(7))
        assert trace.states[name][~mask].isfinite().all()


def test_shortfall_is_the_gap_to_the_last_chosen_score(tiny, made) -> None:
    one, _ = made
    w = weights(one, 8)
    x = torch.randn(2, 128, dtype=F64, generator=torch.Generator().manual_seed(6))
    ranking = torch.sigmoid(x @ w["router"].T) + w["router_bias"]
    order = ranking.argsort(dim=-1, descending=True)
    ids = order[:, :4].clone()
    ids[1, 0] = order[1, 6]
    _, shortfall = reference.latent_moe(x, ids, w, tiny.facts)
    assert shortfall[0] == 0
    assert torch.isclose(shortfall[1], ranking[1, order[1, 3]] - ranking[1, order[1, 6]])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda ids: ids.fill_(-7), "expected ids in 0..15, found -7"),
        (lambda ids: ids.index_fill_(-1, torch.tensor([0]), 16), "found 16"),
        (lambda ids: ids.copy_(ids[..., :1].expand_as(ids).clone()), "distinct ids"),
    ],
)
def test_impossible_ids_are_refused(tiny, made, change, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        follow(tiny, made[0], expert_ids=change(made[0].ids.clone()))


def test_wrong_shapes_are_refused(tiny, made) -> None:
    one, _ = made
    with pytest.raises(ValueError, match="x: expected"):
        follow(tiny, one, x=one.x[:, :2])
    with pytest.raises(ValueError, match="expected shape"):
        follow(tiny, one, expert_ids=one.ids[:, :1])
    with pytest.raises(ValueError, match="expected integers"):
        follow(tiny, one, expert_ids=one.ids.float())
