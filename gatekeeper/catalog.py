"""Reads what is installed: ``workers/targets/*.toml`` and ``kernels_under_test/*/model.toml``.

Loud by design: a file that does not parse, a name that differs from its file or a model without its parts stops the process,
because a gate that quietly forgets a target would quietly stop asking for its evidence.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gatekeeper.domain.catalog import Catalog, HardwareTarget, ModelUnderTest
from gatekeeper.domain.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds ``gatekeeper``, ``workers``, ``policies`` and ``kernels_under_test``: a checkout or an image."""

UNTRUSTED_PARTS = ("candidate",)
"""Folders of a model that are judged rather than trusted; they do not enter its suite digest."""

SUFFIXES_THAT_DECIDE = (".py", ".toml")


def load_catalog(root: Path = ROOT) -> Catalog:
    """Read all targets and models below ``root``.

    Raises:
        ConfigurationError: for a file that cannot be read as what it should be, with its path, expected and found.
    """
    targets = [_target(path) for path in sorted((root / "workers" / "targets").glob("*.toml"))]
    models = [_model(path, root) for path in sorted((root / "kernels_under_test").glob("*/model.toml"))]
    return Catalog(targets={target.name: target for target in targets}, models={model.name: model for model in models})


def digest_of_files(paths: Iterable[Path], root: Path) -> str:
    """Return ``sha256:<hex>`` over the relative names and bytes of files, in the order of their names."""
    total = hashlib.sha256()
    for path in sorted(paths):
        name, data = path.relative_to(root).as_posix().encode(), path.read_bytes()
        total.update(f"{len(name)} {len(data)}\n".encode() + name + data)
    return f"sha256:{total.hexdigest()}"


def _target(path: Path) -> HardwareTarget:
    values = _read(path)
    target = _validated(HardwareTarget, values, path)
    if target.name != path.stem:
        raise ConfigurationError(
            f"the target in {path.name} has another name than its file",
            code="CATALOG_NAME",
            expected=path.stem,
            found=target.name,
        )
    return target


def _model(path: Path, root: Path) -> ModelUnderTest:
    values = _read(path)
    folder = path.parent
    if "suite" in values:
        raise ConfigurationError(
            f"{path} sets `suite`",
            code="CATALOG_MODEL",
            expected="no such key: the digest is computed",
            found="a value",
        )
    model = _validated(ModelUnderTest, {**values, "suite": _suite_digest(folder, root)}, path)
    if model.name != folder.name:
        raise ConfigurationError(
            f"the model in {path} has another name than its folder",
            code="CATALOG_NAME",
            expected=folder.name,
            found=model.name,
        )
    problems = {file.stem for file in (folder / "problems").glob("*.toml")}
    if set(model.problems) != problems or model.default_problem not in problems:
        raise ConfigurationError(
            f"the problems listed in {path} are not those in its folder `problems`",
            code="CATALOG_MODEL",
            expected=", ".join(sorted(problems)) or "at least one problem",
            found=f"{', '.join(model.problems)}; default {model.default_problem}",
        )
    for architecture, parts in model.on.items():
        there = {file.stem for file in (folder / parts.folder).glob("*.toml")}
        if set(parts.problems) != there or parts.default_problem not in there:
            raise ConfigurationError(
                f"the problems listed in {path} for {architecture} are not those in its folder `{parts.folder}`",
                code="CATALOG_MODEL",
                expected=", ".join(sorted(there)) or "at least one problem",
                found=f"{', '.join(parts.problems)}; default {parts.default_problem}",
            )
    return model


def _suite_digest(folder: Path, root: Path) -> str:
    """Digest of all that decides a race of this model: its trusted parts, the contract and the harness."""
    trusted = [
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES_THAT_DECIDE and path.relative_to(folder).parts[0] not in UNTRUSTED_PARTS
    ]
    shared = [path for path in folder.parent.glob("*.py") if path.is_file()]
    harness = [path for path in (root / "workers").rglob("*") if path.suffix in (".py", ".cu")]
    return digest_of_files([*trusted, *shared, *harness], root)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"cannot read {path}", code="CATALOG_FILE", expected="a TOML file in UTF-8", found=str(error)
        ) from error


D = TypeVar("D", HardwareTarget, ModelUnderTest)


def _validated(cls: type[D], values: dict[str, Any], path: Path) -> D:
    try:
        return cls(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"{path}: `{where}` is wrong",
            code="CATALOG_FILE",
            expected=first["msg"],
            found=repr(first.get("input"))[:120],
        ) from error
