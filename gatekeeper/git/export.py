"""One directory of a tree written to disk, from blobs, and proved by its recomputed tree id."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.domain.documents import raw_path, shown_path
from gatekeeper.domain.errors import GatekeeperError, Rejected
from gatekeeper.git.trees import GitTree

MAX_FILES = 5_000
MAX_BYTES = 256 * 1024 * 1024
_FILE_MODE = 0o100644


@dataclass
class _Budget:
    files: int = 0
    bytes: int = 0

    def spend(self, size: int) -> None:
        self.files += 1
        self.bytes += size
        if self.files > MAX_FILES or self.bytes > MAX_BYTES:
            raise Rejected(
                "the directory is too large to be written",
                code="EXPORT_SIZE",
                expected=f"at most {MAX_FILES} files and {MAX_BYTES} bytes",
                found="more",
            )


def write_tree(tree: GitTree, directory: str, target: Path) -> str:
    """Write exactly the files of ``directory`` to ``target/<directory>`` and return the directory's tree id.

    Attributes (``export-ignore``, filters, line ends) have no effect: every byte comes from a blob. Only plain files of mode
    100644 in well-formed trees are written; the parents of the directory are made bare. Afterwards the tree id is computed
    from the files on disk and compared.

    Args:
        tree: the root tree.
        directory: shown path of a directory in it; not empty.
        target: an existing or new directory in which ``<directory>`` does not exist yet.

    Raises:
        Rejected: ``EXPORT_DIRECTORY`` if there is no such directory, ``EXPORT_MODE`` for a symbolic link, submodule,
            executable or odd mode, ``ISO_MALFORMED_TREE`` for a malformed tree, ``EXPORT_SIZE`` beyond the limits.
        GatekeeperError: ``EXPORT_MISMATCH`` if what lies on disk is not what the tree says.
        FileExistsError: if the directory exists already in ``target``.
    """
    entry = tree.entry(directory) if directory else None
    if entry is None or entry.kind != "tree":
        raise Rejected(
            "no such directory in the tree",
            code="EXPORT_DIRECTORY",
            expected="a directory of the tree",
            found=f"{directory!r} is {entry.kind if entry else 'not there'}",
        )
    return write_directory(tree.subtree(entry.id), directory, target)


def write_directory(root: GitTree, directory: str, target: Path) -> str:
    """Write the whole tree ``root`` to ``target/<directory>``, as :func:`write_tree` does; the same errors."""
    for path, _, defect in root.defects():
        raise Rejected("malformed tree", code="ISO_MALFORMED_TREE", found=f"{shown_path(path)}: {defect}")
    place = os.path.join(os.fsencode(target), raw_path(directory))  # noqa: PTH118 - raw bytes, which pathlib refuses
    os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
    os.mkdir(place, 0o755)  # noqa: PTH102
    budget = _Budget()
    for path, raw in root.walk_raw():
        if raw.mode != _FILE_MODE:
            raise Rejected(
                "only plain files are written", code="EXPORT_MODE", expected="mode 100644",
                found=f"{raw.mode_text} at {directory}/{shown_path(path)}",
            )  # fmt: skip
        data = root.read_blob(raw.id)
        budget.spend(len(data))
        _write(os.path.join(place, path), data)  # noqa: PTH118
    found = tree_id_on_disk(place, "sha1" if len(root.id) == 40 else "sha256")
    if found != root.id:
        raise GatekeeperError(
            "the written files differ from the tree", code="EXPORT_MISMATCH", expected=root.id, found=found
        )
    return root.id


def _write(place: bytes, data: bytes) -> None:
    os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def tree_id_on_disk(place: bytes | Path, algorithm: str = "sha1") -> str:
    """Return the git tree id of a directory of plain files, computed from what lies there now.

    Args:
        place: a directory; every file in it counts as mode 100644.
        algorithm: ``sha1`` or ``sha256``, the repository's object format.

    Raises:
        GatekeeperError: ``EXPORT_MISMATCH`` if it holds anything but plain files and directories that are not empty.
    """
    entries: list[tuple[bytes, bytes]] = []
    with os.scandir(os.fsencode(place)) as listing:
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                inner = bytes.fromhex(tree_id_on_disk(item.path, algorithm))
                entries.append((item.name + b"/", b"40000 " + item.name + b"\0" + inner))
            elif item.is_file(follow_symlinks=False):
                with open(item.path, "rb") as file:  # noqa: PTH123
                    blob = _hash("blob", file.read(), algorithm)
                entries.append((item.name, b"100644 " + item.name + b"\0" + blob))
            else:
                raise GatekeeperError(
                    "not a plain file",
                    code="EXPORT_MISMATCH",
                    expected="files and directories",
                    found=shown_path(item.path),
                )
    return _hash("tree", b"".join(body for _, body in sorted(entries)), algorithm).hex()


def _hash(kind: str, body: bytes, algorithm: str) -> bytes:
    # SHA-1 is git's name for the object, not a protection of ours: git itself detects known collisions on fetch.
    return hashlib.new(algorithm, f"{kind} {len(body)}\0".encode() + body, usedforsecurity=False).digest()
