"""The one-step check: every wrong constant is seen, norm weights are named, a state kept in bf16 shows, and nothing honest does."""

import pytest
import torch

from gatekeeper.domain.samples import Arm
from kernels_under_test.contract import Shape, StepOracle
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.mutants import controls
from kernels_under_test.kimi_k3.mutants.seam import named, of_candidate
from kernels_under_test.kimi_k3.one_step import oracle
from tests.kernels_under_test.kimi_k3.single_steps import judged, shot, stressed


def fact(name, factor):
    return of_candidate(facts=lambda facts: facts | {name: factor * facts[name]})


def scaled(ending, factor):
    def tensors(given):
        return given | {n: (given[n].float() * factor).to(given[n].dtype) for n in named(given, ending)}

    return of_candidate(tensors=tensors)


def _through_bf16(step, tensors, _seen, _shape):
    def run():
        step()
        live = tensors["slots"][tensors["slots"] > 0].long()
        for name in named(tensors, ".recurrent_state"):
            tensors[name][live] = tensors[name][live].to(torch.bfloat16).float()

    return run


HONEST = {
    "house": candidate,
    **{name: getattr(controls, name) for name in ("core_rearranged", "shared_expert_wide", "attention_in_pieces")},
}
EPS = ["residual_score", "layer_norm", "q_a_norm", "kv_a_norm", "latent_norm", "kda_norm", "kda_l2"]
NORMS = ["input_norm", "post_norm", "kv_a_norm", "o_norm", "latent_norm", "final_norm"]
OTHERS = [
    ("gate_lower_bound", 1.01),
    ("routed_scaling", 1.02),
    ("situ_beta", 1.05),
    ("situ_linear_beta", 0.5),
    ("eps.kda_l2", 1e4),
]


@pytest.mark.parametrize(("name", "rows"), [*((name, 8) for name in HONEST), ("house", 1)])
def test_nothing_honest_is_blocked(tiny, name, rows):
    reasons, record = judged(tiny, HONEST[name], rows=rows)
    assert reasons == []
    seen = {constant.name for constant in record.constants}
    assert {"layers.8.o_norm", "layers.7.latent_norm", "gate_lower_bound", "eps.kda_l2", "final_norm"} <= seen


@pytest.mark.parametrize("name", EPS)
@pytest.mark.parametrize("factor", [100.0, 0.0], ids=["a hundred times", "left out"])
def test_a_wrong_eps_is_wrong(tiny, name, factor):
    reasons, _ = judged(tiny, fact(f"eps.{name}", factor), runs=1)
    assert {reason.outcome.value for reason in reasons} == {"wrong"}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_weight_one_percent_off_is_seen_and_named(tiny, name):
    reasons, _ = judged(tiny, scaled(f".{name}" if name != "final_norm" else name, 1.01))
    assert any(reason.code == "COR_CONSTANT" and name in reason.message for reason in reasons)


def test_a_query_norm_weight_two_percent_off_is_seen_and_named(tiny):
    reasons, _ = judged(tiny, scaled(".q_a_norm", 1.02))
    assert any(reason.code == "COR_CONSTANT" and "q_a_norm" in reason.message for reason in reasons)


@pytest.mark.parametrize(("name", "factor"), OTHERS)
def test_another_constant_slightly_off_is_wrong(tiny, name, factor):
    reasons, _ = judged(tiny, fact(name, factor))
    assert {reason.outcome.value for reason in reasons} == {"wrong"}


def test_a_state_kept_in_bf16_shows_in_the_still_heads(tiny):
    reasons, record = judged(tiny, of_candidate(around=_through_bf16), runs=1)
    assert any("still heads" in reason.message for reason in reasons)
    still = next(error for error in record.errors if error.part)
    assert still.baseline.rms < 1e-5 < 5e-4 < still.candidate.rms


def test_a_twin_chosen_out_of_order_is_seen(tiny):
    weights, data = stressed(tiny, Shape(8, 1, 64, 4))
    ids = shot(Arm.CANDIDATE, candidate, weights, data).histories["expert_ids"]
    assert oracle().misordered(tiny, data.initial, ids) == 0
    # Of every pair of which one was chosen, the other: whoever was first is now second.
    alone = ~(ids.unsqueeze(-1) == (ids ^ 1).unsqueeze(-2)).any(dim=-1)
    swapped = torch.where(alone & (ids < 14), ids ^ 1, ids)
    assert oracle().misordered(tiny, data.initial, swapped) == 16  # one in each row of both layers


def test_rows_of_states_belong_to_the_request_that_writes_them(tiny):
    shape = Shape(4, 1, 64, 4, decode_context_parallel=2)
    _, data = stressed(tiny, shape)
    owners = oracle().owners(tiny, shape, data.initial)
    masks = tiny.untouched(shape, data.initial, 1)
    for name, owner in owners.items():
        written = ~masks[name].all(dim=-1)
        assert sorted(owner[written].unique().tolist()) == [0, 1, 2, 3], name
        assert not owner[~written].any()
    slots = data.initial["slots"].long()
    assert owners["layers.8.conv_state"][slots[2]].eq(2).all()


def test_the_oracle_offers_single_steps_over_small_streams_and_twins(tiny):
    assert isinstance(oracle(), StepOracle)
    weights, data = stressed(tiny, Shape(8, 1, 64, 4))
    router = weights.tensors["layers.8.router"]
    assert torch.equal(router[0::2], router[1::2])
    assert 1e-3 < data.noise[0].float().square().mean().sqrt() < 5e-3
    assert data.initial["layers.8.recurrent_state"][0].isnan().all()
    assert 0.9 < weights.draw(5, 1, "normal").noise[0].float().square().mean().sqrt() < 1.1
