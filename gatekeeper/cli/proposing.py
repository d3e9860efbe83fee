"""Finds out what a manifest skeleton can propose: from the base branch's configuration, the work tree and what is installed."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.catalog import ROOT
from gatekeeper.cli.skeleton import Limits, Proposal
from gatekeeper.domain.catalog import Catalog, ModelUnderTest
from gatekeeper.domain.globs import component_matches, components, matched_directory
from gatekeeper.domain.manifest import MANIFEST_NAME
from gatekeeper.domain.python_source import parse_python
from gatekeeper.domain.repository import ModelRules, RepositoryConfiguration
from gatekeeper.domain.requests import module_of
from gatekeeper.domain.scope import hooks_among
from gatekeeper.domain.snapshot import ChangedFile, ChangeKind
from gatekeeper.domain.source import SourceTree
from gatekeeper.domain.zones import FastTrack, Zone, ZoneMap, specialised_directory
from gatekeeper.git.worktree import WorkTree

ENTRY_POINT, GUARD = "candidate", "enabled"
"""Names that are looked for in the directory; any others can be written into the manifest."""
_NAME = re.compile(r"\A[a-z0-9_]{1,64}\Z")
_WILD = re.compile(r"[*?]")


@dataclass(frozen=True)
class Place:
    """A specialised directory that the configuration leaves free, and the model that it belongs to."""

    directory: str
    root: str
    rules: ModelRules


def free_place(configuration: RepositoryConfiguration, directory: str) -> Place | None:
    """Return the place of a directory, or None if a manifest in it would not lie in the free zone."""
    path = f"{directory}/{MANIFEST_NAME}"
    new = ChangedFile(path=path, kind=ChangeKind.ADDED, old_mode=None, new_mode="100644", old_blob=None, new_blob=None)
    found = specialised_directory(configuration, new)
    if found is None or found[0] != directory:
        return None
    _, root, rules = found
    track = FastTrack(directory=directory, others=(), root=root, model=rules)
    if ZoneMap(configuration, track).zone(path) is not Zone.FREE:
        return None
    return Place(directory, root, rules)


def unimportable(directory: str) -> str | None:
    """Return the first name of a path that cannot be the name of a package, None if all can."""
    return next((part for part in components(directory) if not part.isidentifier()), None)


def free_patterns(configuration: RepositoryConfiguration) -> tuple[str, ...]:
    """Return the patterns of all directories that are free, for people."""
    return tuple(f"{model.root}/{free}" for model in configuration.models for free in model.free)


def touched_directories(
    configuration: RepositoryConfiguration, work: WorkTree, bases: Iterable[SourceTree]
) -> tuple[str, ...]:
    """Return the free directories of the work tree that hold a file which some merge base does not hold like that, sorted."""
    bases = tuple(bases)
    found: set[str] = set()
    for pattern in free_patterns(configuration):
        for path in work.files(_literal_part(pattern)):
            directory = matched_directory(pattern, path)
            if directory and directory != path and directory not in found and differs(work, bases, path):
                found.add(directory)
    return tuple(sorted(one for one in found if free_place(configuration, one) and unimportable(one) is None))


def _literal_part(pattern: str) -> str:
    parts = components(pattern)
    wild = next((index for index, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return "/".join(parts[:wild])


def differs(work: WorkTree, bases: Iterable[SourceTree], path: str) -> bool:
    """Whether a file of the work tree is new or has other bytes than at some merge base."""
    data = work.read(path)
    return data is not None and any(_bytes_at(base, path) != data for base in bases)


def _bytes_at(tree: SourceTree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except KeyError:
        return None


def touched_hooks(
    configuration: RepositoryConfiguration, directory: str, work: WorkTree, bases: Iterable[SourceTree]
) -> tuple[str, ...]:
    """Return the hook files of the directory's model that the work tree changes, sorted."""
    bases = tuple(bases)
    roots = {matched_directory(model.root, directory) for model in configuration.models} - {None}
    paths = {path for root in roots for path in work.files(root or "")}
    hooks = hooks_among(paths, configuration, directory)
    return tuple(path for path in hooks if differs(work, bases, path))


def propose(
    place: Place,
    *,
    configuration: RepositoryConfiguration,
    mandatory: tuple[str, ...],
    catalog: Catalog,
    work: WorkTree,
    bases: Iterable[SourceTree],
    problem: str | None,
    targets: tuple[str, ...],
) -> Proposal:
    """Return what a skeleton for ``place`` says. ``problem`` and ``targets`` are the author's own choices, if any."""
    model, vendor = names(place)
    if problem is None and model in catalog.models:
        problem = model
    chosen = (
        targets or tuple(name for name, target in catalog.targets.items() if target.owned) or tuple(catalog.targets)
    )
    defined = definitions(work, place.directory)
    return Proposal(
        directory=place.directory,
        model=model,
        vendor=vendor,
        problem=problem,
        problems=tuple(catalog.models),
        entry_points=defined[ENTRY_POINT],
        guards=defined[GUARD],
        hooks=touched_hooks(configuration, place.directory, work, bases),
        root=place.root,
        hook_patterns=place.rules.hooks,
        hook_budget=place.rules.hook_budget,
        targets=tuple(catalog.targets[name] for name in chosen),
        other_targets=tuple(name for name in catalog.targets if name not in chosen),
        limits=limits_of(catalog.models[problem]) if problem else Limits(),
        mandatory=mandatory,
    )


def names(place: Place) -> tuple[str | None, str | None]:
    """Return model and vendor of a place, None for what is not told.

    Where the root is one directory, the table's own names count. Where it holds wildcards, what these stand for is the model
    and, if there are two, the vendor.
    """
    pattern = components(place.rules.root)
    wild = [
        name for part, name in zip(pattern, components(place.root), strict=True)
        if _WILD.search(part) and component_matches(part, name)
    ]  # fmt: skip
    model = wild[0] if wild else place.rules.name
    vendor = wild[1] if len(wild) > 1 else place.rules.vendor
    return (model if _NAME.match(model) else None, vendor if _NAME.match(vendor) else None)


def definitions(work: WorkTree, directory: str) -> dict[str, tuple[str, ...]]:
    """Return every ``module:name`` of the directory for the two names that are looked for. Nothing is imported or run."""
    found: dict[str, list[str]] = {ENTRY_POINT: [], GUARD: []}
    for path in work.files(directory):
        if path.endswith(".py"):
            for name in _bound(work.read(path) or b""):
                if name in found:
                    found[name].append(f"{module_of(path)}:{name}")
    return {name: tuple(places) for name, places in found.items()}


def _bound(source: bytes) -> Iterator[str]:
    """Yield the names that a module defines at its top level; imports only pass a name on."""
    try:
        body = parse_python(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def limits_of(model: ModelUnderTest, root: Path = ROOT, problem: str | None = None, folder: str = "problems") -> Limits:
    """Return the ``[limits]`` of a model's problem, the default one if left out; what is not there, or is no count, is left open.

    ``folder`` holds the problem's file, below the model's.
    """
    file = root / "kernels_under_test" / model.name / folder / f"{problem or model.default_problem}.toml"
    told = tomllib.loads(file.read_text(encoding="utf-8")).get("limits", {})
    if not isinstance(told, dict):
        return Limits()
    return Limits(
        rows=next(iter(_counts([told.get("rows")])), None),
        context=next(iter(_counts([told.get("context")])), None),
        page_sizes=_counts(told.get("page_sizes")),
        decode_context_parallel=_counts(told.get("decode_context_parallel")),
    )


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(value for value in values if type(value) is int and value > 0) if isinstance(values, list) else ()
