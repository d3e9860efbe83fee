"""The findings about the hook files of one fast-track change: their budget, and what :mod:`guards` sees in each."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from gatekeeper.domain import manifest as manifests
from gatekeeper.domain.contents import content_faults
from gatekeeper.domain.entry_faults import described
from gatekeeper.domain.guard_function import Located, guard_faults, locate
from gatekeeper.domain.guard_names import Guard
from gatekeeper.domain.guard_switch import speaks_of
from gatekeeper.domain.guards import HookFault, guard_of, judge_hook
from gatekeeper.domain.hook_imports import missing_imports
from gatekeeper.domain.hook_size import added_lines
from gatekeeper.domain.import_graph import importers, package_of
from gatekeeper.domain.owners import Owners
from gatekeeper.domain.policy import Effect, Finding, PolicyInput
from gatekeeper.domain.snapshot import ChangedFile, ChangeKind
from gatekeeper.domain.stock_words import StockWords
from gatekeeper.domain.zones import FastTrack, Zone, ZoneMap, comparisons


def hook_findings(
    subject: PolicyInput, track: FastTrack, zones: ZoneMap, owners: Owners, max_file_bytes: int
) -> Iterator[Finding]:
    """Yield what is wrong with the changed hook files, comparison by comparison, and with the guard that they stand behind."""
    if track.directory is None or track.model is None:
        return
    review = _Review(subject, track, track.directory, zones, owners, max_file_bytes)
    yield from review.opt_in()
    for comparison in comparisons(subject.snapshot):
        hooks = [change for change in comparison.changes if review.is_edited_hook(change)]
        yield from review.budget(hooks, track.model.hook_budget)
        for change in hooks:
            yield from review.once(change)
    yield from review.cut_off()


class _Review:
    def __init__(
        self, subject: PolicyInput, track: FastTrack, directory: str, zones: ZoneMap, owners: Owners, largest: int
    ) -> None:
        self._subject = subject
        self._zones = zones
        self._owners = owners
        self._largest = largest
        self._directory = directory
        self._package = package_of(directory)
        self._words = StockWords(subject.base, subject.configuration, track, zones)
        self._after = subject.merged or subject.head
        path = posixpath.join(directory, manifests.MANIFEST_NAME)
        self._manifest, _ = manifests.load(self._after, path)
        self._named = guard_of(self._manifest.guard, self._package) if self._manifest else None
        found = locate(self._after, self._named) if self._named else None
        self._asked = found.function.args if isinstance(found, Located) else None
        self._sizes: dict[ChangedFile, int] = {}
        self._seen: set[ChangedFile] = set()

    @property
    def _guard(self) -> Guard:
        """The opt-in that the manifest names. Without a valid manifest, which fails the scope check, any function of the
        directory may be the one."""
        return self._named or Guard(self._package, "", "")

    def opt_in(self) -> Iterator[Finding]:
        """Yield what is wrong with the guard function itself."""
        if self._manifest is None or self._named is None:
            return
        faults = list(guard_faults(self._after, self._named))
        for path, fault in faults:
            yield Finding(code="ISO_GUARD", message=fault.message, expected=fault.expected, found=fault.found, path=path,
                          line=fault.line, waivable_by=self._owners.of(path))  # fmt: skip
        if not faults and not speaks_of(self._after, self._named, self._manifest.switch):
            path = f"{self._named.module.replace('.', '/')}.py"
            yield Finding(code="ISO_GUARD", message="the guard does not speak of the switch", effect=Effect.HOLD, path=path,
                          expected=f"a look at `{self._manifest.switch}`, as the manifest says",
                          found="none of its words", waivable_by=self._owners.of(path))  # fmt: skip

    def is_edited_hook(self, change: ChangedFile) -> bool:
        """Whether a change leaves a hook file a plain file: only then is there something to compare."""
        return (
            self._zones.zone(change.path) is Zone.HOOK
            and change.kind is ChangeKind.MODIFIED
            and change.new_mode in ("100644", "100755")
        )

    def budget(self, hooks: list[ChangedFile], budget: int) -> Iterator[Finding]:
        """Yield a finding if the hook files together grow by more than the configuration allows."""
        for change in hooks:
            if change not in self._sizes:
                self._sizes[change] = added_lines(self._old(change), self._new(change))
        added = {change.path: self._sizes[change] for change in hooks}
        if sum(added.values()) > budget:
            most = max(added, key=lambda path: added[path])
            yield Finding(code="ISO_HOOK_BUDGET", message="too many lines are added to hook files", path=most,
                          expected=f"at most {budget} added lines over all hook files",
                          found=f"{sum(added.values())} in {len(hooks)} file(s)")  # fmt: skip

    def once(self, change: ChangedFile) -> Iterator[Finding]:
        """Yield what stands in one hook file without the opt-in, unless another comparison holds the same change."""
        if change not in self._seen:
            self._seen.add(change)
            yield from self._hook(change)

    def _hook(self, change: ChangedFile) -> Iterator[Finding]:
        owners, new = self._owners.of(change.path), self._new(change)
        if not change.path.endswith(".py"):
            yield Finding(code="ISO_HOOK_UNGUARDED", message="only Python hook files can be checked for the opt-in",
                          expected="a word of the path's owner", found=described(change), path=change.path,
                          effect=Effect.HOLD, waivable_by=owners)  # fmt: skip
            return
        old = self._old(change)
        known = {(fault.code, fault.found) for fault in content_faults(change.path, old, self._largest)}
        for fault in content_faults(change.path, new, self._largest):
            if (fault.code, fault.found) not in known:  # else the stock file was like this before
                yield fault
        for absent in missing_imports(new, change.path, self._package, self._after):
            yield self._no_import(change.path, absent)
        for bare in judge_hook(old, new, change.path, self._guard, self._package, self._words.speak_of,
                               self._asked):  # fmt: skip
            yield Finding(code="ISO_HOOK_UNGUARDED", message=bare.message, expected=bare.expected, found=bare.found,
                          path=change.path, line=bare.line, waivable_by=owners)  # fmt: skip

    def cut_off(self) -> Iterator[Finding]:
        """Yield the imports of files that the change leaves alone, which find nothing any more because of it."""
        touched = {change.path for each in comparisons(self._subject.snapshot) for change in each.changes}
        base = self._subject.base
        for path in importers(self._after, self._directory):
            if path in touched or self._zones.zone(path) is Zone.TESTS:
                continue
            text = self._after.read(path)
            before = set(missing_imports(text, path, self._package, base))
            for absent in missing_imports(text, path, self._package, self._after):
                if absent not in before:
                    yield self._no_import(path, absent)

    def _no_import(self, path: str, absent: HookFault) -> Finding:
        return Finding(code="ISO_HOOK_IMPORT", message=absent.message, expected=absent.expected, found=absent.found,
                       path=path, line=absent.line, waivable_by=self._owners.of(path))  # fmt: skip

    def _old(self, change: ChangedFile) -> bytes:
        return self._subject.base.read_blob(change.old_blob or "")

    def _new(self, change: ChangedFile) -> bytes:
        return self._subject.head.read_blob(change.new_blob or "")
