"""Loads the trusted parts of a model under test, by name: problem and oracle, never an implementation."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.errors import Rejected
from kernels_under_test.contract import Oracle, Problem, Shape

MODELS = Path(__file__).resolve().parent.parent / "kernels_under_test"


@dataclass(frozen=True)
class Model:
    """What the harness trusts of a model."""

    problem: Problem
    oracle: Oracle

    def facts(self) -> dict[str, Any]:
        """Return the problem's facts as JSON data (tuples become lists)."""
        return dict(self.problem.facts)


def load_model(name: str, problem: str, folder: Path = MODELS) -> Model:
    """Import problem and oracle as ``<folder>/<name>/model.toml`` names them.

    Raises:
        Rejected: if there is no such model or problem.
    """
    file = folder / name / "model.toml"
    known = sorted(path.parent.name for path in folder.glob("*/model.toml"))
    if name not in known:
        raise Rejected("no such model under test", code="RACE_MODEL", expected=f"one of {known}", found=name)
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    try:
        loaded = attribute(values["problem"])(problem)
    except ValueError as error:
        problems = values.get("problems", [])
        raise Rejected("no such problem", code="RACE_MODEL", expected=f"one of {problems}", found=problem) from error
    return Model(loaded, attribute(values["reference"])())


def attribute(where: str) -> Any:
    """Return what ``module:attribute`` names."""
    module, name = where.split(":")
    return getattr(importlib.import_module(module), name)


def shape_of(configuration: Configuration) -> Shape:
    """Return a configuration as implementations see it."""
    return Shape(**configuration.model_dump())


def shape_fields(shape: Shape) -> Mapping[str, Any]:
    """Return a shape as JSON data for the stub."""
    return {**asdict(shape), "dtypes": dict(shape.dtypes)}
