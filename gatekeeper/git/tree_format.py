"""Tree objects read raw. git's own listing hides or trips over malformed entries; here each of them is named."""

from __future__ import annotations

import re
from dataclasses import dataclass

ALLOWED_MODES = frozenset({b"40000", b"100644", b"100755", b"120000", b"160000"})
MAX_DEFECTS = 100
"""Per tree object; the first of them is enough to refuse it."""

# Code points that HFS+ ignores when it compares file names (Apple's technical note TN1150, "case-insensitive comparison").
_HFS_IGNORED = frozenset(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)  # fmt: skip
_NTFS_DOTGIT = re.compile(rb"(?i)\A(?:\.git|git~1)[ .]*(?:\Z|[\\:])")


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry as stored: ``mode`` as an integer, ``name`` as bytes, ``id`` as hexadecimal text."""

    mode: int
    name: bytes
    id: str

    @property
    def kind(self) -> str:
        """``tree``, ``commit`` (a submodule) or ``blob``, by the type bits as git itself reads them."""
        return {0o040000: "tree", 0o160000: "commit"}.get(self.mode & 0o170000, "blob")

    @property
    def mode_text(self) -> str:
        """Six octal digits."""
        return f"{self.mode:06o}"


@dataclass(frozen=True, slots=True)
class RawTree:
    """A parsed tree object: its entries in stored order and (path of the entry's name, what is wrong with it)."""

    entries: tuple[RawEntry, ...]
    defects: tuple[tuple[bytes, str], ...]


def parse_tree(data: bytes, id_bytes: int) -> RawTree:
    """Parse a tree object.

    Args:
        data: the object's body.
        id_bytes: 20 for SHA-1 repositories, 32 for SHA-256.

    Returns:
        All entries that could be read, and the defects. A body that ends in the middle of an entry is a defect as well.
    """
    entries: list[RawEntry] = []
    defects: list[tuple[bytes, str]] = []
    position = 0
    while position < len(data):
        space = data.find(b" ", position)
        zero = data.find(b"\0", space + 1)
        end = zero + 1 + id_bytes
        if space < 0 or zero < 0 or end > len(data) or not _octal(data[position:space]):
            defects.append((b"", "the tree object cannot be parsed to its end"))
            break
        mode, name = data[position:space], data[space + 1 : zero]
        entries.append(RawEntry(int(mode, 8), name, data[zero + 1 : end].hex()))
        if mode not in ALLOWED_MODES:
            defects.append((name, f"odd mode {mode.decode('ascii')}"))
        defects.extend((name, defect) for defect in name_defects(name))
        position = end
    defects.extend(_order_defects(entries))
    return RawTree(tuple(entries), tuple(defects[:MAX_DEFECTS]))


def _octal(mode: bytes) -> bool:
    return 0 < len(mode) <= 7 and all(0x30 <= digit <= 0x37 for digit in mode)


def name_defects(name: bytes) -> list[str]:
    """Return what is wrong with an entry's name: names that leave the directory, or that some file system takes for ``.git``."""
    found = []
    if not name:
        found.append("empty name")
    if b"/" in name:
        found.append("slash in a name")
    if name in (b".", b".."):
        found.append(f"entry named {name.decode()}")
    if is_dotgit(name):
        found.append("entry that a file system takes for .git")
    return found


def is_dotgit(name: bytes) -> bool:
    """Whether some file system takes ``name`` for ``.git``: by case, by NTFS short name or stream, by ignorable characters."""
    if _NTFS_DOTGIT.match(name):
        return True
    if name.isascii():
        return False
    seen = "".join(letter for letter in name.decode("utf-8", "replace") if ord(letter) not in _HFS_IGNORED)
    return seen.casefold() == ".git"


def _order_defects(entries: list[RawEntry]) -> list[tuple[bytes, str]]:
    found: list[tuple[bytes, str]] = []
    seen: set[bytes] = set()
    last = b""
    for entry in entries:
        if entry.name in seen:
            found.append((entry.name, "duplicate name"))
        seen.add(entry.name)
        key = entry.name + (b"/" if entry.kind == "tree" else b"")
        if key < last:
            found.append((entry.name, "entries are not sorted"))
        last = key
        if not entry.id.strip("0"):
            found.append((entry.name, "null object id"))
    return found
