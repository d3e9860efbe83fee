"""Questions about commits of one bare repository, answered by full ids only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.documents import shown_path
from gatekeeper.domain.errors import ConfigurationError, GatekeeperError, Rejected
from gatekeeper.git import plumbing
from gatekeeper.git.objects import ObjectReader
from gatekeeper.git.trees import GitTree, TreeStore

MERGE_SECONDS = 120.0


@dataclass(frozen=True)
class Merge:
    """What merging gives: ``tree`` is the result's tree, or None; then ``conflicts`` holds the paths that stood in the way."""

    tree: str | None
    conflicts: tuple[str, ...] = ()
    """Shown spelling, sorted."""


class Repository:
    """One bare repository of ours. ``git_dir`` is given explicitly to every command."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        self.store = TreeStore(ObjectReader(git_dir))

    def close(self) -> None:
        """End the reading process."""
        self.store.reader.close()

    def tree(self, id: str) -> GitTree:
        """Return the tree with that full id. It is not looked up before it is used."""
        return GitTree(self.store, id)

    def commit_tree(self, commit: str) -> str:
        """Return the root tree id of a commit.

        Raises:
            Rejected: ``ISO_ID`` for a short id; ``ISO_NO_COMMIT`` if there is no such commit.
        """
        try:
            body = self.store.reader.read(commit, "commit")
        except KeyError:
            raise Rejected(
                "no such commit", code="ISO_NO_COMMIT", expected="a commit of this repository", found=commit
            ) from None
        first = body.split(b"\n", 1)[0]
        if not first.startswith(b"tree "):
            raise Rejected("malformed commit", code="ISO_MALFORMED_COMMIT", expected="a tree line first", found=commit)
        return plumbing.full_id(first[5:].decode("ascii", "replace"))

    def merge_bases(self, one: str, other: str) -> tuple[str, ...]:
        """Return all merge bases of two commits, sorted; empty when the histories are unrelated.

        Raises:
            GatekeeperError: if git cannot tell. A failure is never an empty answer.
        """
        names = [f"{plumbing.full_id(id)}^{{commit}}" for id in (one, other)]
        resolved = [
            plumbing.run(self.git_dir, "rev-parse", "--verify", "--end-of-options", name).text for name in names
        ]
        done = plumbing.run(self.git_dir, "merge-base", "--all", "--", *map(plumbing.full_id, resolved), allowed=(0, 1))
        bases = tuple(sorted(plumbing.full_id(line) for line in done.text.split()))
        # A parent that cannot be read is told by an error text only; the exit status then says "no merge base".
        if bool(bases) != (done.status == 0) or done.errors:
            raise GatekeeperError(
                "git merge-base could not read all of the history",
                code="GIT_FAILED",
                found=f"status {done.status}, {bases}, {done.errors}",
            )
        return bases

    def merge(self, base: str, head: str) -> Merge:
        """Merge ``head`` into ``base`` without a work tree and return the result's tree.

        Raises:
            GatekeeperError: if git fails in any other way than by a conflict.
        """
        done = plumbing.run(
            self.git_dir,
            "merge-tree",
            "--write-tree",
            "--no-messages",
            "--name-only",
            "-z",
            "--",
            plumbing.full_id(base),
            plumbing.full_id(head),
            allowed=(0, 1),
            seconds=MERGE_SECONDS,
        )
        tree, *conflicts = done.output.split(b"\0")
        if done.status == 1:
            return Merge(None, tuple(sorted({shown_path(path) for path in conflicts if path})))
        return Merge(plumbing.full_id(tree.decode("ascii", "replace")))

    def require_complete(self) -> None:
        """Refuse a shallow or partial repository: its merge bases and trees may be wrong or missing.

        Raises:
            ConfigurationError: ``ISO_SHALLOW``.
        """
        require_complete(self.git_dir / "shallow", self.git_dir / "objects")


def require_complete(shallow: Path, objects: Path) -> None:
    """Refuse a repository with a shallow boundary or with packs that promise objects elsewhere.

    Raises:
        ConfigurationError: ``ISO_SHALLOW``.
    """
    require_whole_history(shallow)
    promised = promisor_packs(objects)
    if promised:
        raise ConfigurationError(
            "the repository is a partial clone, so objects may be missing",
            code="ISO_SHALLOW",
            expected="a clone made without --filter",
            found=f"{len(promised)} promisor packs",
        )


def require_whole_history(shallow: Path) -> None:
    """Refuse a repository with a shallow boundary.

    Raises:
        ConfigurationError: ``ISO_SHALLOW``.
    """
    if shallow.exists() and shallow.read_bytes().strip():
        raise ConfigurationError(
            "the repository is shallow, so merge bases may be wrong",
            code="ISO_SHALLOW",
            expected="a complete clone (git fetch --unshallow)",
            found=f"{len(shallow.read_bytes().split())} shallow commits",
        )


def promisor_packs(objects: Path) -> list[Path]:
    """Return the marks of packs that came from a partial clone. They stay when the missing objects are fetched later."""
    return list((objects / "pack").glob("*.promisor"))
