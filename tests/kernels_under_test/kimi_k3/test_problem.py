"""The problem: shapes, poison, schedules, masks, regimes and errors."""

import pytest
import torch

from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3 import values
from kernels_under_test.kimi_k3.problem import PROBLEMS, load
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
        ('kind = "kda"', 'kind = "mamba"', "of kinds"),
    ):
        assert old in text
        (tmp_path / "odd.toml").write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "odd.toml")
