"""What each rank of tensor parallelism holds: every number of the whole once, or on every rank; padding behind the live part."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3 import shards
from kernels_under_test.kimi_k3.problem import load
from tests.kernels_under_test.kimi_k3.steps import filled

SIZE = 128
"""Heads x head dimension, and the experts' intermediate."""


def of(ranks: int, **dtypes: str) -> tuple[dict, dict]:
    problem = load("verify")
    one = filled(problem, Shape(2, 2, 24, 4, dtypes=dtypes), 1, 3)
    return one, filled(problem, Shape(2, 2, 24, 4, tensor_parallel=ranks, dtypes=dtypes), 1, 3)


@pytest.mark.parametrize("ranks", [2, 4])
def test_heads_go_to_ranks_in_order(ranks: int) -> None:
    one, cut = of(ranks)
    for name, axis in (("f_b", 0), ("a_log", 0), ("dt_bias", 0), ("o_proj", 1)):
        name = f"layers.8.{name}"
        assert torch.cat(list(cut[name]), dim=axis).equal(one[name])
    for name in ("q_b", "w_uk", "w_uv"):
        assert torch.cat(list(cut[f"layers.7.{name}"])).equal(one[f"layers.7.{name}"])
    states = cut["layers.8.recurrent_state"]
    assert torch.cat(list(states), dim=1).nan_to_num().equal(one["layers.8.recurrent_state"].nan_to_num())
    d = SIZE // ranks
    for part in range(3):
        own = torch.cat([c[:, :, part * d : (part + 1) * d] for c in cut["layers.8.conv_state"]], dim=2)
        assert own.nan_to_num().equal(one["layers.8.conv_state"][:, :, part * SIZE : (part + 1) * SIZE].nan_to_num())
        taps = torch.cat([c[part * d : (part + 1) * d] for c in cut["layers.8.conv"]])
        assert taps.equal(one["layers.8.conv"][part * SIZE : (part + 1) * SIZE])


@pytest.mark.parametrize(("ranks", "rows"), [(1, 560), (2, 304), (4, 176)])
def test_the_packed_projection_has_its_segments_and_zero_rows(ranks: int, rows: int) -> None:
    one, cut = of(ranks)
    whole = one["layers.8.in_proj"]
    given = cut["layers.8.in_proj"] if ranks > 1 else cut["layers.8.in_proj"].unsqueeze(0)
    d, heads = SIZE // ranks, 4 // ranks
    assert given.shape == (ranks, rows, 128)
    for rank, own in enumerate(given):
        for part in range(4):
            start = part * SIZE + rank * d
            assert own[part * d : (part + 1) * d].equal(whole[start : start + d])
        assert own[4 * d : 4 * d + 32].equal(whole[4 * SIZE : 4 * SIZE + 32])
        b = 4 * SIZE + 32 + rank * heads
        assert own[4 * d + 32 : 4 * d + 32 + heads].equal(whole[b : b + heads])
        assert not own[4 * d + 32 + heads :].any()


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_latent_projection_is_shared_and_its_gate_cut(ranks: int) -> None:
    one, cut = of(ranks)
    shared, whole = 48 + 64 + 16, one["layers.7.in_proj"]
    for own in cut["layers.7.in_proj"]:
        assert own[:shared].equal(whole[:shared])
    assert torch.cat([own[shared:] for own in cut["layers.7.in_proj"]]).equal(whole[shared:])


@pytest.mark.parametrize("ranks", [2, 4])
def test_expert_intermediates_are_padded_with_zeros(ranks: int) -> None:
    one, cut = of(ranks)
    live = SIZE // ranks
    w13, w2 = cut["layers.8.w13"], cut["layers.8.w2"]
    assert w13.shape == (ranks, 16, 192, 64)
    assert w2.shape == (ranks, 16, 64, 96)
    for half in range(2):
        own = torch.cat([r[:, half * 96 : half * 96 + live] for r in w13], dim=1)
        assert own.equal(one["layers.8.w13"][:, half * SIZE : (half + 1) * SIZE])
        assert not w13[:, :, half * 96 + live : (half + 1) * 96].any()
    assert torch.cat([r[..., :live] for r in w2], dim=2).equal(one["layers.8.w2"])
    assert not w2[..., live:].any()


@pytest.mark.parametrize("ranks", [2, 4])
def test_packed_padding_has_zero_codes_and_scales_that_are_numbers(ranks: int) -> None:
    one, cut = of(ranks, experts="mxfp4")
    live = SIZE // ranks
    assert cut["layers.8.w2"].shape == (ranks, 16, 64, 48)
    assert cut["layers.8.w2_scale"].shape == (ranks, 16, 64, 3)
    assert torch.cat([r[..., : live // 2] for r in cut["layers.8.w2"]], dim=2).equal(one["layers.8.w2"])
    assert torch.cat([r[..., : live // 32] for r in cut["layers.8.w2_scale"]], dim=2).equal(one["layers.8.w2_scale"])
    assert not cut["layers.8.w2"][..., live // 2 :].any()
    assert not cut["layers.8.w13"][:, :, live:96].any()
    for name in ("w13_scale", "w2_scale"):
        assert cut[f"layers.8.{name}"].max() == shards.PAD_SCALE < 255


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.sampled_from([1, 2, 3, 4]), st.integers(1, 4), st.integers(0, 9), st.integers(0, 1))
def test_a_cut_keeps_every_element_once(groups: int, ranks: int, each: int, more: int, axis: int) -> None:
    value = torch.arange(groups * ranks * each * 5).view(groups * ranks * each, 5)
    value = value if axis == 0 else value.t().contiguous()
    found = shards.cut(value, axis, groups, ranks, width=each + more, fill=-1)
    assert found.shape[0] == ranks
    assert found.shape[1 + axis] == groups * (each + more)
    assert found[found >= 0].sort().values.equal(value.flatten().sort().values)


def test_what_is_the_same_everywhere_cannot_be_cut() -> None:
    problem = load("verify")
    with pytest.raises(ValueError, match="differs from rank to rank"):
        shards.split("layers.8.router", torch.zeros(4, 4), problem.file.sizes, 2, "kda")
    with pytest.raises(ValueError, match="3 ranks divide, found heads = 4"):
        problem.file.sizes.on_rank(3)
