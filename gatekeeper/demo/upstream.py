"""The sample upstream: a bare repository shaped like the model tree of a serving engine, with pull requests as git refs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.git import plumbing

SAMPLE = Path(__file__).parent / "sample"
BASE_REF = "main"
FIRST_COMMIT_TIME = 1_790_000_000
"""Fixed, so that the same sample gives the same object ids on every machine."""

Changes = dict[str, bytes | None]
"""Path to new content; None deletes the path."""


@dataclass(frozen=True)
class Upstream:
    """A bare repository that was built: where it lies and the ids of its base branch and pull request heads."""

    path: Path
    base_sha: str
    heads: Mapping[int, str]


def base_files() -> dict[str, bytes]:
    """Return the files of the sample's base branch, by path from the repository root."""
    root = SAMPLE / "base"
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def build(path: Path, pulls: Mapping[int, tuple[str, Changes]], extra: Changes | None = None) -> Upstream:
    """Write the repository to ``path`` (which must not exist): one base commit and one commit for each pull request.

    Args:
        path: where the bare repository goes.
        pulls: pull request number to its title and its changes against the base; each becomes ``refs/pull/<n>/head``.
        extra: files to add to the base branch.
    """
    plumbing.run(None, "init", "--quiet", "--bare", "--initial-branch", BASE_REF, "--", str(path))
    base: Changes = {**base_files(), **(extra or {})}
    stream = [_commit(f"refs/heads/{BASE_REF}", 1, FIRST_COMMIT_TIME, "The sample upstream", base)]
    for number, (title, changes) in sorted(pulls.items()):
        when = FIRST_COMMIT_TIME + 60 * number
        stream.append(_commit(f"refs/pull/{number}/head", number + 1, when, title, changes, parent=1))
    plumbing.run(path, "fast-import", "--quiet", "--date-format=raw", stdin=b"".join(stream) + b"done\n")
    listed = plumbing.run(path, "for-each-ref", "--format=%(refname) %(objectname)").text
    ids = dict(line.split(" ") for line in listed.splitlines())
    heads = {number: ids[f"refs/pull/{number}/head"] for number in pulls}
    return Upstream(path=path, base_sha=ids[f"refs/heads/{BASE_REF}"], heads=heads)


def _commit(ref: str, mark: int, when: int, message: str, files: Changes, parent: int | None = None) -> bytes:
    lines = [
        b"commit %s\nmark :%d\n" % (ref.encode(), mark),
        b"committer Sample Author <author@example.invalid> %d +0000\n" % when,
        _data(message.encode()),
    ]
    if parent is not None:
        lines.append(b"from :%d\n" % parent)
    for name, data in sorted(files.items()):
        quoted = b'"%s"' % name.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        lines.append(b"D %s\n" % quoted if data is None else b"M 100644 inline %s\n" % quoted + _data(data))
    lines.append(b"\n")
    return b"".join(lines)


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"
