"""Read-only access to the files of one git tree. Policies see this protocol; ``gatekeeper.git`` implements it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gatekeeper.domain.documents import Value


class TreeEntry(Value):
    """One entry of a tree listing: ``mode`` is octal text (``100644``), ``path`` is the shown spelling from the root."""

    path: str
    mode: str
    kind: str
    """``blob``, ``tree`` or ``commit`` (a submodule)."""
    id: str
    size: int | None = None


class SourceTree(Protocol):
    """The files of one tree. Nothing is checked out; nothing is run."""

    @property
    def id(self) -> str:
        """Full object id of the root tree."""
        ...

    def entry(self, path: str) -> TreeEntry | None:
        """Return the entry at ``path`` (a blob, a tree or a submodule), or None."""
        ...

    def walk(self, path: str = "") -> Iterator[TreeEntry]:
        """Yield every blob and submodule below ``path`` recursively, in tree order."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of the blob at ``path``.

        Raises:
            KeyError: if there is no blob at ``path``.
        """
        ...

    def read_blob(self, blob: str) -> bytes:
        """Return the bytes of a blob by its full object id.

        Raises:
            KeyError: if there is no such blob.
        """
        ...

    def grep(self, needle: bytes, suffix: str = ".py", *, whole_word: bool = False) -> tuple[str, ...]:
        """Return the paths of blobs that end in ``suffix`` and hold ``needle``, sorted. A byte search, no pattern.

        With ``whole_word`` the needle counts only where no ASCII letter, digit or underscore stands next to it.
        """
        ...
