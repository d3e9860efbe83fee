"""Where a changed path lies: free, hook, tests, escalate, refuse or reference. The base branch's configuration alone decides.

A pull request is on the fast track if it touches a specialised directory that the configuration lists, or a manifest
(``fast_track.toml``) anywhere. On the fast track everything that no rule names is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from gatekeeper.domain.globs import GlobSet, components, covers, matched_directory
from gatekeeper.domain.policy import PolicyInput
from gatekeeper.domain.repository import CONFIGURATION_PATH, MANIFEST_NAME, ModelRules, RepositoryConfiguration
from gatekeeper.domain.snapshot import ChangedFile, Comparison, Snapshot

ALWAYS_REFUSED = (".github", "CODEOWNERS", "docs/CODEOWNERS", CONFIGURATION_PATH)
PLAIN_MODES = ("100644", "100755")


class Zone(StrEnum):
    """What may happen to a path in a fast-track change."""

    FREE = "free"
    TESTS = "tests"
    HOOK = "hook"
    ESCALATE = "escalate"
    REFUSE = "refuse"
    REFERENCE = "reference"


@dataclass(frozen=True)
class FastTrack:
    """What makes a pull request a fast-track one."""

    directory: str | None
    """The specialised directory that is judged; None if only a manifest outside every listed root, or a directory that is spelled
    like a listed one but for letter case, was touched: then nothing is open."""
    others: tuple[str, ...]
    """Further specialised directories that the change touches, in fewer entries each: one pull request may touch one."""
    root: str | None
    """Directory of the model and vendor that ``directory`` belongs to."""
    model: ModelRules | None

    @property
    def directories(self) -> tuple[str, ...]:
        """All specialised directories that the change touches, the judged one first."""
        return (self.directory, *self.others) if self.directory else ()

    @property
    def manifest_path(self) -> str | None:
        """Path of the manifest that must describe the directory."""
        return f"{self.directory}/{MANIFEST_NAME}" if self.directory else None


def comparisons(snapshot: Snapshot) -> tuple[Comparison, ...]:
    """Return all comparisons of a snapshot: each merge base to head, and base tip to the merge result."""
    return (*snapshot.proposed, *((snapshot.merged,) if snapshot.merged else ()))


def changed_entries(snapshot: Snapshot) -> tuple[ChangedFile, ...]:
    """Return the union of the changed entries of all comparisons, each distinct entry once, in path order."""
    union = dict.fromkeys(change for each in comparisons(snapshot) for change in each.changes)
    return tuple(sorted(union, key=lambda change: change.path))


def fast_track(subject: PolicyInput) -> FastTrack | None:
    """Return what puts this pull request on the fast track, or None: then only ``applicability`` has something to say.

    Letter case does not matter for this question, so that a twin such as ``Models/`` cannot slip past.

    Raises:
        ConfigurationError: if the base branch has no configuration that can be read.
    """
    subject.configuration.demand_sound()
    return find(subject.configuration, changed_entries(subject.snapshot))


def find(configuration: RepositoryConfiguration, changes: Iterable[ChangedFile]) -> FastTrack | None:
    """As :func:`fast_track`, from a sound configuration and changed entries."""
    exact: dict[str, tuple[str, ModelRules]] = {}
    touched: Counter[str] = Counter()
    odd = False
    for change in changes:
        found = specialised_directory(configuration, change)
        if found:
            exact.setdefault(found[0], found[1:])
            touched[found[0]] += 1
        elif components(change.path)[-1].casefold() == MANIFEST_NAME:
            odd = True
        else:
            odd = odd or specialised_directory(configuration, change, fold=True) is not None
    if not exact:
        return FastTrack(directory=None, others=(), root=None, model=None) if odd else None
    directory, *others = sorted(exact, key=lambda each: (-touched[each], each))
    root, model = exact[directory]
    return FastTrack(directory=directory, others=tuple(others), root=root, model=model)


def specialised_directory(
    configuration: RepositoryConfiguration, change: ChangedFile, *, fold: bool = False
) -> tuple[str, str, ModelRules] | None:
    """Return (specialised directory, model root, rules) that a changed entry lies in, or None. The first table that fits wins.

    A directory that a refusal or a reference covers as a whole is an ordinary one, whatever ``free`` says of it.

    With ``fold`` names are compared without regard to letter case, and everything is spelled so.
    """
    path = change.path.casefold() if fold else change.path
    for model in configuration.models:
        for free in model.free:
            pattern = f"{model.root}/{free}"
            directory = matched_directory(pattern.casefold() if fold else pattern, path)
            if directory is None:
                continue
            if directory == path and not _replaces_directory(change):
                continue
            if _closed((*configuration.refuse, *configuration.references), fold).first(directory):
                continue
            depth = len(components(model.root))
            return directory, "/".join(components(directory)[:depth]), model
    return None


@lru_cache(maxsize=64)
def _closed(patterns: tuple[str, ...], fold: bool) -> GlobSet:
    return GlobSet(pattern.casefold() if fold else pattern for pattern in patterns)


def _replaces_directory(change: ChangedFile) -> bool:
    """Whether an entry at the very place of a specialised directory is more than a plain file that looks like one."""
    return any(mode is not None and mode not in PLAIN_MODES for mode in (change.old_mode, change.new_mode))


class ZoneMap:
    """The zones of one fast-track pull request, for one specialised directory."""

    def __init__(self, configuration: RepositoryConfiguration, track: FastTrack) -> None:
        self.track = track
        self._references = GlobSet(configuration.references)
        self._refuse = GlobSet((*ALWAYS_REFUSED, *configuration.refuse))
        self._escalate = GlobSet(configuration.escalate)
        model, root = track.model, track.root
        self._tests = GlobSet(model.tests if model else ())
        self._hooks = tuple(f"{root}/{hook}" for hook in model.hooks) if model else ()
        self._specialised = tuple(f"{one.root}/{free}" for one in configuration.models for free in one.free)

    def zone(self, path: str) -> Zone:
        """Return the zone of a path. Refusals win over references, references over everything that is open."""
        track = self.track
        if self._refuse.first(path) or components(path)[-1].casefold() in (".gitattributes", ".gitmodules"):
            return Zone.REFUSE
        if self._references.first(path):
            return Zone.REFERENCE
        if track.directory is None or track.root is None:
            return Zone.REFUSE
        if lies_below(path, track.directory):
            return Zone.FREE
        if any(matched_directory(pattern, path) not in (None, path) for pattern in self._specialised):
            return Zone.REFUSE
        if self._tests.first(path):
            return Zone.TESTS
        if any(covers(hook, path) for hook in self._hooks):
            return Zone.HOOK
        if lies_below(path, track.root) or self._escalate.first(path):
            return Zone.ESCALATE
        return Zone.REFUSE


def touches_reference(configuration: RepositoryConfiguration, changes: Iterable[ChangedFile]) -> bool:
    """Whether any entry is something that kernels are judged by."""
    globs = GlobSet(configuration.references)
    return any(globs.first(change.path) for change in changes)


def lies_below(path: str, directory: str) -> bool:
    """Whether ``path`` lies in ``directory``, by components: ``kernels/cand_evil/x`` does not lie in ``kernels/cand``."""
    return path.startswith(directory + "/")
