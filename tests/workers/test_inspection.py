"""What any run shows without an oracle: values of every dtype that a state or an output may have."""

from __future__ import annotations

import pytest
import torch

from workers.inspection import bits, finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.int64])
def test_finite_values_of_every_dtype_are_finite(dtype: torch.dtype) -> None:
    assert bool(finite(torch.tensor([0, 1, 2]).to(dtype)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_nan_is_not(dtype: torch.dtype) -> None:
    values = torch.tensor([0.0, float("nan"), 2.0]).to(dtype)
    assert finite(values).tolist() == [True, False, True]
    assert torch.equal(bits(values), bits(values.clone())), "the same NaN is the same bits"
