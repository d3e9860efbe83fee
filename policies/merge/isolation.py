"""A fast-track change stays inside its own specialised directory, and what it adds outside is off until somebody opts in.

What it checks: every changed entry of every comparison (each merge base to head, base tip to merge result) by zone, mode and
name; hook files by line budget and guard; the files of the directory by type and content; imports across the directory's edge.

Why: the fast track is only fast because nothing else can break.

How to fix: keep the change to one specialised directory; call into it from hook files behind the guard that the manifest names;
move everything else to a pull request of its own, or ask the owner of the path for a waiver. See ``docs/isolation.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from gatekeeper.domain import waivers
from gatekeeper.domain.contents import content_faults
from gatekeeper.domain.entry_faults import case_twins, described, module_twins, placed, root_faults
from gatekeeper.domain.file_names import name_faults
from gatekeeper.domain.hook_findings import hook_findings
from gatekeeper.domain.import_graph import foreign, importers, package_of
from gatekeeper.domain.owners import Owners, read_owners
from gatekeeper.domain.policy import Check, Effect, Finding, Parameters, Policy, PolicyInput, Report
from gatekeeper.domain.snapshot import ChangedFile
from gatekeeper.domain.zone_code import ODD_NAME, fresh
from gatekeeper.domain.zone_readings import reading
from gatekeeper.domain.zones import (
    FastTrack,
    Zone,
    ZoneMap,
    changed_entries,
    comparisons,
    fast_track,
    touches_reference,
)


class IsolationParameters(Parameters):
    """Limits of the isolation rule."""

    max_files: int = Field(default=3000, ge=1, description="most changed files in one comparison")
    max_file_bytes: int = Field(
        default=1 << 20, ge=1, description="most bytes of one file in the specialised directory"
    )
    max_findings: int = Field(
        default=200, ge=10, description="most findings shown; one more says how many were left out"
    )
    allowed_suffixes: tuple[str, ...] = Field(
        default=(".py", ".md", ".toml", ".json"), description="types of file allowed inside"
    )
    native_suffixes: tuple[str, ...] = Field(
        default=(".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inl", ".hip", ".mm"),
        description="types of file that an owner may let in",
    )


def judge(subject: PolicyInput, parameters: IsolationParameters) -> Report:
    """Report everything that reaches outside, with waivers applied."""
    track = fast_track(subject)
    owners = read_owners(subject.base, subject.configuration)
    if track is not None:
        findings = list(_Isolation(subject, parameters, track, owners).findings())
    elif touches_reference(subject.configuration, changed_entries(subject.snapshot)):
        findings = list(_reference_alone(subject, owners))
    else:
        return Report(summary="no specialised tree touched", applicable=False)
    kept = waivers.apply(
        _distinct(findings), snapshot=subject.snapshot, evidence=subject.evidence, policy=POLICY.id, owners=owners
    )
    return Report(findings=_capped(kept, parameters.max_findings))


def _reference_alone(subject: PolicyInput, owners: Owners) -> Iterator[Finding]:
    for change in changed_entries(subject.snapshot):
        if touches_reference(subject.configuration, [change]):
            yield Finding(
                code="ISO_REFERENCE_CHANGED", message="what kernels are judged by is changed", path=change.path,
                expected="a word of the owner", found=described(change), effect=Effect.HOLD,
                waivable_by=owners.of(change.path),
            )  # fmt: skip


def _some(paths: tuple[str, ...], most: int = 3) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Drop what both comparisons saw; the same statement may stand on different lines in the two."""
    seen: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.code, finding.path, finding.expected, finding.found, finding.effect), finding)
    return list(seen.values())


def _capped(findings: list[Finding], most: int) -> list[Finding]:
    if len(findings) <= most:
        return findings
    order = {Effect.FAIL: 0, Effect.HOLD: 1, Effect.NOTE: 2}
    ranked = sorted(findings, key=lambda finding: order[finding.effect])
    left = ranked[most:]
    rest = Finding(code="ISO_MORE_FINDINGS", message=f"{len(left)} more findings are not shown",
                   expected=f"at most {most} findings", found=str(len(findings)), effect=left[0].effect)  # fmt: skip
    return [*ranked[:most], rest]


class _Isolation:
    def __init__(self, subject: PolicyInput, parameters: IsolationParameters, track: FastTrack, owners: Owners) -> None:
        self.subject = subject
        self.parameters = parameters
        self.track = track
        self.owners = owners
        self.zones = ZoneMap(subject.configuration, track)
        self.after = [tree for tree in (subject.head, subject.merged) if tree is not None]
        self.changes = changed_entries(subject.snapshot)

    def findings(self) -> Iterator[Finding]:
        yield from self._whole()
        too_many = any(len(each.changes) > self.parameters.max_files for each in comparisons(self.subject.snapshot))
        whole = not too_many and not self.subject.snapshot.defects
        # First, since its search reads the files of the tree in batches: one by one they take three times as long.
        importing = list(self._importers(self.track.directory)) if whole and self.track.directory is not None else []
        for change in self.changes:
            zone = self.zones.zone(change.path)
            yield from placed(change, zone, self.owners)
            if zone in (Zone.FREE, Zone.TESTS) and not too_many:
                yield from self._source(change, zone)
        if not whole:
            return  # the contents of a change that cannot pass are not worth the reading
        yield from case_twins(self.changes, self.subject.base, self.after)
        if self.track.directory is not None:
            yield from module_twins(self.track.directory, self.after)
            yield from root_faults(self.track.directory, self.subject.base, self.after)
            yield from hook_findings(self.subject, self.track, self.zones, self.owners, self.parameters.max_file_bytes)
            yield from importing

    def _whole(self) -> Iterator[Finding]:
        """Yield what concerns the pull request as a whole."""
        snapshot = self.subject.snapshot
        if len(snapshot.merge_bases) > 1:
            yield Finding(code="ISO_AMBIGUOUS_BASE", message="several merge bases exist", expected="one merge base",
                          found=", ".join(snapshot.merge_bases), effect=Effect.HOLD,
                          waivable_by=self.owners.maintainers)  # fmt: skip
        if snapshot.merge_bases and snapshot.merge_tree is None and not snapshot.defects:
            yield Finding(code="ISO_CONFLICT", message="the change does not merge into the base branch",
                          expected="a merge without conflicts", effect=Effect.HOLD,
                          found=f"conflicts in {_some(snapshot.conflicts)}" if snapshot.conflicts else "conflicts",
                          path=snapshot.conflicts[0] if snapshot.conflicts else None)  # fmt: skip
        if snapshot.merged is not None and not snapshot.merged.changes and not snapshot.defects:
            yield Finding(code="ISO_EMPTY_DIFF", message="merging would change nothing",
                          expected="at least one changed file", found="none")  # fmt: skip
        for each in comparisons(snapshot):
            if len(each.changes) > self.parameters.max_files:
                yield Finding(code="ISO_TOO_MANY_FILES", message="more files than anybody would review",
                              expected=f"at most {self.parameters.max_files}", found=str(len(each.changes)),
                              path=each.changes[self.parameters.max_files].path)  # fmt: skip
        for other in self.track.others:
            yield Finding(code="ISO_SEVERAL_TREES", message="a second specialised directory is touched", path=other,
                          expected=f"a pull request of its own; this one is about {self.track.directory}",
                          found=other)  # fmt: skip

    def _source(self, change: ChangedFile, zone: Zone) -> Iterator[Finding]:
        if change.new_blob is None or change.new_mode not in ("100644", "100755"):
            return
        owners, limits, path = self.owners.of(change.path), self.parameters, change.path
        yield from name_faults(path, allowed=limits.allowed_suffixes, native=limits.native_suffixes, owners=owners,
                               tests=zone is Zone.TESTS)  # fmt: skip
        data = self.subject.head.read_blob(change.new_blob)
        yield from content_faults(path, data, limits.max_file_bytes)
        if zone is Zone.FREE and path.endswith(".py") and len(data) <= limits.max_file_bytes:
            yield from self._code(change, change.new_blob)

    def _code(self, change: ChangedFile, blob: str) -> Iterator[Finding]:
        """Yield what a Python file of the directory newly imports from behind others' doors, and names that look like others.

        What its code does is the policy ``effects``' question.
        """
        assert self.track.directory is not None
        assert self.track.root is not None
        package, old = package_of(self.track.directory), change.old_blob if change.old_mode != "160000" else None
        now = reading(self.subject.head, blob, change.path, package)
        reaching = foreign(
            now.imports, self.subject.configuration, self.track.directory, self.track.root, self.subject.base
        )
        before = reading(self.subject.base, old, change.path, package) if now.names or reaching else now
        for seen in fresh(now.names, before.names):
            yield Finding(code=seen.code, message=ODD_NAME[0], expected=ODD_NAME[1], found=seen.found, path=change.path,
                          line=seen.line, effect=Effect.HOLD, waivable_by=self.owners.of(change.path))  # fmt: skip
        known = {target for target, _ in before.imports}
        for target, line, why in (found for found in reaching if found[0] not in known):
            place = target.replace(".", "/")
            yield Finding(code="ISO_PRIVATE_IMPORT", message=f"imports {target}: {why}", path=change.path, line=line,
                          expected="imports of what is public", found=target, effect=Effect.HOLD,
                          waivable_by=self.owners.of(place))  # fmt: skip

    def _importers(self, directory: str) -> Iterator[Finding]:
        tree = self.subject.merged or self.subject.head
        found = {path: line for path, line in importers(tree, directory).items()
                 if self.zones.zone(path) not in (Zone.HOOK, Zone.TESTS)}  # fmt: skip
        before = sorted(found.keys() & importers(self.subject.base, directory).keys())
        message, expected = (
            "a file outside the hooks imports the specialised directory",
            "imports from hooks and tests only",
        )
        for path in sorted(found.keys() - set(before)):
            yield Finding(code="ISO_FOREIGN_IMPORT", message=message, expected=expected, found="a new import", path=path,
                          line=found[path], effect=Effect.HOLD, waivable_by=self.owners.of(path))  # fmt: skip
        if before:
            yield Finding(code="ISO_FOREIGN_IMPORT", message=message, expected=expected, path=before[0],
                          line=found[before[0]], effect=Effect.NOTE,
                          found=f"{len(before)} file(s) that did so before: {', '.join(before[:5])}")  # fmt: skip


POLICY = Policy(
    id="isolation",
    check=Check.ISOLATION,
    title="Changes stay inside the model's own directory",
    judge=judge,
    parameters=IsolationParameters,
)
