"""One rank's problem and oracle: with what its peers really send, a rank is the whole model; and what a run may write."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels_under_test.contract import OUT, Role, Shape
from kernels_under_test.kimi_k3 import reference
from kernels_under_test.kimi_k3.cuda.sizes import TOP_K, kernel_bytes
from kernels_under_test.kimi_k3.device.oracle import RankOracle
from kernels_under_test.kimi_k3.device.problem import SLOTS, RankProblem, load
from kernels_under_test.kimi_k3.parts import SHARDED, part_of
from kernels_under_test.kimi_k3.problem import PROBLEMS, KimiProblem
from kernels_under_test.kimi_k3.reference import KimiOracle, Weights, rms_norm, situ
from kernels_under_test.kimi_k3.sizes import Layer, ProblemFile, read

ROWS, STEPS = 3, 4
SHAPE = Shape(rows=ROWS, query_tokens=1, context=64, page_size=8, tensor_parallel=2)
LAYERS = (Layer(9, "kda"), Layer(10, "kda"))


def tiny(communication: str, ranks: tuple[int, ...]) -> ProblemFile:
    file = read(PROBLEMS / "tiny.toml")
    limits = replace(file.limits, communication=communication, tensor_parallel=ranks, page_sizes=(8,))
    return replace(file, layers=LAYERS, limits=limits, dtypes={**file.dtypes, "experts": ("mxfp4",), "act": ("bf16",)})


@pytest.fixture(scope="module")
def problem() -> RankProblem:
    return RankProblem(tiny("shard", (2,)))


def filled(problem, shape, *, regime="normal", seed=5):
    tensors = {
        spec.name: torch.empty((STEPS, *spec.shape) if spec.role is Role.SCHEDULE else spec.shape, dtype=getattr(torch, spec.dtype))
        for spec in problem.tensors(shape)
        if spec.role not in (Role.INPUT, Role.OUTPUT)
    }  # fmt: skip
    problem.fill(shape, tensors, steps=STEPS, seed=seed, regime=regime)
    return tensors


def ids_of(rows: int, layers: int, experts: int, top_k: int) -> torch.Tensor:
    gen = torch.Generator().manual_seed(3)
    every = [[torch.randperm(experts, generator=gen)[:top_k] for _ in range(rows)] for _ in range(layers)]
    return torch.stack([torch.stack(each) for each in every]).int()


class Peer:
    """What rank 1 computes and leaves for rank 0, one layer at a time, from the whole model's tensors."""

    def __init__(self, initial, facts, x):
        self.facts, self.sent = facts, {}
        wide = reference._widened(initial)
        self.layers = {index: Weights(wide, f"layers.{index}.") for index, _ in facts["layers"]}
        self.now = reference._schedule(initial, SHAPE, 0, facts)
        self.streams = reference._entry(initial, x.double())

    def layer(self, index, ids):
        f, s, w = self.facts, self.streams, self.layers[index]
        zero, one = w.of_ranks(2)
        at, half = f"layers.{index}.", s.prefix.shape[1] // 2
        prefix = s.prefix + s.delta
        x = self.normed([*s.blocks, prefix], w, "attn_res", "input_norm")
        other = reference.kda(x, one, f, self.now)
        self.sent[at + "peers.o"] = other[None]
        prefix = prefix + reference.kda(x, zero, f, self.now) + other
        x = self.normed([*s.blocks, prefix], w, "mlp_res", "post_norm")
        self.sent[at + "gathered.logits"] = x @ w["router"].T
        down = x @ w["latent_down"].T
        self.sent[at + "gathered.latent"] = down
        scores = torch.sigmoid(x @ w["router"].T)
        latents, shared = [], []
        for own in (zero, one):
            latent = torch.zeros_like(down)
            for row in range(ROWS):
                picked = scores[row, ids[row]]
                for share, expert in zip(
                    picked / (picked.sum() + f["eps.renormalise"]), ids[row].tolist(), strict=True
                ):
                    latent[row] += share * reference.mlp(down[row], own["w13"][expert], own["w2"][expert], f)
            latents.append(latent)
            gate, up = (x @ own["shared_gate_up"].T).chunk(2, dim=-1)
            shared.append(situ(gate, up, f["situ_beta"], f["situ_linear_beta"]) @ own["shared_down"].T)
        self.sent[at + "peers.latent"] = latents[1][None]
        self.sent[at + "peers.shared"] = shared[1][None, :, :half]
        routed = rms_norm(sum(latents), w["latent_norm"], f["eps.latent_norm"]) @ w["latent_up"].T
        self.sent[at + "gathered.out"] = delta = routed + sum(shared)
        self.streams = reference.Streams(prefix, s.blocks, delta)

    def normed(self, sources, w, call, norm):
        f = self.facts
        mix = reference.residual_mix(sources, w[f"{call}.gamma"], w[f"{call}.query"], f["eps.residual_score"])
        return rms_norm(mix, w[norm], f["eps.layer_norm"])


def test_a_rank_with_what_its_peer_really_sends_is_the_whole_model(problem):
    whole = KimiProblem(tiny("simulated", (1, 2)))
    initial = filled(whole, SHAPE)
    x = torch.randn(1, ROWS, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
    ids = ids_of(ROWS, 2, problem.sizes.experts, problem.sizes.top_k)
    wanted = KimiOracle().follow(whole, SHAPE, initial, x, ids[None])
    peer = Peer(initial, whole.facts, x[0])
    for place, (index, _) in enumerate(whole.facts["layers"]):
        peer.layer(index, ids[place].long())
    given = {name: value[0] if part_of(name) in SHARDED else value for name, value in initial.items()} | peer.sent
    for index in (9, 10):
        given[f"layers.{index}.latent_up"] = given[f"layers.{index}.latent_up"][:64]
    for name in [n for n in peer.sent if ".gathered." in n]:
        given[name] = given[name].clone()
        given[name][:, : given[name].shape[1] // 2] = 77  # this rank's own columns: it must not read them
    found = RankOracle().follow(problem, SHAPE, given, x, ids[None])
    torch.testing.assert_close(found.outputs[OUT], wanted.outputs[OUT], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.shortfall, wanted.shortfall, rtol=1e-10, atol=1e-10)
    for index in (9, 10):
        for state in ("recurrent_state", "conv_state"):
            name = f"layers.{index}.{state}"
            torch.testing.assert_close(
                found.states[name], wanted.states[name][0], rtol=1e-10, atol=1e-10, equal_nan=True
            )
        for box in ("logits", "latent", "out"):
            name = f"layers.{index}.gathered.{box}"
            torch.testing.assert_close(found.states[name], peer.sent[name], rtol=1e-10, atol=1e-10)


def test_several_steps_at_once_are_the_same_as_one_after_the_other(problem):
    initial = filled(problem, SHAPE, regime="padded")
    gen = torch.Generator().manual_seed(2)
    x = torch.randn(STEPS, ROWS, 128, generator=gen).bfloat16()
    ids = torch.stack([ids_of(ROWS, 2, problem.sizes.experts, problem.sizes.top_k).roll(t, 2) for t in range(STEPS)])
    together = RankOracle().follow(problem, SHAPE, initial, x, ids)
    now = {
        name: value.double() if ".gathered." in name or name.endswith("_state") else value
        for name, value in initial.items()
    }
    for t in range(STEPS):
        one = RankOracle().follow(problem, SHAPE, now, x[t : t + 1], ids[t : t + 1])
        torch.testing.assert_close(one.outputs[OUT][0], together.outputs[OUT][t], rtol=1e-10, atol=1e-10)
        now |= one.states
    for name, value in together.states.items():
        torch.testing.assert_close(now[name], value, rtol=1e-10, atol=1e-10, equal_nan=True)


def test_what_a_run_may_write_is_its_rows_slots_and_this_ranks_columns(problem):
    initial = filled(problem, SHAPE, regime="padded")
    assert initial["slots"].tolist()[-1] == 0 and len(set(initial["slots"].tolist())) == ROWS
    masks = problem.untouched(SHAPE, initial, STEPS)
    assert set(masks) == {spec.name for spec in problem.tensors(SHAPE) if spec.role is Role.STATE}
    for name, mask in masks.items():
        written = (~mask).reshape(mask.shape[0], -1)
        if ".gathered." in name:
            assert written[:, : mask.shape[1] // 2].all() and not written[:, mask.shape[1] // 2 :].any()
        else:
            assert sorted(written.any(dim=1).nonzero().view(-1).tolist()) == sorted(initial["slots"][:-1].tolist())
            assert not written[0].any() and torch.isnan(initial[name][0]).all()


def test_values_depend_on_seed_and_name_alone_and_have_the_size_that_they_should(problem):
    one, again, other = (filled(problem, SHAPE, seed=seed) for seed in (5, 5, 6))
    for name, value in one.items():
        raw = [t[name].contiguous().view(torch.uint8) for t in (one, again, other)]
        assert torch.equal(raw[0], raw[1]), name
        assert name == "slots" or not torch.equal(raw[0], raw[2]), name
        assert value.dtype == torch.uint8 or name.endswith("_state") or bool(torch.isfinite(value.float()).all()), name
    codes = one["layers.9.w13"]
    both = torch.cat((codes & 15, codes >> 4)).view(-1)
    assert torch.bincount(both.long(), minlength=16).float().std() < 0.1 * both.numel() / 16
    weight = one["layers.9.in_proj"].float()
    assert abs(float(weight[:64].std()) * 128**0.5 - 1) < 0.1
    rows = 4 * problem.sizes.kda_width + problem.sizes.forget_rank + problem.sizes.heads
    assert not weight[rows:].any() and weight[rows - 1].any()
    spread = one["layers.9.attn_res.query"].float().std() * 128**0.5
    assert abs(float(spread) / 2.3 - 1) < 0.2
    decay = torch.sigmoid(one["layers.9.dt_bias"].view(problem.sizes.heads, -1)[1::2]) * -5
    assert float(decay.exp().min()) > 0.9


def test_the_full_size_problem_has_the_shapes_that_kernels_are_compiled_for():
    full = load("rank_kda")
    shape = Shape(rows=8, query_tokens=1, context=1024, page_size=64, tensor_parallel=8)
    sizes = {spec.name: (spec.shape, spec.dtype) for spec in full.tensors(shape)}
    assert sizes["layers.81.recurrent_state"] == ((SLOTS, 12, 128, 128), "float32")
    assert sizes["layers.82.w13"] == ((896, 768, 1792), "uint8")
    assert sizes["layers.82.gathered.logits"] == ((8, 896), "float32")
    assert sizes["layers.81.latent_up"] == ((896, 3584), "bfloat16")
    assert sizes["blocks_in"] == ((8, 7, 7168), "bfloat16")
    # Two layers of what the formulas beside the kernels say, which count some activations twice, as they are written and read.
    layer = sum(part.at(1) for part in kernel_bytes(TOP_K, sharded=True))
    assert 0.99 < full.bytes_needed(replace(shape, rows=1)) / (2 * layer) < 1.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tensor_parallel": 1}, "tensor_parallel must be one of [8], found 1"),
        ({"query_tokens": 2}, "query_tokens must be one of [1], found 2"),
        ({"rows": 65}, "rows must be in 1..64, found 65"),
        ({"dtypes": {"experts": "bf16"}}, "dtype of experts must be mxfp4, found bf16"),
    ],
)  # fmt: skip
def test_what_the_problem_is_not_defined_at_is_named(changes, reason):
    shape = replace(Shape(rows=8, query_tokens=1, context=1024, page_size=64, tensor_parallel=8), **changes)
    assert load("rank_kda").check(shape) == reason
    with pytest.raises(ValueError, match="rank_kda"):
        load("rank_kda").tensors(shape)


def test_a_window_that_opens_a_block_is_refused():
    with pytest.raises(ValueError, match="none of them opens"):
        RankProblem(replace(tiny("shard", (2,)), layers=(Layer(8, "kda"), Layer(9, "kda"))))
    with pytest.raises(ValueError, match="rank_nothing"):
        load("rank_nothing")


def test_ids_that_no_arm_may_choose_are_refused(problem):
    initial = filled(problem, SHAPE)
    x = torch.zeros(1, ROWS, 128, dtype=torch.bfloat16)
    good = ids_of(ROWS, 2, problem.sizes.experts, problem.sizes.top_k)[None]
    for wrong, text in ((good * 0, "repeated"), (good + 16, "0..15"), (good[..., :2], "shape")):
        with pytest.raises(ValueError, match=text):
            RankOracle().follow(problem, SHAPE, initial, x, wrong)
