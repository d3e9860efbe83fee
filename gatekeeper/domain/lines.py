"""How many lines differ between two texts: the length of the shortest edit script (Myers, "An O(ND) Difference Algorithm
and Its Variations", 1986)."""

from __future__ import annotations

from gatekeeper.domain.documents import Value

MAX_EDITS = 4000
"""Above this many edits (about 8 million steps) the count is a bound from above instead of exact."""


class LineCount(Value):
    """Lines added and deleted. With ``exact`` false both are upper bounds, never less than the truth."""

    added: int
    deleted: int
    exact: bool = True


def count_lines(old: bytes | None, new: bytes | None) -> LineCount:
    """Count the added and deleted lines between two blobs; None stands for a file that is not there.

    Lines end at the byte 0x0A, as git splits them; a last line without it differs from the same line with it. A minimal edit
    script is counted, so moving code or padding it cannot make an addition look smaller than the shortest script.
    """
    olds, news = _lines(old), _lines(new)
    start = _common(olds, news)
    olds, news = olds[start:], news[start:]
    end = _common(olds[::-1], news[::-1])
    olds, news = olds[: len(olds) - end], news[: len(news) - end]
    edits = _shortest_script(olds, news)
    if edits is None:
        return LineCount(added=len(news), deleted=len(olds), exact=False)
    # added + deleted = edits and added - deleted = the difference in length.
    added = (edits + len(news) - len(olds)) // 2
    return LineCount(added=added, deleted=edits - added)


def _lines(data: bytes | None) -> list[bytes]:
    if not data:
        return []
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _common(olds: list[bytes], news: list[bytes]) -> int:
    count = 0
    for left, right in zip(olds, news, strict=False):
        if left != right:
            break
        count += 1
    return count


def _shortest_script(olds: list[bytes], news: list[bytes]) -> int | None:
    """Return the least number of insertions and deletions, or None if it exceeds :data:`MAX_EDITS`."""
    rows, columns = len(olds), len(news)
    numbers = {line: number for number, line in enumerate(dict.fromkeys(olds + news))}
    left, right = [numbers[line] for line in olds], [numbers[line] for line in news]
    furthest = {1: 0}  # by diagonal x - y: the largest x that this many edits reach
    for edits in range(min(rows + columns, MAX_EDITS) + 1):
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
            )
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            while x < rows and 0 <= x - diagonal < columns and left[x] == right[x - diagonal]:
                x += 1
            furthest[diagonal] = x
            if x >= rows and x - diagonal >= columns:
                return edits
    return None
