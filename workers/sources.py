"""Where an implementation's code lies and what of it the jail may see: one directory, read-only, checked by its tree id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gatekeeper.domain.errors import Rejected, Retryable
from gatekeeper.domain.race import CodeSource, InstalledSource, LocalSource
from workers.jail import Bind, Jail

ROOT = Path(__file__).resolve().parent.parent
"""The installation: the directory that holds ``kernels_under_test``."""
SEEN = "/tree"


@dataclass(frozen=True)
class Code:
    """An entry point with the directory that is bound for it. ``base`` is what import names are relative to."""

    entry_point: str
    base: Path
    shown: Path
    """Directory below ``base`` that the jail sees."""

    @property
    def bind(self) -> Bind:
        """The one bind that this code needs."""
        below = self.shown.relative_to(self.base).as_posix()
        return Bind(self.shown, SEEN if below == "." else f"{SEEN}/{below}")

    @property
    def bare(self) -> int:
        """How many of the entry point's leading packages are the framework's: those above ``shown``, whose ``__init__`` is not there.

        Of a whole checkout it is not known where the candidate's own packages begin; then all but the innermost are.
        """
        below = len(self.shown.relative_to(self.base).parts)
        packages = len(self.entry_point.split(":")[0].split(".")) - 1
        return max(0, min(below or packages, packages) - 1)

    def root(self, jail: Jail) -> str:
        """Return the directory that import names are relative to, as the jailed process sees it."""
        below = len(self.shown.relative_to(self.base).parts)
        seen = PurePosixPath(jail.inside(self.bind))
        return str(seen.parents[below - 1]) if below else str(seen)


def code_of(source: CodeSource, tree: Path | None, root: Path = ROOT) -> Code:
    """Return where a source's code lies. ``tree`` holds a checkout whose only content is the directory of a tree source.

    Raises:
        Rejected: if a local path or an installed module does not exist.
        Retryable: if the files of a tree source are not the ones that its tree id names; that is not the candidate's doing.
    """
    module = source.entry_point.split(":")[0]
    if isinstance(source, InstalledSource):
        parts = module.split(".")
        shown = next((p for n in (2, 1) if (p := root.joinpath(*parts[:n])).is_dir() and len(parts) > n), None)
        if shown is None:
            raise Rejected(
                "no such installed code", code="RACE_SOURCE", expected=f"a package below {root}", found=module
            )
        return Code(source.entry_point, root, shown)
    if isinstance(source, LocalSource):
        base = Path(source.path).absolute()
        if not base.is_dir():
            raise Rejected("no such directory", code="RACE_SOURCE", expected="a directory", found=source.path)
        return Code(source.entry_point, base, base)
    if tree is None:
        raise Retryable("a tree source needs its files", code="RACE_TREE", expected="a directory", found="none given")
    shown = tree / source.directory
    found = tree_id(shown, len(source.tree))
    if found != source.tree:
        raise Retryable("the files are not those of the tree", code="RACE_TREE", expected=source.tree, found=found)
    return Code(source.entry_point, tree, shown)


def tree_id(directory: Path, digits: int = 40) -> str:
    """Return the git object id of a directory of plain files (mode 100644): SHA-1 for 40 digits, SHA-256 for 64.

    Raises:
        Retryable: for a symbolic link or special file, which no writer of ours makes.
    """
    entries: list[tuple[bytes, bytes]] = []
    for path in directory.iterdir():
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise Retryable(
                "the tree holds a special file", code="RACE_TREE", expected="files, directories", found=str(path)
            )
        name = path.name.encode()
        if path.is_dir():
            entries.append((name + b"/", b"40000 " + name + b"\0" + bytes.fromhex(tree_id(path, digits))))
        else:
            entries.append(
                (name, b"100644 " + name + b"\0" + bytes.fromhex(_object(b"blob", path.read_bytes(), digits)))
            )
    return _object(b"tree", b"".join(entry for _, entry in sorted(entries)), digits)


def _object(kind: bytes, data: bytes, digits: int) -> str:
    algorithm = hashlib.sha1 if digits == 40 else hashlib.sha256
    return algorithm(kind + b" %d\0" % len(data) + data).hexdigest()
