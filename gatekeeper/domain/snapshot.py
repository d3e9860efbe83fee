"""The snapshot: what a pull request was at one head on one base. It is the input document of the merge policies."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gatekeeper.domain.documents import Digest, Document, GitId, Value


class ChangeKind(StrEnum):
    """How an entry differs between two trees. A rename is a deletion and an addition: renames are never detected."""

    ADDED = "added"
    DELETED = "deleted"
    MODIFIED = "modified"
    TYPE_CHANGED = "type_changed"


class ChangedFile(Value):
    """One changed tree entry. ``path`` is spelled by :func:`~gatekeeper.domain.documents.shown_path`; modes are octal text."""

    path: str
    kind: ChangeKind
    old_mode: str | None
    new_mode: str | None
    old_blob: GitId | None
    new_blob: GitId | None


class Comparison(Value):
    """All entries that differ between two trees, sorted by path; never truncated."""

    base_tree: GitId
    head_tree: GitId
    changes: tuple[ChangedFile, ...] = ()


class TreeDefect(Value):
    """A tree object that no honest tool writes: ``..``, ``.git``, duplicate names, odd modes, unsorted entries."""

    tree: GitId
    path: str
    defect: str


class Author(Value):
    """Who opened the pull request. ``trusted`` is true for a known author, or once a maintainer approved this very head."""

    id: int
    login: str
    trusted: bool = False


class PullFacts(Value):
    """What the forge says about a pull request. Nothing here is believed about code: ids are read from git."""

    number: int = Field(ge=0)
    """0 for a local check, where there is no pull request."""
    title: str = ""
    author: Author
    base_ref: str = Field(min_length=1, max_length=255)
    """Name of the base branch, without ``refs/heads/``."""
    draft: bool = False
    open: bool = True
    opened_by_installation: int | None = None


NULL_ID = "0" * 40
"""Git's own spelling of "no object". Only a refused snapshot holds it, where an id could not be found out."""


class Refusal(Value):
    """Why a pull request's commits could not be read. ``by_head`` is true if the head itself is to blame."""

    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]+$")
    message: str
    expected: str = ""
    found: str = ""
    by_head: bool


class SnapshotKey(Value):
    """What makes two snapshots the same: ``decisions`` keyed by anything less would be reused where they do not hold."""

    repository_id: int
    number: int
    head_sha: GitId
    base_sha: GitId
    merge_tree: GitId | None
    policy_set: Digest


class Snapshot(Document):
    """A pull request at one head, on one base tip, under one policy set. All ids are full object ids read from git."""

    schema_version: int = 1
    key: SnapshotKey
    repository: str
    title: str = ""
    author: Author
    base_ref: str
    draft: bool = False
    open: bool = True
    head_tree: GitId
    base_tree: GitId
    merge_bases: tuple[GitId, ...]
    """All merge bases of head and base tip; empty when the histories are unrelated."""
    proposed: tuple[Comparison, ...]
    """Merge base to head, one comparison for each merge base."""
    merged: Comparison | None
    """Base tip to the merge result; None when the merge conflicts or no merge base exists."""
    conflicts: tuple[str, ...] = ()
    """The first paths that keep the head from merging into the base tip, where git could tell."""
    defects: tuple[TreeDefect, ...] = ()
    configuration: Digest
    """Digest of the repository's configuration as read from the base branch."""
    opened_by_installation: int | None = Field(default=None)
    refusal: Refusal | None = None
    """Set where git did not let the head in or could not be asked: there is nothing to compare then, and no policy runs."""

    @property
    def merge_tree(self) -> str | None:
        """The tree that merging would give, or None if it conflicts."""
        return self.key.merge_tree
