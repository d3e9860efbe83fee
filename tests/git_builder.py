"""Throw-away git repositories for tests, written object by object: any tree can be made, also ones no honest tool writes.

Nothing here calls git, so that building is fast (about 10,000 objects a second) and no check of git gets in the way.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = "100644"
EXECUTABLE = "100755"
SYMLINK = "120000"
GITLINK = "160000"
TREE = "40000"

_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"


@dataclass(frozen=True)
class Entry:
    """A tree entry by hand: ``mode`` as git writes it (``40000`` for a tree) and the full object id."""

    mode: str
    id: str


Content = str | bytes | Entry | None
"""A file's text or bytes (mode 100644), an entry by hand, or None: the path goes, with everything below it."""


def _raw(path: str | bytes) -> bytes:
    return path.encode() if isinstance(path, str) else path


class GitBuilder:
    """A bare repository at ``path``. Commits are made from dictionaries of changes on top of the first parent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "objects" / "pack").mkdir(parents=True)
        (path / "objects" / "info").mkdir()
        (path / "refs" / "heads").mkdir(parents=True)
        (path / "HEAD").write_text("ref: refs/heads/main\n")
        (path / "config").write_text(_CONFIG)
        self._files: dict[str, dict[bytes, Entry]] = {}
        self._trees: dict[str, str] = {}
        self._clock = 1_700_000_000

    def object(self, kind: str, body: bytes) -> str:
        """Write a loose object and return its id."""
        data = f"{kind} {len(body)}\0".encode() + body
        name = hashlib.sha1(data).hexdigest()
        file = self.path / "objects" / name[:2] / name[2:]
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(zlib.compress(data, 1))
        return name

    def blob(self, content: str | bytes) -> str:
        """Write a blob and return its id."""
        return self.object("blob", _raw(content))

    def file(self, content: str | bytes, mode: str = FILE) -> Entry:
        """Return an entry for a file of that content and mode."""
        return Entry(mode, self.blob(content))

    def executable(self, content: str | bytes) -> Entry:
        """Return an entry of mode 100755."""
        return self.file(content, EXECUTABLE)

    def link(self, target: str | bytes) -> Entry:
        """Return an entry for a symbolic link to ``target``."""
        return self.file(target, SYMLINK)

    def gitlink(self, commit: str = "1" * 40) -> Entry:
        """Return an entry for a submodule at ``commit``; the commit need not exist."""
        return Entry(GITLINK, commit)

    def raw_tree(self, entries: Iterable[tuple[str, str | bytes, str]]) -> str:
        """Write a tree from (mode, name, id) exactly as given: no sorting, no check. Return its id."""
        body = b"".join(mode.encode() + b" " + _raw(name) + b"\0" + bytes.fromhex(id) for mode, name, id in entries)
        return self.object("tree", body)

    def subtree(self, entries: Iterable[tuple[str, str | bytes, str]]) -> Entry:
        """Return an entry for a hand-made tree, to be put at a path of a commit."""
        return Entry(TREE, self.raw_tree(entries))

    def tree(self, files: Mapping[bytes, Entry]) -> str:
        """Write the nested trees of a flat listing, properly sorted; return the root's id."""
        here: dict[bytes, Entry] = {}
        below: dict[bytes, dict[bytes, Entry]] = {}
        for path, entry in files.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(name, {})[rest] = entry
            else:
                here[name] = entry
        for name, inner in below.items():
            here[name] = Entry(TREE, self.tree(inner))
        ordered = sorted(here.items(), key=lambda item: item[0] + (b"/" if item[1].mode == TREE else b""))
        return self.raw_tree([(entry.mode, name, entry.id) for name, entry in ordered])

    def commit(
        self,
        changes: Mapping[str, Content] | Mapping[bytes, Content] | None = None,
        *,
        parent: str | None = None,
        also: Iterable[str] = (),
        branch: str | None = None,
        pull: int | None = None,
        message: str = "change",
        tree: str | None = None,
    ) -> str:
        """Commit ``changes`` on top of ``parent``'s files and return the commit's id.

        ``also`` names further parents (a merge whose tree is whatever the changes say); ``branch`` and ``pull`` are moved to
        the new commit; ``tree`` replaces the whole tree by a hand-made one.
        """
        files = dict(self._files[parent]) if parent else {}
        for path, content in (changes or {}).items():
            self._change(files, _raw(path), content)
        root = tree or self.tree(files)
        parents = ([parent] if parent else []) + list(also)
        self._clock += 60
        who = f"Ada Example <ada@example.org> {self._clock} +0000"
        lines = [
            f"tree {root}",
            *(f"parent {one}" for one in parents),
            f"author {who}",
            f"committer {who}",
            "",
            message,
        ]
        name = self.object("commit", ("\n".join(lines) + "\n").encode())
        self._files[name] = files
        self._trees[name] = root
        if branch:
            self.ref(f"refs/heads/{branch}", name)
        if pull is not None:
            self.ref(f"refs/pull/{pull}/head", name)
        return name

    def _change(self, files: dict[bytes, Entry], path: bytes, content: Content) -> None:
        for old in [known for known in files if known == path or known.startswith(path + b"/")]:
            del files[old]
        if isinstance(content, Entry):
            files[path] = content
        elif content is not None:
            files[path] = self.file(content)

    def ref(self, name: str, target: str) -> None:
        """Point a ref at an object."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(target + "\n")

    def tree_of(self, commit: str) -> str:
        """Return the root tree of a commit made here."""
        return self._trees[commit]

    def entry(self, commit: str, path: str | bytes) -> Entry:
        """Return the entry of a file in a commit made here, for example to move it elsewhere."""
        return self._files[commit][_raw(path)]

    def configure(self, text: str) -> None:
        """Append to the repository's configuration file."""
        with (self.path / "config").open("a") as file:
            file.write(text)
