"""Two trees walked side by side. No rename or copy detection, no attributes, no configuration: only objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from gatekeeper.domain.documents import shown_path
from gatekeeper.domain.snapshot import ChangedFile, ChangeKind, Comparison, TreeDefect
from gatekeeper.git.tree_format import RawEntry
from gatekeeper.git.trees import TreeStore, check_bounds

MAX_COMPARED = 100_000
"""Entries of differing tree objects in one comparison; vLLM's whole tree has under 5,000."""

Pair = tuple[RawEntry | None, RawEntry | None]


@dataclass
class Difference:
    """What differs between two trees, and the defects of all tree objects that only the head side has."""

    comparison: Comparison
    defects: tuple[TreeDefect, ...]


@dataclass
class _Walk:
    store: TreeStore
    changes: list[tuple[bytes, ChangedFile]] = field(default_factory=list)
    defects: list[TreeDefect] = field(default_factory=list)
    seen: int = 0

    def trees(self, path: bytes, base: str | None, head: str | None, depth: int) -> list[tuple[bytes, Pair]]:
        """Record the changes between two tree objects at ``path``; return the pairs of subtrees still to be compared."""
        olds = self.store.tree(base).entries if base else ()
        head_tree = self.store.tree(head) if head else None
        news = head_tree.entries if head_tree else ()
        self.seen += len(olds) + len(news)
        check_bounds(depth, self.seen, MAX_COMPARED)
        prefix = path + b"/" if path else b""
        if head_tree and head:
            self.defects.extend(
                TreeDefect(tree=head, path=shown_path(prefix + name), defect=defect)
                for name, defect in head_tree.defects
            )
        below = []
        for name, old, new in _paired(olds, news):
            if old and new and old.id == new.id and old.mode == new.mode:
                continue
            below.extend(self._entry(prefix + name, old, new))
        return below

    def _entry(self, path: bytes, old: RawEntry | None, new: RawEntry | None) -> list[tuple[bytes, Pair]]:
        old_tree = old if old and old.kind == "tree" else None
        new_tree = new if new and new.kind == "tree" else None
        old_leaf = old if not old_tree else None
        new_leaf = new if not new_tree else None
        if old_leaf or new_leaf:
            self.changes.append((path, _change(path, old_leaf, new_leaf)))
        if old_tree and new_tree and old_tree.id == new_tree.id:
            return []
        return [(path, (old_tree, new_tree))] if old_tree or new_tree else []


def _paired(
    olds: tuple[RawEntry, ...], news: tuple[RawEntry, ...]
) -> list[tuple[bytes, RawEntry | None, RawEntry | None]]:
    """Pair entries by name. Equal names within one tree are paired in stored order, so that no twin is dropped."""
    by_name: dict[bytes, tuple[list[RawEntry], list[RawEntry]]] = {}
    for entry in olds:
        by_name.setdefault(entry.name, ([], []))[0].append(entry)
    for entry in news:
        by_name.setdefault(entry.name, ([], []))[1].append(entry)
    return [(name, old, new) for name, (left, right) in by_name.items() for old, new in zip_longest(left, right)]


def _change(path: bytes, old: RawEntry | None, new: RawEntry | None) -> ChangedFile:
    if old is None:
        kind = ChangeKind.ADDED
    elif new is None:
        kind = ChangeKind.DELETED
    else:
        same_type = old.mode & 0o170000 == new.mode & 0o170000
        kind = ChangeKind.MODIFIED if same_type else ChangeKind.TYPE_CHANGED
    return ChangedFile(
        path=shown_path(path),
        kind=kind,
        old_mode=old.mode_text if old else None,
        new_mode=new.mode_text if new else None,
        old_blob=old.id if old else None,
        new_blob=new.id if new else None,
    )


def compare(store: TreeStore, base_tree: str, head_tree: str) -> Difference:
    """Compare two root trees by full id.

    Equal subtrees are skipped by their id. A rename is a deletion and an addition; a file that becomes a directory is the
    deletion of the file and the addition of everything below, and the reverse; a submodule's ids are commit ids.

    Raises:
        KeyError: if a tree object is missing.
        Rejected: ``ISO_TOO_MANY_FILES`` or ``ISO_TOO_DEEP``: the trees are beyond any honest size; nothing is truncated.
    """
    walk = _Walk(store)
    pending: list[tuple[bytes, str | None, str | None, int]] = []
    if base_tree != head_tree:
        pending.append((b"", base_tree, head_tree, 0))
    while pending:
        path, base, head, depth = pending.pop()
        for below, (old, new) in walk.trees(path, base, head, depth):
            pending.append((below, old.id if old else None, new.id if new else None, depth + 1))
    walk.changes.sort(key=lambda item: item[0])
    comparison = Comparison(
        base_tree=base_tree, head_tree=head_tree, changes=tuple(change for _, change in walk.changes)
    )
    return Difference(
        comparison, tuple(sorted(walk.defects, key=lambda defect: (defect.path, defect.defect, defect.tree)))
    )
