"""What is wrong with a changed tree entry as such: its place, its mode, its name. Nothing is read but the entry itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gatekeeper.domain.globs import components
from gatekeeper.domain.owners import Owners
from gatekeeper.domain.policy import Effect, Finding
from gatekeeper.domain.snapshot import ChangedFile, ChangeKind
from gatekeeper.domain.source import SourceTree
from gatekeeper.domain.zones import Zone

FILE, EXECUTABLE, SYMLINK, SUBMODULE = "100644", "100755", "120000", "160000"
_COMPONENT = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._=,+-]{0,253}[A-Za-z0-9_-])?")
# Tuning tables are called like `E=128,N=768,device_name=NVIDIA_H20.json`.
_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")
# Names that Windows keeps for devices, whatever the suffix: a tree with one of them cannot be checked out there.
_SPECIAL = {".gitattributes": "ISO_GITATTRIBUTES", ".gitmodules": "ISO_SUBMODULE"}


def special_file(change: ChangedFile) -> Finding | None:
    """Return a finding for a file that changes how git itself shows or fills the tree, wherever it lies."""
    code = _SPECIAL.get(components(change.path)[-1].casefold())
    if code is None:
        return None
    return Finding(code=code, message="a file that steers git is changed", expected="no change of such a file",
                   found=described(change), path=change.path)  # fmt: skip


def outside(change: ChangedFile, effect: Effect, owners: tuple[str, ...], zone: str) -> Finding:
    """Return the finding for an entry that may not be changed (effect FAIL) or waits for its owner (HOLD)."""
    if change.kind is ChangeKind.DELETED:
        code, message = "ISO_DELETE_OUTSIDE", "a file outside the specialised directory is deleted"
    elif change.old_blob == change.new_blob and change.old_mode != change.new_mode:
        code, message = "ISO_MODE_CHANGE_OUTSIDE", "the mode of a file outside the specialised directory is changed"
    else:
        code, message = "ISO_PATH_OUTSIDE", "a file outside the specialised directory is changed"
    return Finding(code=code, message=message, expected=zone, found=described(change), path=change.path, effect=effect,
                   waivable_by=owners)  # fmt: skip


def mode_fault(change: ChangedFile) -> Finding | None:
    """Return a finding unless the new entry is a plain file of mode 100644, or gone, or as executable as it was before."""
    mode = change.new_mode
    if mode in (None, FILE) or mode == change.old_mode == EXECUTABLE:
        return None
    code, what, expected = {
        SYMLINK: ("ISO_SYMLINK", "a symbolic link", f"mode {FILE}"),
        SUBMODULE: ("ISO_SUBMODULE", "a submodule", f"mode {FILE}"),
        EXECUTABLE: ("ISO_MODE", "an executable file", f"mode {FILE} (git update-index --chmod=-x {change.path})"),
    }.get(mode or "", ("ISO_MODE", "a file with another mode", f"mode {FILE}"))
    return Finding(code=code, message=f"{what} where only plain files may be", expected=expected, found=f"mode {mode}",
                   path=change.path)  # fmt: skip


def name_fault(change: ChangedFile) -> Finding | None:
    """Return a finding for a new path with a component that some tool would read as something else."""
    if change.kind is not ChangeKind.ADDED:
        return None
    names = components(change.path)
    odd = next((name for name in names if not _COMPONENT.fullmatch(name) or _DEVICE.fullmatch(name)), None)
    if odd is None:
        return None
    return Finding(code="ISO_PATH_CHARS", message="a name that tools may read differently", path=change.path, found=odd,
                   expected="letters, digits and . _ = , + - , at most 255, a letter, digit or _ in front, no '.' at the end, "
                            "no device name of Windows")  # fmt: skip


def described(change: ChangedFile) -> str:
    """Return the change in a few words, for example ``modified, mode 100644 to 100755``."""
    modes = [mode for mode in (change.old_mode, change.new_mode) if mode]
    return f"{change.kind.value}, mode {' to '.join(dict.fromkeys(modes))}"


def case_twins(changes: Iterable[ChangedFile], base: SourceTree, trees: Iterable[SourceTree]) -> Iterator[Finding]:
    """Yield a finding for each added path that differs from another tracked file or directory by letter case only.

    Spellings that lived side by side in ``base`` are not this change's doing.
    """
    added = [change.path for change in changes if change.kind is ChangeKind.ADDED]
    if not added:
        return
    before = {place for names in _spellings(base).values() if len(names) > 1 for place in names}
    for tree in trees:
        twins = {folded: names for folded, names in _spellings(tree).items() if len(names) > 1}
        for path in added if twins else ():
            other = next((name for place in _prefixes(path) if place not in before
                          for name in sorted(twins.get(place.casefold(), ())) if name != place), None)  # fmt: skip
            if other:
                yield Finding(code="ISO_CASE_TWIN", message="a path that some file systems take for another one", path=path,
                              expected="a name that is new also without regard to letter case", found=other)  # fmt: skip


def _spellings(tree: SourceTree) -> dict[str, set[str]]:
    spellings: dict[str, set[str]] = {}
    for entry in tree.walk():
        for place in _prefixes(entry.path):
            spellings.setdefault(place.casefold(), set()).add(place)
    return spellings


def module_twins(directory: str, trees: Iterable[SourceTree]) -> Iterator[Finding]:
    """Yield a finding for each module that a package of the same name hides: Python runs the package, people read the module."""
    for tree in trees:
        paths = {entry.path for entry in tree.walk(directory)}
        for path in sorted(paths):
            package = f"{path.removesuffix('.py')}/__init__.py"
            if path.endswith(".py") and package in paths:
                yield Finding(code="ISO_MODULE_TWIN", message="a package hides a module of the same name", path=path,
                              expected="one of the two", found=package)  # fmt: skip


def _prefixes(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path


def root_faults(directory: str, base: SourceTree, after: Iterable[SourceTree]) -> Iterator[Finding]:
    """Yield what is wrong with the directory's place: every component above it is a tree, everything below a plain file."""
    yield from _place(directory, base, "ISO_SYMLINK_IN_BASE", "ISO_SYMLINK_IN_BASE", "on the base branch")
    for tree in after:
        yield from _place(directory, tree, "ISO_ROOT_REPLACED", "ISO_SYMLINK", "after the change")


def _place(directory: str, tree: SourceTree, above: str, below: str, when: str) -> Iterator[Finding]:
    for place in _prefixes(directory):
        entry = tree.entry(place)
        if entry is None:
            return
        if entry.kind != "tree":
            yield Finding(code=above, message=f"the specialised directory is not reached through plain directories {when}",
                          expected="a directory", found=f"a {entry.kind} of mode {entry.mode}", path=place)  # fmt: skip
            return
    for entry in tree.walk(directory):
        if entry.mode not in (FILE, EXECUTABLE):
            code = "ISO_SUBMODULE" if entry.mode == SUBMODULE else below
            yield Finding(code=code, message=f"something else than a plain file lies in the specialised directory {when}",
                          expected="plain files only", found=f"mode {entry.mode}", path=entry.path)  # fmt: skip


def placed(change: ChangedFile, zone: Zone, owners: Owners) -> list[Finding]:
    """Return the findings that follow from a changed entry's zone, place, mode and name alone."""
    special = special_file(change)
    if special:
        return [special]
    if zone is Zone.REFUSE:
        return [
            outside(change, Effect.FAIL, (), "no change outside the zones that the base branch's configuration opens")
        ]
    if zone is Zone.REFERENCE:
        return [Finding(code="ISO_REFERENCE_CHANGED", message="what kernels are judged by is changed next to a kernel",
                        expected="a pull request of its own, approved by the owners", found=described(change),
                        path=change.path)]  # fmt: skip
    faults = [fault for fault in (mode_fault(change), name_fault(change)) if fault]
    never = [fault for fault in faults if fault.code in ("ISO_SYMLINK", "ISO_SUBMODULE")]
    mine = owners.of(change.path)
    if zone is Zone.ESCALATE or (zone is Zone.HOOK and change.kind is ChangeKind.ADDED):
        kept = never or [fault for fault in faults if fault.code != "ISO_MODE"]
        return [*kept, outside(change, Effect.HOLD, mine, "a word of the path's owner")]
    if zone is Zone.HOOK and (change.kind is not ChangeKind.MODIFIED or change.old_blob == change.new_blob):
        return [*never, outside(change, Effect.FAIL, mine, "a hook file that stays a plain file of its mode")]
    return faults
