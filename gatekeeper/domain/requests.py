"""What a manifest asks of the workers: the race of one target, and the probe of a directory."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from gatekeeper.domain.advertised import EnumerationRules, Scope, advertised, guard_pool
from gatekeeper.domain.boundary_pool import boundary_pool
from gatekeeper.domain.catalog import ModelUnderTest
from gatekeeper.domain.configuration import Configuration
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.guard_asking import GuardAsking
from gatekeeper.domain.manifest import Manifest
from gatekeeper.domain.outside import refused
from gatekeeper.domain.race import InstalledSource, ProbeRequest, RaceRequest, RaceRules, TreeSource

if TYPE_CHECKING:
    from gatekeeper.domain.policy import PolicyInput
    from gatekeeper.domain.source import SourceTree


def directory_tree(tree: SourceTree, directory: str) -> str | None:
    """Return the object id of a directory's tree, None where there is no such directory."""
    entry = tree.entry(directory)
    return entry.id if entry is not None and entry.kind == "tree" else None


def tree_source(input: PolicyInput, tree: str, manifest: Manifest) -> TreeSource:
    """Return the source of a manifest's implementation; ``tree`` is the id of its directory's tree in the merge result."""
    return TreeSource(
        repository_id=input.snapshot.key.repository_id,
        tree=tree,
        directory=manifest.directory,
        entry_point=manifest.entry_point,
    )


def race_request(
    input: PolicyInput, manifest: Manifest, target: str, rules: RaceRules, enumeration: EnumerationRules | None = None
) -> RaceRequest:
    """Return the race of a manifest's implementation in the merge result against the stock baseline on one target.

    Raises:
        KeyError: if the manifest or the catalogue does not name the target, or the catalogue not the model under test.
        Rejected: if there is no merge result, or no such directory in it.
    """
    tree = directory_tree(input.merged, manifest.directory) if input.merged is not None else None
    if tree is None:
        raise Rejected(
            "there is nothing to race", code="RACE_SOURCE", expected=manifest.directory, found="no such tree"
        )
    model, machine = input.catalog.models[manifest.problem], input.catalog.targets[target]
    # Where nothing is raced on this architecture the model's own parts stand in the request, whose evidence a log then gives.
    parts = model.parts(machine) or model
    policy_set = input.snapshot.key.policy_set
    return RaceRequest(
        model=model.name,
        problem=parts.default_problem,
        suite=model.suite,
        target=machine,
        candidate=tree_source(input, tree, manifest),
        baseline=InstalledSource(entry_point=parts.baseline),
        configurations=advertised(manifest, target, policy_set, enumeration).configurations,
        refused=refused(manifest, target, policy_set),
        guard_pool=guard_pool(manifest, target, policy_set, enumeration),
        boundary_pool=boundary_pool(manifest, target, policy_set, enumeration) if rules.boundary_points else (),
        rules=rules,
    )


def probe_request(
    input: PolicyInput,
    tree: str,
    manifest: Manifest,
    model: ModelUnderTest,
    enumeration: EnumerationRules | None = None,
    platform_modules: tuple[str, ...] = (),
    askings: tuple[GuardAsking, ...] = (),
) -> ProbeRequest:
    """Return the probe of a manifest's directory: one table of ``supports()`` over all targets of the manifest."""
    policy_set = input.snapshot.key.policy_set
    served: dict[str, Configuration] = {}
    declined: dict[str, Configuration] = {}
    for scope in manifest.targets:
        for configuration in advertised(manifest, scope.name, policy_set, enumeration).configurations:
            served.setdefault(configuration.label, configuration)
    for scope in manifest.targets:
        for configuration in refused(manifest, scope.name, policy_set):
            if configuration.label not in served and not _served_elsewhere(manifest, configuration):
                declined.setdefault(configuration.label, configuration)
    return ProbeRequest(
        source=tree_source(input, tree, manifest),
        guard=manifest.guard,
        askings=askings,
        platform_modules=platform_modules,
        model=model.problem,
        problem=model.default_problem,
        advertised=tuple(served.values()),
        refused=tuple(declined.values()),
    )


def _served_elsewhere(manifest: Manifest, configuration: Configuration) -> bool:
    """``supports()`` is not told the target: what one target serves cannot be demanded to be refused for another."""
    return any(Scope(manifest, scope).holds(configuration) for scope in manifest.targets)


def module_of(path: str) -> str:
    """Return the dotted module name of a Python file's repository path; of a package for its ``__init__.py``."""
    stem = path.removesuffix(".py")
    if posixpath.basename(stem) == "__init__":
        stem = posixpath.dirname(stem)
    return stem.replace("/", ".")
