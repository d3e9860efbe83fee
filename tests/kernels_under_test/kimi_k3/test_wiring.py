"""The CUDA paths' adapters, as far as no device is needed: what they decline, the workspace, and layouts."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3.cuda import mxfp4 as packing
from kernels_under_test.kimi_k3.cuda.kernel_lists import candidate as launches
from kernels_under_test.kimi_k3.device import wiring
from kernels_under_test.kimi_k3.device.cute import candidate, repoint
from kernels_under_test.kimi_k3.device.planted import frozen_state
from kernels_under_test.kimi_k3.device.problem import load
from kernels_under_test.kimi_k3.device.stock import baseline
from kernels_under_test.kimi_k3.reference import mxfp4

SHAPE = Shape(rows=8, query_tokens=1, context=1024, page_size=64, tensor_parallel=8)
FACTS = load("rank_kda").facts


def test_both_paths_serve_the_rank_they_are_compiled_for(tmp_path, monkeypatch):
    monkeypatch.setenv("GATEKEEPER_BUILT", str(tmp_path))
    assert baseline.supports(FACTS, SHAPE) is None and frozen_state.supports(FACTS, SHAPE) is None
    assert "not compiled: k3_attention_residual_8" in candidate.supports(FACTS, SHAPE)
    monkeypatch.delenv("GATEKEEPER_BUILT")
    assert "GATEKEEPER_BUILT" in candidate.supports(FACTS, SHAPE)


def test_the_candidate_serves_the_rows_whose_variants_are_all_there(tmp_path, monkeypatch):
    from kernels_under_test.kimi_k3.cuda.cute.tactics import chosen, name

    built = [{"symbol": name(kernel, 8, chosen(kernel, 8))} for kernel in launches(8)]
    (tmp_path / "kernels.json").write_text(json.dumps(built))
    (tmp_path / "kernels.so").write_bytes(b"")
    monkeypatch.setenv("GATEKEEPER_BUILT", str(tmp_path))
    assert candidate.supports(FACTS, SHAPE) is None
    assert "not compiled: k3_attention_residual_1" in candidate.supports(FACTS, replace(SHAPE, rows=1))


@pytest.mark.parametrize(
    ("facts", "changes", "reason"),
    [
        ({"hidden": 128}, {}, "hidden must be 7168, found 128"),
        ({"eps.kda_l2": 1e-5}, {}, "eps.kda_l2 must be 1e-06, found 1e-05"),
        ({"layers": ((83, "mla"),)}, {}, "layer 83 must be a KDA layer, found mla"),
        ({}, {"rows": 3}, "rows must be one of [1, 2, 8, 16, 32, 64], found 3"),
        ({}, {"tensor_parallel": 4}, "tensor_parallel must be 8, found 4"),
    ],
)
def test_anything_else_is_declined_by_name(facts, changes, reason):
    assert baseline.supports({**FACTS, **facts}, replace(SHAPE, **changes)) == reason


def test_the_workspace_is_what_the_packed_weights_take():
    codes = sum(
        torch.Size(spec.shape).numel()
        for spec in load("rank_kda").tensors(SHAPE)
        if spec.role is Role.WEIGHT and spec.name.rsplit(".", 1)[-1] in ("w13", "w2")
    )
    stock, mine = baseline.workspace(FACTS, SHAPE), candidate.workspace(FACTS, SHAPE)
    assert codes < stock < codes + (1 << 20)
    scales = codes // 16
    assert codes + scales < mine < codes + scales + 2 * (2096 * 7168 * 2 + (1 << 20))


def test_scratch_hands_out_what_it_counted_and_no_more():
    sizes = [((3, 5), torch.float32), ((7,), torch.uint8), ((2, 2), torch.int32)]
    counted = wiring.Scratch()
    for shape, dtype in sizes:
        assert counted.take(shape, dtype).device.type == "meta"
    memory = torch.zeros(counted.used, dtype=torch.uint8)
    scratch = wiring.Scratch(memory)
    pieces = [scratch.take(shape, dtype) for shape, dtype in sizes]
    assert all((piece.data_ptr() - memory.data_ptr()) % wiring.ALIGN == 0 for piece in pieces)
    for place, piece in enumerate(pieces):
        piece.fill_(place + 1)
    assert [int(piece.view(-1)[0]) for piece in pieces] == [1, 2, 3]
    with pytest.raises(ValueError, match=f"at least {counted.used + 256} bytes, found {counted.used}"):
        scratch.take((1,), torch.uint8)


def test_the_arenas_codes_are_what_the_kernels_packings_start_from():
    gen = torch.Generator().manual_seed(1)
    packed = torch.randint(0, 256, (70, 16, 64), generator=gen, dtype=torch.uint8)
    scales = torch.randint(119, 122, (70, 16, 4), generator=gen, dtype=torch.uint8)
    found = torch.cat([codes for _, codes in wiring.codes({"w13": packed}, "w13")])
    assert found.shape == (70, 16, 128)
    for expert in (0, 63, 69):
        torch.testing.assert_close(
            packing.values(found[expert], scales[expert]).double(), mxfp4(packed[expert], scales[expert])
        )


def test_dense_weights_take_the_kernels_layout_and_keep_their_values():
    own = {
        name: torch.randn(2, 2)
        for name in ("in_proj", "f_b", "o_proj", "router", "latent_down", "shared_down", "latent_up")
    }
    own |= {name: torch.randn(2) for name in ("a_log", "dt_bias", "latent_norm", "shared_gate_up", "router_bias")}
    own |= {name: torch.randn(2) for name in ("input_norm", "post_norm")}
    own |= {f"{call}.{part}": torch.randn(2) for call in ("attn_res", "mlp_res") for part in ("gamma", "query")}
    own |= {"conv": torch.randn(3 * 1536, 4), "o_norm": torch.randn(128).bfloat16()}
    found = wiring.dense(own, wiring.Scratch(torch.zeros(1 << 17, dtype=torch.uint8)))
    assert found["conv"].shape == (3, 4, 1536) and found["o_norm"].dtype == torch.float32
    channel = own["conv"][1536 * 2 + 5]
    assert torch.equal(found["conv"][2, :, 5], channel) and torch.equal(found["o_norm"], own["o_norm"].float())
    assert found["post_gamma"] is own["mlp_res.gamma"] and found["pre_norm"] is own["input_norm"]


def test_layers_lie_in_a_chain_over_one_prefix():
    tensors = {
        "x": torch.zeros(1, 4),
        "blocks_in": torch.zeros(1),
        "slots": torch.zeros(1),
        "expert_ids": torch.arange(2),
    }
    for index in (81, 82):
        for part in ("recurrent_state", "conv_state", "peers.o", "peers.latent", "peers.shared", "gathered.out"):
            tensors[f"layers.{index}.{part}"] = torch.zeros(1)
    made, prefix = wiring.chain(FACTS, tensors, lambda own, given, ids: (own, given, ids))
    assert made[0][1]["delta"] is tensors["x"] and made[1][1]["delta"] is tensors["layers.81.gathered.out"]
    assert all(given["prefix"] is prefix for _, given, _ in made) and [int(ids) for *_, ids in made] == [0, 1]


def test_every_launch_that_used_a_layers_own_mailbox_uses_the_arenas():
    layer = SimpleNamespace(
        logits=torch.zeros(2, 3), z=torch.zeros(2, 4), out=torch.zeros(2, 5), ids=torch.zeros(2, 6).int()
    )
    weight = torch.zeros(2, 3)
    layer.args = {
        "front": [weight, layer.logits, layer.z],
        "experts": [layer.z, layer.ids.view(-1), weight],
        "tail_up": [weight, layer.out],
    }
    own = {"gathered.logits": torch.ones(2, 3), "gathered.latent": torch.ones(2, 4), "gathered.out": torch.ones(2, 5)}
    ids = torch.ones(2, 6).int()
    repoint(layer, own, ids)
    found = [[tensor.data_ptr() for tensor in arguments] for arguments in layer.args.values()]
    logits, latent, out = (tensor.data_ptr() for tensor in own.values())
    kept = weight.data_ptr()
    assert found == [[kept, logits, latent], [latent, ids.data_ptr(), kept], [kept, out]]
    assert layer.args["experts"][1].shape == (12,) and layer.out is own["gathered.out"] and layer.ids is ids
