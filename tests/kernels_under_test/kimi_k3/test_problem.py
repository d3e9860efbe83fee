"""The problem: shapes, poison, schedules, masks, regimes and errors."""

from dataclasses import replace

import pytest
import torch

from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3 import values
from kernels_under_test.kimi_k3.problem import PROBLEMS, KimiProblem, load
from kernels_under_test.kimi_k3.sizes import read
from tests.kernels_under_test.kimi_k3.chain import allocate

SHAPES = [Shape(1, 1, 40, 4), Shape(3, 1, 40, 8), Shape(8, 1, 64, 4, decode_context_parallel=2)]


def filled(problem, shape, steps=6, seed=1, regime="normal"):
    tensors = allocate(problem, shape, steps)
    problem.fill(shape, tensors, steps=steps, seed=seed, regime=regime)
    return tensors


def test_facts_are_plain_data(tiny) -> None:
    for value in tiny.facts.values():
        assert isinstance(value, int | float | str | tuple)
    assert tiny.facts["layers"] == ((7, "mla"), (8, "kda"))
    assert tiny.layers == 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fill_follows_its_seed_and_poisons_what_no_step_may_read(tiny, shape: Shape) -> None:
    one, same, other = filled(tiny, shape), filled(tiny, shape), filled(tiny, shape, seed=2)
    for name, tensor in one.items():
        assert tensor.view(torch.uint8).equal(same[name].view(torch.uint8)), name
    assert not one["layers.8.w13"].equal(other["layers.8.w13"])
    assert one["layers.8.recurrent_state"][0].isnan().all()
    assert one["layers.8.conv_state"][0].isnan().all()
    cache = one["layers.7.kv_cache"]
    assert cache[:, 0].isnan().all()
    held = (~cache.isnan().any(-1)).sum().item()
    assert held == (one["seq_lens"][0] - 1).sum().item()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_token_has_its_own_cache_row_on_one_rank(tiny, shape: Shape) -> None:
    steps = 6
    tensors = filled(tiny, shape, steps)
    assert (tensors["seq_lens"][1:] - tensors["seq_lens"][:-1] == 1).all()
    assert tensors["seq_lens"][-1].max() == shape.context
    assert tensors["local_lens"].sum(dim=1).equal(tensors["seq_lens"])
    mapping = tensors["slot_mapping"]
    assert ((mapping >= 0).sum(dim=1) == 1).all()
    masks = tiny.untouched(shape, tensors, steps)
    written = (~masks["layers.7.kv_cache"]).all(-1).sum().item()
    assert written == steps * shape.rows
    assert tensors["layers.7.kv_cache"][~masks["layers.7.kv_cache"]].isnan().all()
    assert (~masks["layers.8.recurrent_state"]).flatten(1).any(1).sum() == shape.rows


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("interleave", [1, 4])
def test_local_lengths_count_local_positions(ranks: int, interleave: int) -> None:
    for length in range(30):
        rank, local = values.local_index(torch.arange(length), ranks, interleave)
        for one in range(ranks):
            wanted = local[rank == one].sort().values
            assert wanted.equal(torch.arange(wanted.numel()))
            assert values.local_length(torch.tensor(length), one, ranks, interleave) == wanted.numel()


def test_lengths_stand_on_and_beside_page_edges(tiny) -> None:
    lengths = filled(tiny, Shape(5, 1, 64, 4))["seq_lens"][0].tolist()
    assert lengths[1:4] == [1, 4, 5]


def test_half_of_the_heads_have_long_memory(tiny) -> None:
    w = filled(tiny, Shape(1, 1, 40, 4))
    bias = w["layers.8.dt_bias"].view(4, 32)
    decay = torch.exp(-5 * torch.sigmoid(w["layers.8.a_log"].exp()[:, None] * bias))
    assert (decay[1::2] > 0.9).all()
    assert decay[1::2].max() < 0.9995
    assert decay[0::2].mean() < 0.9


def test_expert_weights_lie_on_the_fp4_grid(tiny) -> None:
    w = filled(tiny, Shape(1, 1, 40, 4))["layers.8.w13"].float()
    mantissa, _ = torch.frexp(w[w != 0].abs())
    assert set(mantissa.unique().tolist()) <= {0.5, 0.75}


def test_regimes_differ_as_they_say(tiny) -> None:
    shape = Shape(4, 1, 40, 4)
    normal, x8, zeros = (filled(tiny, shape, regime=r) for r in ("normal", "x8", "zeros"))
    assert x8["prefix_in"].equal(normal["prefix_in"] * 8)
    assert not zeros["blocks_in"].any()
    padded = filled(tiny, shape, regime="padded")
    assert padded["slots"].tolist()[-1] == 0
    assert not padded["seq_lens"][:, -1].any()
    assert (padded["slot_mapping"][..., -1] == -1).all()
    ties = filled(tiny, shape, regime="ties")
    assert ties["layers.7.router"][0::2].equal(ties["layers.7.router"][1::2])
    heavy = filled(tiny, shape, regime="heavy")
    assert heavy["prefix_in"].abs().max() > normal["prefix_in"].abs().max()


def test_only_leaves_the_other_roles_alone(tiny) -> None:
    shape = SHAPES[1]
    tensors = filled(tiny, shape)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    tiny.fill(shape, tensors, steps=6, seed=9, only={Role.STATE, Role.METADATA, Role.SCHEDULE})
    assert tensors["layers.8.w2"].equal(before["layers.8.w2"])
    assert not tensors["prefix_in"].equal(before["prefix_in"])
    assert not tensors["layers.8.recurrent_state"][1:].equal(before["layers.8.recurrent_state"][1:])


def test_bytes_needed_is_below_all_bytes(tiny) -> None:
    small, large = tiny.bytes_needed(Shape(1, 1, 64, 4)), tiny.bytes_needed(Shape(8, 1, 64, 4))
    total = sum(t.numel() * t.element_size() for t in allocate(tiny, Shape(8, 1, 64, 4), 1).values())
    assert 100_000 < small < large < total


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape(8, 2, 64, 4), "query_tokens must be one of"),
        (Shape(8, 1, 64, 5), "page_size must be one of"),
        (Shape(8, 1, 64, 4, decode_context_parallel=3), "decode_context_parallel must be one of"),
        (Shape(65, 1, 64, 4), "rows must be in"),
        (Shape(8, 1, 64, 4, dtypes={"kv_cache": "fp8_e4m3"}), "dtype of kv_cache must be bf16, found fp8_e4m3"),
    ],
)
def test_shapes_outside_are_refused_with_the_reason(tiny, shape: Shape, text: str) -> None:
    assert text in tiny.check(shape)
    with pytest.raises(ValueError, match=text):
        tiny.tensors(shape)


def test_bad_calls_are_named(tiny, tmp_path) -> None:
    shape = Shape(1, 1, 8, 4)
    with pytest.raises(ValueError, match="expected one of the problems"):
        load("huge")
    with pytest.raises(ValueError, match="expected a regime"):
        tiny.fill(shape, allocate(tiny, shape, 2), steps=2, seed=1, regime="odd")
    with pytest.raises(ValueError, match="steps must be in"):
        tiny.fill(shape, allocate(tiny, shape, 9), steps=9, seed=1)
    text = (PROBLEMS / "tiny.toml").read_text()
    for old, new, message in (
        ("hidden = 128", "hidden = 1.5", "expected int"),
        ("heads = 4\n", "", "expected the keys"),
        ("index = 8", "index = 9", "consecutive layers"),
        ("index = 7", "index = 0", "dense_intermediate above 0"),
        ("[limits]", "[dtypes]\nact = ['fp4']\n[limits]", "families and dtypes"),
        ("[limits]", "[limits]\nquery_tokens = [2]", "limits.query_tokens in 1..1"),
        ("[limits]", "[limits]\ntensor_parallel = [2]", "1 among limits.tensor_parallel"),
        ("[limits]", "[limits]\ntensor_parallel = [1, 3]", "3 ranks divide"),
        ("[limits]", "[limits]\ncommunication = 'loud'", "limits.communication"),
        ('kind = "kda"', 'kind = "mamba"', "of kinds"),
    ):
        assert old in text
        changed = text.replace(old, new)
        if "index = 0" in new:
            changed = changed.replace("index = 8", "index = 1")
        (tmp_path / "odd.toml").write_text(changed)
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "odd.toml")


def test_a_file_takes_from_another_what_it_does_not_set(tiny) -> None:
    verify, opening = load("verify").file, load("opening").file
    assert verify.layers == tiny.file.layers
    assert verify.eps == tiny.file.eps
    assert verify.sizes.hidden == tiny.file.sizes.hidden
    assert (verify.sizes.speculative_tokens, tiny.file.sizes.speculative_tokens) == (7, 0)
    assert opening.sizes.dense_intermediate == 384
    assert opening.limits == verify.limits
    assert [layer.dense for layer in opening.layers] == [True, False]
    kinds = [layer.kind for layer in load("whole").file.layers]
    assert [i for i, kind in enumerate(kinds) if kind == "mla"] == [3, 7, 11, 12]


@pytest.mark.parametrize("q", [1, 3, 8])
@pytest.mark.parametrize("regime", ["normal", "padded"])
def test_verify_steps_start_where_a_value_lies(q: int, regime: str) -> None:
    """Slots are distinct, the kept token's slot and taps hold numbers, and what no token reached holds NaN."""
    problem, steps = load("verify"), 5
    shape = Shape(4 * q, q, 96, 4, decode_context_parallel=2)
    t = filled(problem, shape, steps, regime=regime)
    slots, kept, lengths = t["slots"], t["num_accepted"], t["seq_lens"]
    live = slots[:, 0] > 0
    assert live.tolist() == [True, True, True, regime == "normal"]
    assert slots[live].unique().numel() == slots[live].numel()
    assert kept.min() >= 1
    assert kept[1:].max() <= q
    assert kept[0].max() <= 8
    assert (lengths[1:] - lengths[:-1])[:, live].equal(kept[1:, live])
    assert lengths[-1, 0] == shape.context
    assert (lengths[:, live] >= q).all()
    recurrent, conv = t["layers.8.recurrent_state"], t["layers.8.conv_state"]
    for request in live.nonzero().flatten().tolist():
        first = int(kept[0, request])
        assert recurrent[slots[request, first - 1]].isfinite().all()
        assert conv[slots[request, 0], first - 1 : first + 2].isfinite().all()
        reached = recurrent[slots[request]].isfinite().flatten(1).all(1).tolist()
        assert reached == sorted(reached, reverse=True)
        assert conv[slots[request, 1:]].isnan().all()
    assert recurrent[0].isnan().all()


@pytest.mark.parametrize("q", [1, 2, 8])
def test_new_tokens_lie_where_later_steps_look_for_them(q: int) -> None:
    """Row t of q stores position length - q + t; a token that was not kept is written over by the next step."""
    problem, steps = load("verify"), 4
    shape = Shape(3 * q, q, 64, 4)
    t = filled(problem, shape, steps)
    for step in range(steps):
        for row in range(shape.rows):
            request, token = divmod(row, q)
            position = int(t["seq_lens"][step, request]) - q + token
            page = int(t["block_table"][request, position // 4])
            assert int(t["slot_mapping"][step, 0, row]) == page * 4 + position % 4
    masks = problem.untouched(shape, t, steps)
    written = ~masks["layers.7.kv_cache"].all(-1)
    assert written.sum() == t["slot_mapping"].unique().numel()
    slots = t["slots"].long()
    assert (
        (~masks["layers.8.recurrent_state"])
        .flatten(1)
        .any(1)
        .nonzero()
        .flatten()
        .equal(slots[:, :q].flatten().sort()[0])
    )
    columns = (~masks["layers.8.conv_state"][slots[0, 0]]).any(-1).tolist()
    assert columns == [True] * (q + 2) + [False] * (8 - q)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape(7, 2, 64, 4), "rows must be a multiple of query_tokens = 2, found 7"),
        (Shape(8, 8, 4, 4), "context must be at least query_tokens = 8, found 4"),
        (Shape(9, 9, 64, 4), "query_tokens must be one of"),
        (Shape(2, 1, 64, 4, dtypes={"kv_cache": "fp8_e5m2"}), "must be bf16 or fp8_e4m3, found fp8_e5m2"),
        (Shape(2, 1, 64, 4, dtypes={"weights": "bf16"}), "dtype of weights must be left out"),
    ],
)
def test_verify_shapes_outside_are_refused(shape: Shape, text: str) -> None:
    assert text in load("verify").check(shape)


def test_steps_of_several_tokens_must_fit_the_context() -> None:
    problem, shape = load("verify"), Shape(8, 8, 20, 4)
    with pytest.raises(ValueError, match=r"steps must be in 1..2 \(context / query tokens\)"):
        problem.fill(shape, allocate(problem, shape, 3), steps=3, seed=1)


def test_ranks_of_context_need_whole_turns_in_a_page() -> None:
    file = load("verify").file
    problem = KimiProblem(replace(file, sizes=replace(file.sizes, dcp_interleave=3)))
    assert "page_size must be a multiple of the interleave 3" in problem.check(Shape(1, 1, 8, 4, 1, 2))
    assert problem.check(Shape(1, 1, 8, 4)) is None
