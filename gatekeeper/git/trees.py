"""The files of one tree, straight from git objects: the :class:`~gatekeeper.domain.source.SourceTree` of the service."""

from __future__ import annotations

import string
from collections.abc import Iterator

from gatekeeper.domain.documents import raw_path, shown_path
from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.source import TreeEntry
from gatekeeper.git import plumbing
from gatekeeper.git.objects import ObjectReader
from gatekeeper.git.tree_format import RawEntry, RawTree, parse_tree

MAX_DEPTH = 128
MAX_ENTRIES = 500_000
"""Bounds on one walk: a few small tree objects that name each other many times can spell out billions of paths."""

_WORD = frozenset(letter.encode() for letter in string.ascii_letters + string.digits + "_")


class TreeStore:
    """Parsed tree objects and byte searches of one repository, kept by object id, shared by all its :class:`GitTree`."""

    def __init__(self, reader: ObjectReader) -> None:
        self.reader = reader
        self._trees: dict[str, RawTree] = {}
        self._holds: dict[tuple[bytes, bool, str], bool] = {}

    def tree(self, id: str) -> RawTree:
        """Return the parsed tree object ``id``.

        Raises:
            KeyError: if there is no such tree.
        """
        known = self._trees.get(id)
        if known is None:
            known = parse_tree(self.reader.read(id, "tree"), len(id) // 2)
            if len(self._trees) > 200_000:
                self._trees.clear()
            self._trees[id] = known
        return known

    def holding(self, blobs: list[str], needle: bytes, *, whole_word: bool = False) -> set[str]:
        """Return those of the given blobs that hold ``needle``. Each blob is searched once for each needle, then remembered."""
        unknown = [blob for blob in dict.fromkeys(blobs) if (needle, whole_word, blob) not in self._holds]
        if len(self._holds) + len(unknown) > 2_000_000:
            self._holds.clear()
            unknown = list(dict.fromkeys(blobs))
        for blob, data in self.reader.read_many(unknown, "blob"):
            self._holds[needle, whole_word, blob] = _holds_word(data, needle) if whole_word else needle in data
        return {blob for blob in blobs if self._holds[needle, whole_word, blob]}


def _holds_word(data: bytes, needle: bytes) -> bool:
    """Whether ``needle`` stands somewhere between bytes that cannot belong to the same ASCII word.

    A search for the bytes and a look at the neighbours: a regular expression with a look-behind is many times slower.
    """
    at = data.find(needle)
    while at >= 0:
        end = at + len(needle)
        if data[at - 1 : at] not in _WORD and data[end : end + 1] not in _WORD:
            return True
        at = data.find(needle, at + 1)
    return False


class GitTree:
    """One root tree. Every answer comes from tree and blob objects; attributes, filters and configuration have no say."""

    def __init__(self, store: TreeStore, id: str) -> None:
        self._store = store
        self._id = plumbing.full_id(id)

    @property
    def id(self) -> str:
        """Full object id of the root tree."""
        return self._id

    def subtree(self, id: str) -> GitTree:
        """Return another tree of the same repository as a root of its own."""
        return GitTree(self._store, id)

    def entry(self, path: str) -> TreeEntry | None:
        """Return the entry at a shown path, or None. The empty path is the root itself.

        Of entries with equal names (a malformed tree) the first counts.
        """
        found = self._find(raw_path(path))
        if found is None:
            return None
        return TreeEntry(path=path, mode=found.mode_text, kind=found.kind, id=found.id)

    def _find(self, path: bytes) -> RawEntry | None:
        here = RawEntry(0o040000, b"", self._id)
        for name in path.split(b"/") if path else []:
            if here.kind != "tree":
                return None
            following = next((entry for entry in self._store.tree(here.id).entries if entry.name == name), None)
            if following is None:
                return None
            here = following
        return here

    def walk(self, path: str = "") -> Iterator[TreeEntry]:
        """Yield every blob, symbolic link and submodule below ``path``, in tree order; for a blob's path, that blob.

        Raises:
            Rejected: ``ISO_TOO_MANY_FILES`` beyond :data:`MAX_ENTRIES`, ``ISO_TOO_DEEP`` beyond :data:`MAX_DEPTH`.
        """
        for raw, entry in self.walk_raw(raw_path(path)):
            yield TreeEntry(path=shown_path(raw), mode=entry.mode_text, kind=entry.kind, id=entry.id)

    def walk_raw(self, path: bytes = b"") -> Iterator[tuple[bytes, RawEntry]]:
        """As :meth:`walk`, with raw paths and entries; the same errors."""
        start = self._find(path)
        if start is None:
            return
        pending = [(path, start, 0)]
        seen = 0
        while pending:
            here, entry, depth = pending.pop()
            if entry.kind != "tree":
                yield here, entry
                continue
            inner = self._store.tree(entry.id).entries
            seen += len(inner)
            check_bounds(depth, seen)
            prefix = here + b"/" if here else b""
            pending.extend((prefix + one.name, one, depth + 1) for one in reversed(inner))

    def read(self, path: str) -> bytes:
        """Return the bytes of the blob at ``path``.

        Raises:
            KeyError: if there is no blob at ``path``.
        """
        found = self._find(raw_path(path))
        if found is None or found.kind != "blob":
            raise KeyError(path)
        return self._store.reader.read(found.id, "blob")

    def read_blob(self, blob: str) -> bytes:
        """Return the bytes of a blob by its full object id.

        Raises:
            KeyError: if there is no such blob.
        """
        return self._store.reader.read(blob, "blob")

    def grep(self, needle: bytes, suffix: str = ".py", *, whole_word: bool = False) -> tuple[str, ...]:
        """Return the paths of regular files that end in ``suffix`` and hold ``needle``, sorted. A byte search, no pattern.

        With ``whole_word`` the needle counts only where no ASCII letter, digit or underscore stands next to it.
        """
        ending = suffix.encode()
        files = [
            (path, entry.id)
            for path, entry in self.walk_raw()
            if entry.mode & 0o170000 == 0o100000 and path.endswith(ending)
        ]
        holding = self._store.holding([blob for _, blob in files], needle, whole_word=whole_word)
        return tuple(sorted(shown_path(path) for path, blob in files if blob in holding))

    def defects(self) -> Iterator[tuple[bytes, str, str]]:
        """Yield (path, tree id, defect) of every malformed tree object below the root; the same errors as :meth:`walk`."""
        pending = [(b"", self._id, 0)]
        seen = 0
        while pending:
            here, id, depth = pending.pop()
            tree = self._store.tree(id)
            seen += len(tree.entries)
            check_bounds(depth, seen)
            prefix = here + b"/" if here else b""
            yield from ((prefix + name, id, defect) for name, defect in tree.defects)
            pending.extend((prefix + one.name, one.id, depth + 1) for one in tree.entries if one.kind == "tree")


def check_bounds(depth: int, entries: int, most: int = MAX_ENTRIES) -> None:
    """Raise ``Rejected`` if a walk is deeper or longer than any honest source tree."""
    if depth > MAX_DEPTH:
        raise Rejected("tree too deep", code="ISO_TOO_DEEP", expected=f"at most {MAX_DEPTH} levels", found="more")
    if entries > most:
        raise Rejected("too many entries", code="ISO_TOO_MANY_FILES", expected=f"at most {most}", found="more")
