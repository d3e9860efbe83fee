"""The specialised directories that a pull request touches, with what their manifests say."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gatekeeper.domain.globs import covers, matched_directory
from gatekeeper.domain.import_graph import imports_of
from gatekeeper.domain.manifest import MANIFEST_NAME, Manifest, load
from gatekeeper.domain.policy import Finding
from gatekeeper.domain.requests import directory_tree, module_of

if TYPE_CHECKING:
    from gatekeeper.domain.policy import PolicyInput
    from gatekeeper.domain.repository import ModelRules, RepositoryConfiguration
    from gatekeeper.domain.source import SourceTree


@dataclass(frozen=True)
class Declared:
    """One touched directory. ``tree`` is what would be merged, or the head where the merge conflicts."""

    directory: str
    tree: SourceTree
    manifest: Manifest | None
    findings: tuple[Finding, ...]

    @property
    def path(self) -> str:
        """Path of the manifest, whether it is there or not."""
        return posixpath.join(self.directory, MANIFEST_NAME)

    @property
    def tree_id(self) -> str | None:
        """Object id of the directory's tree, None where the directory is gone."""
        return directory_tree(self.tree, self.directory)


def declared(input: PolicyInput) -> tuple[Declared, ...] | None:
    """Return the touched directories that still exist; None where the pull request touches none."""
    from gatekeeper.domain.zones import fast_track

    input.configuration.demand_sound()
    touched = fast_track(input)
    if touched is None:
        return None
    tree = input.merged or input.head
    return tuple(
        declare(tree, directory, base=input.base)
        for directory in touched.directories
        if directory_tree(tree, directory) is not None
    )


def declare(tree: SourceTree, directory: str, *, base: SourceTree | None = None) -> Declared:
    """Read one directory's manifest. ``base`` tells a new directory from one that never had a manifest."""
    path = posixpath.join(directory, MANIFEST_NAME)
    manifest, findings = load(tree, path)
    if base is not None and directory_tree(base, directory) is not None and base.entry(path) is None:
        findings = [_never_there(finding) for finding in findings]
    return Declared(directory, tree, manifest, tuple(findings))


def _never_there(finding: Finding) -> Finding:
    """Say of a missing manifest that the directory never had one: then the configuration may be what is wrong."""
    if finding.code != "SCOPE_MANIFEST_MISSING":
        return finding
    found = f"{finding.found}, nor one on the base branch; a directory for ordinary work is not to be listed as free"
    return finding.model_copy(update={"found": found})


def touched_hooks(input: PolicyInput, directory: str) -> tuple[str, ...]:
    """Return the changed files that the policy lists as hooks of the model that ``directory`` belongs to, sorted."""
    changed = {change.path for comparison in input.snapshot.proposed for change in comparison.changes}
    if input.snapshot.merged is not None:
        changed |= {change.path for change in input.snapshot.merged.changes}
    return hooks_among(changed, input.configuration, directory)


def hooks_among(paths: Iterable[str], configuration: RepositoryConfiguration, directory: str) -> tuple[str, ...]:
    """Return those of the paths that the configuration lists as hooks of the model that ``directory`` belongs to, sorted."""
    paths = set(paths)
    found = set()
    for model in configuration.models:
        root = matched_directory(model.root, directory)
        if root is not None:
            found |= {path for path in paths if _is_hook(path, root, model)}
    return tuple(sorted(found))


def _is_hook(path: str, root: str, model: ModelRules) -> bool:
    below = path.removeprefix(root + "/")
    if below == path or any(covers(pattern, below) for pattern in model.free):
        return False
    return any(covers(pattern, below) for pattern in model.hooks)


def outside_imports(tree: SourceTree, directory: str) -> tuple[str, ...]:
    """Return the modules of ``directory`` that Python files outside it import by name, sorted.

    A byte search first, then only the files found are parsed. A file that does not parse imports nothing.
    """
    package = directory.replace("/", ".")
    inside = {module_of(entry.path): entry for entry in tree.walk(directory) if entry.path.endswith(".py")}
    found: set[str] = set()
    for path in tree.grep(posixpath.basename(directory).encode()):
        if not path.startswith(directory + "/"):
            for target, _ in imports_of(tree.read(path), path):
                found |= {name for name in (target, target.rpartition(".")[0]) if name in inside}
    return tuple(sorted(name for name in found if name == package or name.startswith(package + ".")))
