"""``model.toml``: its fields are the catalog's, its names exist, its kernel counts are those of the step."""

import importlib
import tomllib
from pathlib import Path

import torch

from gatekeeper.domain.catalog import ModelUnderTest
from kernels_under_test import kimi_k3
from kernels_under_test.contract import Shape
from tests.kernels_under_test.kimi_k3.chain import allocate

RAW = tomllib.loads((Path(kimi_k3.__file__).parent / "model.toml").read_text())


def named(where: str):
    module, attribute = where.split(":")
    return getattr(importlib.import_module(module), attribute)


def test_the_fields_are_those_of_the_catalog() -> None:
    model = ModelUnderTest(**RAW, suite="sha256:" + "0" * 64)
    assert model.default_problem in model.problems
    for name in model.problems:
        assert named(model.problem)(name).name == name
    assert callable(named(model.reference)().follow)


def test_kernel_counts_are_those_of_a_kda_layer(tiny) -> None:
    shape = Shape(1, 1, 16, 4)
    tensors = allocate(tiny, shape, 1)
    tiny.fill(shape, tensors, steps=1, seed=1)
    for arm, wanted in RAW["kernels_per_layer"].items():
        implementation = named(RAW[arm])
        size = implementation.workspace(tiny.facts, shape)
        given = tensors | {"workspace": torch.zeros(size, dtype=torch.uint8)}
        stages = implementation.build(tiny.facts, shape, given).stages
        assert sum(stage.startswith("layer.8/") for stage in stages) == wanted
