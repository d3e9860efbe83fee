"""Every touched specialised directory carries a valid ``fast_track.toml`` that agrees with the tree and with the gate.

What it checks: the manifest is there and follows its schema; it names targets and a model under test that exist; the hook files
that the change touches are exactly hooks that it names, and each named hook calls into the directory.

Why: all other checks rest on what the manifest says; what it leaves out would be judged by nobody.

How to fix: each finding names file and line, what was expected and what stands there. ``docs/fast_track.md`` explains every key.
"""

from __future__ import annotations

import posixpath

from gatekeeper.domain.manifest import Manifest, positions
from gatekeeper.domain.policy import Check, Parameters, Policy, PolicyInput, Report
from gatekeeper.domain.scope import Declared, declared, touched_hooks


def judge(subject: PolicyInput, parameters: Parameters) -> Report:
    """Report every error of every touched manifest at once."""
    del parameters
    directories = declared(subject)
    if directories is None:
        return Report(summary="no specialised tree touched", applicable=False)
    return judge_directories(subject, directories)


def judge_directories(subject: PolicyInput, directories: tuple[Declared, ...]) -> Report:
    """Judge directories that were found already."""
    report = Report()
    for found in directories:
        report.findings.extend(found.findings)
        if found.manifest is not None:
            _known_names(report, subject, found, found.manifest)
            _hooks(report, subject, found, found.manifest)
    wrong = len(report.findings)
    report.summary = f"{len(directories)} manifest(s), {wrong} error(s)" if wrong else "every manifest is valid"
    return report


def _known_names(report: Report, subject: PolicyInput, found: Declared, manifest: Manifest) -> None:
    places = positions(found.tree, manifest)
    for index, scope in enumerate(manifest.targets):
        if scope.name not in subject.catalog.targets:
            report.add("SCOPE_TARGET_UNKNOWN", "the gate knows no such target", found=scope.name, path=found.path,
                       expected=f"one of {', '.join(sorted(subject.catalog.targets))}",
                       line=places.line("targets", index, "name"))  # fmt: skip
    if manifest.problem not in subject.catalog.models:
        report.add("SCOPE_PROBLEM_UNKNOWN", "the gate has no such model under test", found=manifest.problem,
                   expected=f"one of {', '.join(sorted(subject.catalog.models))}", path=found.path,
                   line=places.line("problem"))  # fmt: skip


def _hooks(report: Report, subject: PolicyInput, found: Declared, manifest: Manifest) -> None:
    line = positions(found.tree, manifest).line
    for path in touched_hooks(subject, found.directory):
        if path not in manifest.hooks:
            report.add("SCOPE_HOOKS", "a hook file is changed that the manifest does not name", expected=path,
                       found=", ".join(manifest.hooks) or "no hooks", path=found.path, line=line("hooks"))  # fmt: skip
    name = posixpath.basename(found.directory).encode()
    for index, path in enumerate(manifest.hooks):
        entry = found.tree.entry(path)
        if entry is None or entry.kind != "blob" or name not in found.tree.read(path):
            report.add("SCOPE_HOOKS", "a named hook does not call into the directory", path=found.path,
                       expected=f"a file that names {name.decode()}", line=line("hooks", index),
                       found=f"{path}: {'no such file' if entry is None else 'does not name it'}")  # fmt: skip


POLICY = Policy(
    id="manifest_is_valid",
    check=Check.SCOPE,
    title="The manifest is valid and agrees with the tree",
    judge=judge,
    parameters=Parameters,
)
