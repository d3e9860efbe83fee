"""The directory's code changes nothing of others, runs only what can be read, and does nothing that nobody called for.

What it checks: the text of each changed Python file of the specialised directory and of its hook files, as a syntax tree. Named are
changes of foreign objects and process-wide settings, code from data, loading that may run code, texts that nobody can read,
threads and other background work, modes of PyTorch, and work at import. Of tests, what reaches the tests of others, and tests that
go away or never run. What a file held before is not asked about again.

Why: a diff can stay inside its directory and still change every model of the process. This is the early answer, with a line; who
wants to can write around it, which is why the probe looks at what really happens and no verdict is made near such code.

How to fix: keep state in your own objects; load data as JSON; move work from the top level into functions; call what you import by
its name. What has to stay is waived by the owner of the file. See ``docs/isolation.md``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from pydantic import Field

from gatekeeper.domain import waivers
from gatekeeper.domain.import_graph import package_of
from gatekeeper.domain.owners import Owners, read_owners
from gatekeeper.domain.policy import Check, Effect, Finding, Parameters, Policy, PolicyInput, Report
from gatekeeper.domain.snapshot import ChangedFile
from gatekeeper.domain.zone_code import explained, fresh
from gatekeeper.domain.zone_readings import reading
from gatekeeper.domain.zone_tests import EXPLAINED_TESTS, ReadTests, read_tests
from gatekeeper.domain.zones import PLAIN_MODES, Zone, ZoneMap, changed_entries, comparisons, fast_track


class EffectsParameters(Parameters):
    """Limits of the reading, and how much an effect weighs."""

    refuse: tuple[str, ...] = Field(
        default=("SRC_UNSAFE_LOAD",), description="codes that fail the check; all others wait for the owner of the file"
    )
    max_files: int = Field(default=3000, ge=1, description="most changed files in one comparison that are read")
    max_file_bytes: int = Field(default=1 << 20, ge=1, description="most bytes of a file that is read")
    max_findings: int = Field(
        default=200, ge=10, description="most findings shown; one more says how many were left out"
    )


def judge(subject: PolicyInput, parameters: EffectsParameters) -> Report:
    """Report what the changed code newly does to others, with waivers applied."""
    track = fast_track(subject)
    if track is None:
        return Report(summary="no specialised tree touched", applicable=False)
    if track.directory is None:
        return Report(summary="no specialised directory to read", applicable=False)
    owners = read_owners(subject.base, subject.configuration)
    largest = max((len(each.changes) for each in comparisons(subject.snapshot)), default=0)
    if largest > parameters.max_files:
        findings = [_unread(None, f"at most {parameters.max_files} changed files", str(largest), owners.maintainers)]
    else:
        # One search, which the import graph asks for as well: it fetches the files in batches, three times as fast as one by one.
        (subject.merged or subject.head).grep(posixpath.basename(track.directory).encode(), whole_word=True)
        zones, package = ZoneMap(subject.configuration, track), package_of(track.directory)
        findings = [
            finding
            for change in changed_entries(subject.snapshot)
            if zones.zone(change.path) in (Zone.FREE, Zone.HOOK)
            for finding in _file(subject, change, package, owners, parameters)
        ]
        tests = [change for change in changed_entries(subject.snapshot) if zones.zone(change.path) is Zone.TESTS]
        findings += _tests(subject, tests, package, owners, parameters)
    kept = waivers.apply(
        _distinct(findings), snapshot=subject.snapshot, evidence=subject.evidence, policy=POLICY.id, owners=owners
    )
    return Report(findings=_capped(kept, parameters.max_findings))


def _file(
    subject: PolicyInput, change: ChangedFile, package: str, owners: Owners, limits: EffectsParameters
) -> Iterator[Finding]:
    path = change.path
    if change.new_blob is None or change.new_mode not in PLAIN_MODES or not path.endswith(".py"):
        return
    size = len(subject.head.read_blob(change.new_blob))
    if size > limits.max_file_bytes:
        yield _unread(path, f"at most {limits.max_file_bytes} bytes", f"{size} bytes", owners.of(path))
        return
    now = reading(subject.head, change.new_blob, path, package)
    if now.unread:
        yield _unread(path, "Python that this service can parse", now.unread, owners.of(path))
    if not now.seen:
        return
    by = owners.of(path)
    old = change.old_blob if change.old_mode in PLAIN_MODES else None
    before = reading(subject.base, old, path, package)
    for seen in fresh(now.seen, before.seen):
        message, expected = explained(seen)
        effect = Effect.FAIL if seen.code in limits.refuse else Effect.HOLD
        yield Finding(code=seen.code, message=message, expected=expected, found=seen.found, path=path, line=seen.line,
                      effect=effect, waivable_by=by)  # fmt: skip


def _tests(
    subject: PolicyInput, changes: list[ChangedFile], package: str, owners: Owners, limits: EffectsParameters
) -> Iterator[Finding]:
    """What tests do to the session that they run in; fewer tests than before wait as well, wherever they went."""
    gone: dict[str, str] = {}
    come: set[str] = set()
    for change in changes:
        if not change.path.endswith(".py"):
            continue
        by = owners.of(change.path)
        old, new = (
            read_tests(source, change.path, package) if source is not None else ReadTests()
            for source in _both(subject, change, limits.max_file_bytes)
        )
        if new.unread:
            yield _unread(change.path, "Python that this service can parse", new.unread, by)
            continue
        for seen in fresh(new.seen, old.seen):
            message, expected = EXPLAINED_TESTS.get(seen.code) or explained(seen)
            yield Finding(code=seen.code, message=message, expected=expected, found=seen.found, path=change.path, line=seen.line,
                          effect=Effect.FAIL if seen.code in limits.refuse else Effect.HOLD, waivable_by=by)  # fmt: skip
        gone.update({name: change.path for name in sorted(old.tests - new.tests)})
        come |= new.tests - old.tests
    lost = [name for name in gone if name not in come]
    if len(lost) > len(come - gone.keys()):
        path = gone[lost[0]]
        yield Finding(code="EFF_TESTS_REMOVED", message="tests are removed, and fewer come in their place",
                      expected="as many tests as before", found=", ".join(lost)[:200], path=path, effect=Effect.HOLD,
                      waivable_by=owners.of(path))  # fmt: skip


def _both(subject: PolicyInput, change: ChangedFile, most: int) -> Iterator[bytes | None]:
    """Yield what a file held before and what it holds now; None where it is no plain file, or larger than is read."""
    for tree, blob, mode in (
        (subject.base, change.old_blob, change.old_mode),
        (subject.head, change.new_blob, change.new_mode),
    ):
        source = tree.read_blob(blob) if blob is not None and mode in PLAIN_MODES else None
        yield source if source is None or len(source) <= most else b"\0"


def _unread(path: str | None, expected: str, found: str, by: tuple[str, ...]) -> Finding:
    """A file that was not read has not been found harmless: newer syntax than ours runs elsewhere."""
    return Finding(code="EFF_NOT_READ", message="what this code does was not looked at", expected=expected, found=found,
                   path=path, effect=Effect.HOLD, waivable_by=by)  # fmt: skip


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Drop what both comparisons saw; the same statement may stand on different lines in the two."""
    seen: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        seen.setdefault((finding.code, finding.path, finding.found), finding)
    return list(seen.values())


def _capped(findings: list[Finding], most: int) -> list[Finding]:
    if len(findings) <= most:
        return findings
    ranked = sorted(findings, key=lambda finding: [Effect.FAIL, Effect.HOLD, Effect.NOTE].index(finding.effect))
    rest = Finding(code="EFF_MORE_FINDINGS", message=f"{len(findings) - most} more findings are not shown",
                   expected=f"at most {most} findings", found=str(len(findings)), effect=ranked[most].effect)  # fmt: skip
    return [*ranked[:most], rest]


POLICY = Policy(
    id="effects",
    check=Check.ISOLATION,
    title="The code changes nothing of others and does nothing unasked",
    judge=judge,
    parameters=EffectsParameters,
)
