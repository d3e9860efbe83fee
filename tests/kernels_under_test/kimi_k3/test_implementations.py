"""Stock baseline and house candidate: against the oracle with pinned experts, against each other, and what they leave alone."""

import ast
import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_under_test.contract import Role, Shape
from kernels_under_test.kimi_k3 import baseline as baseline_package
from kernels_under_test.kimi_k3 import candidate as candidate_package
from kernels_under_test.kimi_k3.baseline.stock import baseline
from kernels_under_test.kimi_k3.candidate.gate import candidate
from kernels_under_test.kimi_k3.problem import load
from kernels_under_test.kimi_k3.reference import oracle
from tests.kernels_under_test.kimi_k3.chain import CANARY, allocate, errors, run, strayed, worse

ARMS = {"baseline": baseline, "candidate": candidate}
PACKAGES = {"baseline": baseline_package, "candidate": candidate_package}
STEPS = 64
CHAINS = [
    (Shape(1, 1, 96, 4), "normal"),
    (Shape(2, 1, 96, 8), "normal"),
    (Shape(3, 1, 96, 4, decode_context_parallel=2), "normal"),
    (Shape(8, 1, 80, 4), "normal"),
    (Shape(8, 1, 80, 8, decode_context_parallel=2), "normal"),
    (Shape(4, 1, 80, 4), "padded"),
    (Shape(4, 1, 80, 4), "heavy"),
    (Shape(4, 1, 80, 4), "x8"),
    (Shape(4, 1, 80, 4), "zeros"),
    (Shape(4, 1, 80, 8), "ties"),
]


def measured(problem, arm, shape, regime, seed=3):
    one = run(arm, problem, shape, steps=STEPS, seed=seed, regime=regime)
    trace = oracle().follow(problem, shape, one.initial, one.x, one.ids)
    return one, errors(problem, one, trace)


@pytest.mark.parametrize(("shape", "regime"), CHAINS, ids=str)
def test_chains_follow_the_oracle_and_the_candidate_is_as_right_as_stock(tiny, shape: Shape, regime: str) -> None:
    stock_run, stock = measured(tiny, baseline, shape, regime)
    assert stock.rms < 0.03
    assert stock.median < 0.015
    assert max(stock.states.values()) < 0.012
    assert abs(stock.gain) < 5e-4
    assert stock.worst_shortfall < 0.02
    run_, found = measured(tiny, candidate, shape, regime)
    assert worse(found, stock) == []
    assert abs(found.gain) < 5e-4
    for one in (stock_run, run_):
        assert strayed(tiny, one) == []
        assert one.out.isfinite().all()


def test_the_stock_steps_are_the_listed_ones(tiny) -> None:
    for ranks, mla in ((1, 26), (2, 27)):
        step = built(tiny, baseline, Shape(2, 1, 32, 4, decode_context_parallel=ranks))
        counts = Counter(stage.split("/")[0] for stage in step.stages)
        assert counts == {"window": 3, "layer.8": 23, "layer.7": mla}


def test_the_candidate_has_thirteen_stages_in_a_kda_layer(tiny) -> None:
    stages = built(tiny, candidate, Shape(2, 1, 32, 4)).stages
    assert [s for s in stages if s.startswith("layer.8/")] == [
        f"layer.8/{name}" for name in ["P1", "K", "O1", "O2", "F1", "F2", "F3", "F4", "F5", "F6", "E", "T", "R"]
    ]
    assert [s for s in stages if s.startswith("layer.7/")][:4] == [f"layer.7/{n}" for n in ("P1", "A1", "A2", "A3")]


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_facts_may_have_travelled_as_json(tiny, arm) -> None:
    facts, shape = json.loads(json.dumps(dict(tiny.facts))), Shape(2, 1, 32, 4, dtypes={})
    assert arm.supports(facts, shape) is None
    assert arm.workspace(facts, shape) == arm.workspace(tiny.facts, shape)
    assert built(tiny, arm, shape, facts).stages == built(tiny, arm, shape).stages


def built(problem, arm, shape, facts=None):
    tensors = allocate(problem, shape, 1)
    problem.fill(shape, tensors, steps=1, seed=1)
    tensors["workspace"] = torch.zeros(arm.workspace(problem.facts, shape), dtype=torch.uint8)
    return arm.build(facts or problem.facts, shape, tensors)


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_metadata_and_states_may_change_without_a_build(tiny, arm) -> None:
    """Two runs with other slots, pages and lengths on one build equal the second run on a fresh build."""
    shape, steps = Shape(3, 1, 48, 4), 4
    outs = []
    for seeds in ((5, 6), (6,)):
        given = allocate(tiny, shape, steps)
        tiny.fill(shape, given, steps=steps, seed=1)
        schedules = [s.name for s in tiny.tensors(shape) if s.role is Role.SCHEDULE]
        tensors = {n: (t[0].clone() if n in schedules else t) for n, t in given.items()}
        tensors["workspace"] = torch.zeros(arm.workspace(tiny.facts, shape), dtype=torch.uint8)
        step = arm.build(tiny.facts, shape, tensors)
        for seed in seeds:
            tiny.fill(shape, given, steps=steps, seed=seed, only={Role.STATE, Role.METADATA, Role.SCHEDULE})
            for t in range(steps):
                for name in schedules:
                    tensors[name].copy_(given[name][t])
                tensors["x"].fill_(0.25 * (t + 1))
                step()
        outs.append(tensors["out"].clone())
    assert torch.equal(*outs)


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_a_padded_row_changes_no_other_row(tiny, arm) -> None:
    """What the null slot, the null page and unused rows hold does not matter."""
    shape = Shape(4, 1, 40, 4)
    one = run(arm, tiny, shape, steps=6, regime="padded")
    assert one.tensors["layers.8.recurrent_state"][0].isnan().all()
    assert one.tensors["layers.7.kv_cache"][:, 0].isnan().all()
    assert one.out.isfinite().all()


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_all_rows_padded_still_gives_numbers(tiny, arm) -> None:
    shape = Shape(2, 1, 16, 4)
    tensors = allocate(tiny, shape, 1)
    tiny.fill(shape, tensors, steps=1, seed=1)
    tensors = {n: (t[0] if n in ("seq_lens", "local_lens", "slot_mapping") else t) for n, t in tensors.items()}
    for name, value in (("slots", 0), ("block_table", 0), ("seq_lens", 0), ("local_lens", 0), ("slot_mapping", -1)):
        tensors[name].fill_(value)
    before = {n: t.clone() for n, t in tensors.items() if n.endswith(("_state", "kv_cache"))}
    tensors["x"].fill_(1)
    tensors["workspace"] = torch.zeros(arm.workspace(tiny.facts, shape), dtype=torch.uint8)
    arm.build(tiny.facts, shape, tensors)()
    assert tensors["out"].isfinite().all()
    for name, was in before.items():
        assert was.view(torch.uint8).equal(tensors[name].view(torch.uint8)), name


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 8), st.sampled_from([4, 8]), st.sampled_from([1, 2]), st.integers(3, 40), st.integers(0, 1 << 64))
def test_one_step_agrees_anywhere_in_scope(rows: int, page: int, ranks: int, context: int, seed: int) -> None:
    problem = load("tiny")
    shape = Shape(rows, 1, context, page, decode_context_parallel=ranks)
    for arm in ARMS.values():
        one = run(arm, problem, shape, steps=2, seed=seed)
        found = errors(problem, one, oracle().follow(problem, shape, one.initial, one.x, one.ids))
        assert found.rms < 0.15
        assert max(found.states.values()) < 0.02
        assert strayed(problem, one) == []


def test_ties_go_to_the_lower_expert(tiny) -> None:
    for arm in ARMS.values():
        ids = run(arm, tiny, Shape(4, 1, 40, 4), steps=4, regime="ties").ids
        odd = ids[ids % 2 == 1]
        assert odd.numel() > 0
        for chosen in ids.flatten(0, 2):
            members = set(chosen.tolist())
            assert all(expert - 1 in members for expert in members if expert % 2)


def test_the_workspace_is_all_used_and_not_exceeded(tiny) -> None:
    shape = Shape(2, 1, 32, 4)
    size = candidate.workspace(tiny.facts, shape)
    tensors = allocate(tiny, shape, 1)
    tiny.fill(shape, tensors, steps=1, seed=1)
    room = torch.full((size + 4096,), CANARY, dtype=torch.uint8)
    flat = {n: (t[0] if n in ("seq_lens", "local_lens", "slot_mapping") else t) for n, t in tensors.items()}
    candidate.build(tiny.facts, shape, flat | {"workspace": room[:size]})()
    assert (room[size:] == CANARY).all()
    with pytest.raises(ValueError, match="workspace must have"):
        candidate.build(tiny.facts, shape, flat | {"workspace": room[: size - 1]})


def test_the_candidate_declines_with_all_reasons_at_once(tiny) -> None:
    shape = replace(Shape(18, 2, 9000, 4, 2, 4, 2), dtypes={"kv_cache": "fp8_e5m2"})
    reason = candidate.supports(tiny.facts, shape)
    for part in ("rows", "query_tokens", "context", "tensor_parallel", "decode_context", "expert_parallel", "kv_cache"):
        assert part in reason
    assert "\n" not in reason
    with pytest.raises(ValueError, match="rows must be in"):
        candidate.build(tiny.facts, shape, {})
    assert candidate.supports(tiny.facts, Shape(8, 1, 4096, 8, decode_context_parallel=2)) is None
    assert "layer kinds" in candidate.supports(dict(tiny.facts, layers=((7, "mamba"),)), Shape(1, 1, 8, 4))


def test_stock_declines_what_it_does_not_know(tiny) -> None:
    assert baseline.supports(tiny.facts, Shape(64, 1, 4096, 4)) is None
    reason = baseline.supports(tiny.facts, Shape(4, 2, 64, 4, 3))
    assert "query_tokens" in reason
    assert "tensor_parallel" in reason


@pytest.mark.parametrize("name", ARMS)
def test_an_implementation_is_one_directory_of_torch_and_the_standard_library(name: str, tmp_path: Path) -> None:
    source = Path(PACKAGES[name].__file__).parent
    for path in source.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module.split(".")[0] in {"torch", *sys.stdlib_module_names}
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1
    target = tmp_path / "vllm" / "models" / "kimi_k3" / "nvidia" / "specialized_decode"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    module = {"baseline": "stock", "candidate": "gate"}[name]
    code = (
        f"import sys, importlib; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"arm = getattr(importlib.import_module('vllm.models.kimi_k3.nvidia.specialized_decode.{module}'), {name!r})\n"
        "assert arm.supports({'layers': ((7, 'mla'),)}, type('S', (), dict(rows=1, query_tokens=1, context=8, page_size=4,"
        " tensor_parallel=1, decode_context_parallel=1, expert_parallel=1, dtypes={}))()) is None\n"
        "assert not [m for m in sys.modules if m.startswith('kernels_under_test')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
