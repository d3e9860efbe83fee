"""``tp8``: shapes, bytes and floors of the real sizes, without a tensor; against the GPU side's figures and the published ones."""

from math import prod

import pytest

from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3 import floors
from kernels_under_test.kimi_k3.cuda import sizes as gpu
from kernels_under_test.kimi_k3.problem import load

H200 = 4.3e12
"""Bytes per second that the published floors are computed with."""
BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "int64": 8, "uint8": 1, "float8_e4m3fn": 1}


def of(rows: int = 1, q: int = 1, context: int = 1024, **more) -> Shape:
    return Shape(rows, q, context, 64, tensor_parallel=8, **more)


@pytest.fixture(scope="module")
def tp8():
    return load("tp8")


def named(problem, shape: Shape) -> dict:
    return {spec.name: spec for spec in problem.tensors(shape)}


def moved(problem, kind: str, rows: int, **more):
    whole = problem.file.sizes
    given = {"ranks": 8, "blocks": 8, "experts": floors.expected_experts(whole, rows)} | more
    return floors.layer_bytes(whole, kind, **given)


def test_the_layers_are_a_window_with_both_kinds_and_an_opening(tp8) -> None:
    assert tp8.facts["layers"] == ((81, "kda"), (82, "kda"), (83, "mla"), (84, "kda"))
    assert tp8.facts["first_blocks"] == 7
    assert tp8.facts["blocks"] == 8


def test_one_rank_has_the_known_shapes(tp8) -> None:
    specs = named(tp8, of(8, 8))
    wanted = {
        "layers.81.in_proj": (6288, 7168),
        "layers.81.f_b": (1536, 128),
        "layers.81.conv": (4608, 4),
        "layers.81.o_proj": (7168, 1536),
        "layers.83.in_proj": (3648, 7168),
        "layers.83.q_b": (2304, 1536),
        "layers.83.w_uk": (12, 128, 512),
        "layers.83.w_uv": (12, 128, 512),
        "layers.84.router": (896, 7168),
        "layers.84.latent_down": (3584, 7168),
        "layers.84.latent_up": (7168, 3584),
        "layers.84.w13": (896, 768, 1792),
        "layers.84.w13_scale": (896, 768, 112),
        "layers.84.w2": (896, 3584, 192),
        "layers.84.w2_scale": (896, 3584, 12),
        "layers.84.shared_gate_up": (1536, 7168),
        "layers.84.shared_down": (7168, 768),
        "layers.81.peers.o": (7, 8, 7168),
        "layers.81.peers.latent": (7, 8, 3584),
        "layers.81.peers.shared": (7, 8, 896),
        "layers.81.peers.logits": (7, 8, 112),
        "layers.81.peers.down": (7, 8, 448),
        "layers.81.peers.out": (7, 8, 896),
        "blocks_in": (8, 7, 7168),
        "slots": (1, 8),
        "num_accepted": (1,),
        "expert_ids": (4, 8, 16),
    }
    assert {name: specs[name].shape for name in wanted} == wanted
    assert specs["layers.83.kv_cache"].dtype == "float8_e4m3fn"
    assert specs["layers.83.kv_cache"].shape[2:] == (64, 576)
    recurrent, conv = specs["layers.81.recurrent_state"], specs["layers.81.conv_state"]
    assert 4 * prod(recurrent.shape[1:]) == 786_432
    assert conv.shape[1:] == (10, 4608)
    assert 2 * 3 * conv.shape[2] == 27_648


def test_sizes_agree_with_the_gpu_side(tp8) -> None:
    s = tp8.file.sizes.on_rank(8)
    pairs = {
        "HIDDEN": s.hidden, "HEADS": s.heads, "DIM": s.kda_dim, "WIDTH": s.kda_width, "RANK": s.forget_rank,
        "PROJECTION": s.kda_projection_rows, "LATENT": s.latent, "EXPERTS": s.experts, "TOP_K": s.top_k,
        "INTER": s.expert_intermediate, "SHARED": s.shared_intermediate,
        "EXPERT_BYTES": floors.expert_bytes(tp8.file.sizes, 8),
    }  # fmt: skip
    assert {name: getattr(gpu, name) for name in pairs} == pairs


@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 8, 64])
def test_bytes_agree_with_the_gpu_side_kernel_by_kernel(tp8, rows: int, sharded: bool) -> None:
    assert floors.expected_experts(tp8.file.sizes, rows) == pytest.approx(gpu.expected_experts(rows))
    ours = moved(tp8, "kda", rows, blocks=gpu.BLOCKS, sharded=sharded)
    theirs = gpu.kernel_bytes(gpu.expected_experts(rows), sharded=sharded)
    assert {part.name: part.at(rows) for part in ours} == pytest.approx({part.name: part.at(rows) for part in theirs})
    assert floors.floor_us(ours, rows, H200) == pytest.approx(
        gpu.floor_us(rows, gpu.expected_experts(rows), H200, sharded=sharded)
    )


@pytest.mark.parametrize(
    ("rows", "own", "stock"), [(2, 234.4, 290.6), (8, 442.6, 498.8), (64, 1653.6, 1709.8), (1, None, 253.8)]
)
def test_a_kda_layer_has_the_published_megabytes(tp8, rows: int, own: float | None, stock: float) -> None:
    """Within 1 %: the publication leaves out the mailbox row of the output projection and rounds its parts."""
    for sharded, wanted in ((True, own), (False, stock)):
        if wanted:
            parts = [p for p in moved(tp8, "kda", rows, sharded=sharded) if p.name != "o_proj parts"]
            assert sum(p.at(rows) for p in parts) / 1e6 == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize(
    ("context", "shards", "wanted"),
    [
        (1024, 1, (47.5, 94.5, 362.8)),
        (8192, 1, (49.4, 102.2, 424.3)),
        (131072, 1, (82.3, 233.9, 1477.7)),
        (131072, 8, (51.6, 111.0, 494.5)),
    ],
)
def test_an_mla_layer_has_the_published_floors(tp8, context: int, shards: int, wanted: tuple[float, ...]) -> None:
    for rows, microseconds in zip((2, 8, 64), wanted, strict=True):
        parts = [p for p in moved(tp8, "mla", rows) if p.name != "o_proj parts"]
        cached = floors.cached_bytes(tp8.file.sizes, rows * context, "fp8_e4m3", shards)
        assert floors.floor_us(parts, rows, H200, cached=cached) == pytest.approx(microseconds, rel=0.012)


def test_a_verify_step_writes_a_state_for_each_token(tp8) -> None:
    """0.786 MB x (1 + q) of recurrent state for each request: 57 MB at 8 requests of 8 tokens, 12.6 MB with one token each."""

    def states(requests: int, q: int) -> float:
        part = next(p for p in moved(tp8, "kda", requests * q, query_tokens=q) if p.name == "kda")
        return requests * (part.per_request - 2 * 4608 * (5 + q)) / 1e6

    assert states(8, 8) == pytest.approx(57, rel=0.01)
    assert states(8, 1) == pytest.approx(12.6, rel=0.01)


def test_a_layer_with_all_experts_is_about_two_gigabytes(tp8) -> None:
    specs = named(tp8, of())
    weights = {n: BYTES[s.dtype] * prod(s.shape) for n, s in specs.items() if s.role is Role.WEIGHT}
    experts = sum(size for n, size in weights.items() if n.startswith("layers.81.w"))
    assert experts / 1e9 == pytest.approx(1.965, rel=1e-3)
    for index in (81, 82, 83, 84):
        layer = sum(size for n, size in weights.items() if n.startswith(f"layers.{index}."))
        assert 2.1e9 < layer < 2.3e9


@pytest.mark.parametrize(("rows", "q"), [(1, 1), (8, 1), (8, 8), (64, 8)])
def test_the_least_bytes_of_a_step_are_below_the_floor_of_its_kernels(tp8, rows: int, q: int) -> None:
    """What no step can do without: its weights once and one row's experts; the kernels also hand results to each other."""
    least = tp8.bytes_needed(of(rows, q))
    whole = sum(
        part.at(rows, q)
        for _, kind in tp8.facts["layers"]
        for part in moved(
            tp8, kind, rows, query_tokens=q, experts=max(16.0, floors.expected_experts(tp8.file.sizes, rows))
        )
    )
    assert 0.6e9 < least < whole * 1.02


def test_shapes_outside_are_refused(tp8) -> None:
    for shape, text in (
        (Shape(1, 1, 1024, 64), "tensor_parallel must be one of"),
        (of(1, 1, 1 << 18), "context must be in"),
        (of(4, 3), "rows must be a multiple of query_tokens"),
        (of(dtypes={"experts": "bf16"}), "dtype of experts must be mxfp4"),
    ):
        assert text in tp8.check(shape)
    assert tp8.check(of(64, 8, 131072, decode_context_parallel=8, dtypes={"act": "bf16", "kv_cache": "bf16"})) is None
