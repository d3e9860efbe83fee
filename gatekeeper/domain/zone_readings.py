"""Readings of files that lie in git, each made once: the policies `effects` and `isolation` ask about the same ones."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gatekeeper.domain.source import SourceTree
from gatekeeper.domain.zone_code import read_code
from gatekeeper.domain.zone_scan import Reading

_READINGS: WeakKeyDictionary[SourceTree, dict[tuple[str, str, str], Reading]] = WeakKeyDictionary()
"""They live as long as the tree that they were read from, which is one judgement."""


def reading(tree: SourceTree, blob: str | None, path: str, package: str) -> Reading:
    """Return the reading of a blob as the Python file ``path``; of no blob, an empty one. See ``zone_code.read_code``.

    Raises:
        KeyError: if the tree's repository has no such blob.
    """
    if blob is None:
        return Reading()
    known = _READINGS.setdefault(tree, {})
    key = blob, path, package
    if key not in known:
        known[key] = read_code(tree.read_blob(blob), path, package)
    return known[key]
