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


def load_model(name: str, problem: str, folder: Path = MODELS, architecture: str = "cpu") -> Model:
    """Import problem and oracle as ``<folder>/<name>/model.toml`` names them, for targets of an architecture.

    A table ``[on.<architecture>]`` of that file stands for the whole file on such targets.

    Raises:
        Rejected: if there is no such model or problem, or the model has nothing to race on this architecture.
    """
    file = folder / name / "model.toml"
    known = sorted(path.parent.name for path in folder.glob("*/model.toml"))
    if name not in known:
        raise Rejected("no such model under test", code="RACE_MODEL", expected=f"one of {known}", found=name)
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    if architecture != "cpu":
        values = on_architecture(name, values, architecture)
    try:
        loaded = attribute(values["problem"])(problem)
    except ValueError as error:
        problems = values.get("problems", [])
        raise Rejected("no such problem", code="RACE_MODEL", expected=f"one of {problems}", found=problem) from error
    return Model(loaded, attribute(values["reference"])())


def on_architecture(name: str, values: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return the table of a model's file that holds for an architecture other than the machine itself.

    Raises:
        Rejected: if there is none.
    """
    tables: dict[str, dict[str, Any]] = values.get("on", {})
    if architecture not in tables:
        raise Rejected(
            f"the model {name} has nothing to race on this architecture", code="RACE_MODEL",
            expected=f"one of {sorted(['cpu', *tables])}", found=architecture,
        )  # fmt: skip
    return tables[architecture]


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
