"""An ordinary local clone seen through the same eyes as a mirror, without writing anything into it.

The clone's objects are borrowed as an alternate by an empty bare repository in a temporary directory. That repository's own
(empty) configuration rules, so nothing in the clone's configuration or attributes can steer what is seen.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType

from gatekeeper.domain.errors import ConfigurationError, GatekeeperError, Rejected
from gatekeeper.git import plumbing
from gatekeeper.git.repository import Repository, promisor_packs, require_whole_history

_REPAIR = {True: "git fetch --refetch --no-filter brings them", False: "git fsck tells what is wrong"}


class LocalRepository:
    """A context manager: inside it, :attr:`repository` answers as a mirror does.

    A partial clone is welcome as long as it holds what has to be read: its history is whole, so merge bases are right. git
    marks it as partial for ever, even after everything was fetched, so the mark alone says nothing.

    Raises on entering:
        Rejected: ``LOCAL_REPOSITORY`` if the directory belongs to no git repository.
        ConfigurationError: ``ISO_SHALLOW`` for a shallow clone.

    Raises on leaving:
        ConfigurationError: ``ISO_SHALLOW`` if an object had to be read that is not there: whatever was made of it means nothing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.git_dir = _git_dir(directory)
        self._objects = self._path("objects")
        require_whole_history(self._path("shallow"))
        self.partial = bool(promisor_packs(self._objects))
        self._scratch = tempfile.TemporaryDirectory(prefix="gatekeeper-check-")
        try:
            self.repository = self._borrow(Path(self._scratch.name) / "borrowed.git")
        except BaseException:
            self._scratch.cleanup()
            raise

    def _path(self, name: str) -> Path:
        told = plumbing.run(self.git_dir, "rev-parse", "--path-format=absolute", "--git-path", name).output
        return Path(os.fsdecode(told.removesuffix(b"\n")))

    def _borrow(self, git_dir: Path) -> Repository:
        form = plumbing.run(self.git_dir, "rev-parse", "--show-object-format").text
        plumbing.run(
            None, "init", "--quiet", "--bare", "--template=", "--initial-branch=none", f"--object-format={form}", "--",
            str(git_dir), cwd=git_dir.parent,
        )  # fmt: skip
        objects = os.fsencode(self._objects)
        if b"\n" in objects or objects.startswith((b'"', b"#")):
            raise Rejected(
                "the path of the repository cannot be borrowed", code="LOCAL_REPOSITORY", found=repr(objects)
            )
        info = git_dir / "objects" / "info"
        info.mkdir(exist_ok=True)
        (info / "alternates").write_bytes(objects + b"\n")
        return Repository(git_dir)

    def resolve(self, revision: str) -> str:
        """Return the full commit id that a revision of the clone names (branch, tag, id, ``HEAD~2``).

        Raises:
            Rejected: ``LOCAL_REVISION`` if it names no commit.
        """
        done = plumbing.run(
            self.git_dir,
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{revision}^{{commit}}",
            allowed=(0, 1, 128),
        )
        if done.status != 0 or not done.text:
            raise Rejected(
                "no such revision", code="LOCAL_REVISION", expected="a commit of this repository", found=repr(revision)
            )
        return plumbing.full_id(done.text)

    def __enter__(self) -> LocalRepository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        missing = self.repository.store.reader.missing
        self.repository.close()
        self._scratch.cleanup()
        # Merging reads objects too; what it lacks is told by git's words only.
        git_failed = isinstance(error, GatekeeperError) and error.code == "GIT_FAILED"
        if missing or (self.partial and git_failed):
            raise ConfigurationError(
                f"the {'partial ' if self.partial else ''}clone lacks objects that have to be read",
                code="ISO_SHALLOW",
                expected=f"every object of base and head ({_REPAIR[self.partial]})",
                found=f"at least {len(missing)} missing, {min(missing)} for one" if missing else str(error),
            ) from error


def _git_dir(directory: Path) -> Path:
    """Return the absolute git directory of a clone, a linked work tree, or a bare repository named itself."""
    for git_dir, cwd in ((None, directory), (directory.absolute(), directory)):
        if not cwd.is_dir():
            break
        try:
            told = plumbing.run(git_dir, "rev-parse", "--absolute-git-dir", cwd=cwd).output
        except GatekeeperError:
            continue
        return Path(os.fsdecode(told.removesuffix(b"\n")))
    raise Rejected(
        "not a git repository", code="LOCAL_REPOSITORY", expected="a clone or bare repository", found=str(directory)
    )
