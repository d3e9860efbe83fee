"""The checked-out files of a contributor's own clone, seen without writing: what git would track, and what is not committed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gatekeeper.domain.documents import raw_path, shown_path
from gatekeeper.domain.errors import GatekeeperError, Rejected
from gatekeeper.git import plumbing


class WorkTree:
    """The work tree that ``directory`` belongs to. Paths are shown paths from :attr:`root`; ignored files do not exist here.

    Raises on making one:
        Rejected: ``LOCAL_WORK_TREE`` if ``directory`` belongs to no work tree, as in a bare repository, or lies outside it.
    """

    def __init__(self, directory: Path) -> None:
        try:
            top = plumbing.run(None, "rev-parse", "--show-toplevel", cwd=directory).output
            own = plumbing.run(None, "rev-parse", "--absolute-git-dir", cwd=directory).output
        except GatekeeperError as error:
            raise Rejected(
                "there are no checked-out files here",
                code="LOCAL_WORK_TREE",
                expected="a directory of a clone with a work tree",
                found=str(directory),
            ) from error
        self.root = Path(os.fsdecode(top.removesuffix(b"\n")))
        if not directory.resolve().is_relative_to(
            self.root.resolve()
        ):  # by `core.worktree` of the clone's configuration
            raise Rejected(
                "the checked-out files lie elsewhere", code="LOCAL_WORK_TREE", found=str(self.root),
                expected=f"a work tree that holds {directory}",
            )  # fmt: skip
        self._git_dir = Path(os.fsdecode(own.removesuffix(b"\n")))

    def files(self, directory: str = "") -> tuple[str, ...]:
        """Return the paths of all files below ``directory``, tracked or new, sorted. Submodules are not entered."""
        where = [b":(top,literal)" + raw_path(directory)] if directory else []
        told = plumbing.run(
            self._git_dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
            *map(os.fsdecode, where), cwd=self.root,
        ).output  # fmt: skip
        names = {shown_path(name) for name in told.split(b"\0") if name}
        return tuple(sorted(name for name in names if self._is_plain(name)))

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is no plain file at ``path``. A symbolic link is no plain file."""
        return self.place(path).read_bytes() if self._is_plain(path) else None

    def _is_plain(self, path: str) -> bool:
        try:
            return stat.S_ISREG(self.place(path).lstat().st_mode) and self.holds(path)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def place(self, path: str) -> Path:
        """Return where a path of the work tree lies on this machine."""
        return self.root / os.fsdecode(raw_path(path)) if path else self.root

    def holds(self, path: str) -> bool:
        """Whether no directory above ``path`` is a symbolic link, which could lead out of the work tree."""
        place = self.place(path).parent
        return place.resolve() == self.root.resolve() / place.relative_to(self.root)

    def shown(self, place: Path) -> str | None:
        """Return the shown path of a place, or None if it does not lie below :attr:`root`. The last part need not exist."""
        as_written = os.path.abspath(place)  # noqa: PTH100 - a link is kept as it is written, so that it can be refused
        for spelt in (as_written, os.path.realpath(place)):
            for root in (self.root, self.root.resolve()):
                if Path(spelt).is_relative_to(root):
                    below = os.fsencode(Path(spelt).relative_to(root))
                    return "" if below == b"." else shown_path(below)
        return None

    def uncommitted(self) -> tuple[str, ...]:
        """Return the paths that differ from ``HEAD`` or are new to git, sorted. A new directory stands for its files."""
        told = plumbing.run(
            self._git_dir, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal",
            "--ignore-submodules=all", cwd=self.root, configuration=self._no_filters(),
        ).output  # fmt: skip
        return tuple(sorted(shown_path(entry[3:]) for entry in told.split(b"\0") if entry))

    def _no_filters(self) -> dict[str, str]:
        """Return settings that switch every filter of the clone's configuration off: they are commands, and whoever can write
        into a clone could have them run by looking at it.
        """
        told = plumbing.run(
            self._git_dir, "config", "-z", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process|required)$",
            allowed=(0, 1), cwd=self.root,
        ).output  # fmt: skip
        names = {os.fsdecode(name) for name in told.split(b"\0") if name}
        return {name: "false" if name.endswith(".required") else "" for name in names}
