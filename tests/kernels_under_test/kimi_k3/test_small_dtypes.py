"""FP8, MXFP8 and MXFP4 of the stock path and of the oracle, against their definitions and against each other."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_under_test.kimi_k3 import reference
from kernels_under_test.kimi_k3.baseline import small_dtypes
from kernels_under_test.kimi_k3.cuda import mxfp4

GRID = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def test_packed_values_are_those_of_the_grid() -> None:
    codes = torch.arange(16).repeat(2).view(1, 32)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    scales = torch.tensor([[130]], dtype=torch.uint8)
    wanted = torch.tensor([*GRID, *(-g for g in GRID)]).repeat(2) * 8
    assert reference.mxfp4(packed, scales)[0].equal(wanted.double())


def test_all_three_decoders_agree() -> None:
    """The oracle's, the stock path's and that of the GPU packings."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 16, (3, 5, 64), generator=generator)
    scales = torch.randint(100, 150, (3, 5, 2), generator=generator).to(torch.uint8)
    packed = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    wanted = reference.mxfp4(packed, scales)

    class Layer:
        class w:
            w2, w2_scale = packed, scales

    assert mxfp4.values(codes, scales).double().equal(wanted)
    for expert in range(3):
        assert small_dtypes._matrix(Layer, "w2", expert, torch.float32).double().equal(wanted[expert])
        assert small_dtypes._matrix(Layer, "w2", expert, torch.bfloat16).double().equal(wanted[expert])


def scale_byte(most: float) -> int:
    """The least byte that brings ``most`` to at most 448 = 1.75 x 2^8."""
    if most < 2.0**-126:
        return 0
    mantissa, exponent = math.frexp(most)
    return max(0, exponent - 1 + 127 - 8 + (2 * mantissa > 1.75))


@settings(max_examples=60, deadline=None)
@given(st.floats(2.0**-140, 2.0**100, width=32), st.integers(0, 31), st.booleans())
def test_the_scale_keeps_the_largest_value_within_range(most: float, place: int, negative: bool) -> None:
    block = torch.zeros(1, 32)
    block[0, place] = -most if negative else most
    block[0, (place + 1) % 32] = most / 3
    most = float(block[0, place].abs())
    codes, scales = small_dtypes.mx_quantise(block)
    assert int(scales) == scale_byte(most)
    found = small_dtypes.mx_values(codes, scales)
    assert codes.float().abs().max() <= 448
    if most >= 2.0**-100:
        assert (found - block).abs().max() <= most * 2.0**-4


def test_edges_of_the_scale_rule() -> None:
    blocks = torch.zeros(5, 32)
    blocks[1, 0] = 448.0
    blocks[2, 0] = 449.0
    blocks[3, :2] = torch.tensor([torch.nan, 2.0])
    blocks[4, 0] = 2.0**-130
    codes, scales = small_dtypes.mx_quantise(blocks)
    assert scales.flatten().tolist() == [0, 127, 128, 127 + 1 - 8, 0]
    assert small_dtypes.mx_values(codes, scales)[1, 0] == 448.0
    assert codes.float()[3, 0].isnan()
    assert not codes.float()[3, 1:].isnan().any()


@pytest.mark.parametrize(
    ("value", "factor", "wanted"), [(1000.0, 1.0, 448.0), (-1000.0, 1.0, -448.0), (28.0, 16.0, 448.0), (1.06, 1.0, 1.0)]
)
def test_fp8_saturates_and_rounds_to_nearest(value: float, factor: float, wanted: float) -> None:
    assert small_dtypes.to_fp8(torch.tensor([value]), factor).float().item() == wanted


def test_fp8_keeps_a_nan() -> None:
    assert small_dtypes.to_fp8(torch.tensor([torch.nan])).float().isnan().all()
