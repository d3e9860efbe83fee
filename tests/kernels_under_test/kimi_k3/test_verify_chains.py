"""Chains of verify steps: the candidate beside stock, and planted faults of stock, both against the oracle."""

import pytest
import torch

from kernels_under_test.contract import Shape
from kernels_under_test.kimi_k3.baseline import ranks, small_dtypes, stock, verify
from kernels_under_test.kimi_k3.baseline.layer import Window
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.problem import load
from tests.kernels_under_test.kimi_k3.chain import measured, strayed, worse

STEPS = 16
EVERYTHING = {"kv_cache": "fp8_e4m3", "experts": "mxfp4", "act": "mxfp8"}
PLANTED = {
    "starts from the first slot": (verify, "_starts", lambda kept: lambda layer: _first_slot(kept(layer))),
    "stores one token late": (verify, "delta_recurrence", lambda kept: lambda layer: _late(kept, layer)),
    "sees one token too many": (Window, "_visible", lambda kept: lambda window, rank: kept(window, rank) + 1),
    "causal mask dropped": (
        Window,
        "_visible",
        lambda kept: lambda window, rank: _all_seen(kept(window, rank), window),
    ),
    "one rank left out": (ranks, "_added", lambda kept: lambda parts: kept(parts[:-1])),
    "scale of the cache forgotten": (
        small_dtypes,
        "to_fp8",
        lambda kept: lambda value, factor=1.0: kept(value, factor * 2),
    ),
    "scale byte one too small": (small_dtypes, "mx_quantise", lambda kept: lambda value: _one_less(kept(value))),
}
"""Module or class, attribute, and what takes the place of it: faults of the parts that the window ``tiny`` does not have."""


def _first_slot(found):
    live, slots, _ = found
    return live, slots, slots[:, 0]


def _late(kept, layer):
    slots = layer.window.tensors["slots"]
    order = slots.clone()
    slots[:, : layer.window.query_tokens] = order[:, : layer.window.query_tokens].roll(1, dims=1)
    kept(layer)
    slots.copy_(order)


def _all_seen(lengths, window):
    per_request = lengths.view(-1, window.query_tokens)
    return per_request[:, -1:].expand_as(per_request).flatten()


def _one_less(found):
    codes, scales = found
    return codes, scales - (scales > 0).to(torch.uint8)


FAULTY = Shape(6, 3, 60, 4, tensor_parallel=2, dtypes=EVERYTHING)


@pytest.fixture(scope="module")
def unspoilt():
    return measured(load("verify"), baseline, FAULTY, 6)[1]


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_seen(fault: str, unspoilt, monkeypatch) -> None:
    where, name, change = PLANTED[fault]
    monkeypatch.setattr(where, name, change(getattr(where, name)))
    if name in stock.VERIFY:
        monkeypatch.setitem(stock.VERIFY, name, getattr(where, name))
    _, found = measured(load("verify"), baseline, FAULTY, 6)
    assert worse(found, unspoilt) != []


@pytest.mark.parametrize(
    ("name", "shape", "regime"),
    [
        ("verify", Shape(8, 8, 200, 8), "normal"),
        ("verify", Shape(6, 3, 90, 4, decode_context_parallel=2), "heavy"),
        ("verify", Shape(8, 2, 100, 4), "padded"),
        ("verify", Shape(4, 1, 60, 4, decode_context_parallel=2), "x8"),
        ("verify", Shape(4, 4, 160, 8), "ties"),
        ("verify", Shape(6, 3, 90, 4, decode_context_parallel=2, dtypes={"kv_cache": "fp8_e4m3"}), "normal"),
        # More requests: the end state of two of them is chance (six runs: 0.5 to 1.8 times stock's).
        ("opening", Shape(8, 1, 100, 8, dtypes={"experts": "mxfp4"}), "normal"),
    ],
    ids=str,
)
def test_the_candidate_is_as_right_as_stock(name: str, shape: Shape, regime: str) -> None:
    problem = load(name)
    _, honest = measured(problem, baseline, shape, STEPS, regime=regime)
    one, found = measured(problem, candidate, shape, STEPS, regime=regime)
    assert worse(found, honest) == []
    assert strayed(problem, one) == []
