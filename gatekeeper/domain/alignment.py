"""Which statement of an old body is which of a new one: the longest common subsequence, whole statements before headings.

``difflib`` looks for long unbroken runs and may miss that every old statement is still there, in order, once something was added
between statements that repeat themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_CELLS = 1_000_000
"""Largest product of both lengths, once what is equal at both ends is left out: about a second."""


class Aligned(NamedTuple):
    """A statement to be aligned: ``key`` must be equal for a pair, ``whole`` is equal if nothing in it differs either."""

    key: str
    whole: str


class TooMuch(ValueError):
    """Two bodies that differ in more statements than can be compared in reasonable time."""


def align(olds: Sequence[Aligned], news: Sequence[Aligned]) -> list[tuple[int, int]]:
    """Return pairs (index of old, index of new), ascending in both: as many as possible, then as many equal ones as possible.

    Raises:
        TooMuch: if the product of the lengths exceeds :data:`MOST_CELLS`.
    """
    start = _alike(olds, news)
    end = _alike(olds[start:][::-1], news[start:][::-1])
    inner = _subsequence(olds[start : len(olds) - end], news[start : len(news) - end])
    pairs = [(at, at) for at in range(start)]
    pairs.extend((start + old, start + new) for old, new in inner)
    pairs.extend((len(olds) - at, len(news) - at) for at in range(end, 0, -1))
    return pairs


def _alike(olds: Sequence[Aligned], news: Sequence[Aligned]) -> int:
    return next(
        (at for at, (old, new) in enumerate(zip(olds, news, strict=False)) if old != new), min(len(olds), len(news))
    )


def _subsequence(olds: Sequence[Aligned], news: Sequence[Aligned]) -> list[tuple[int, int]]:
    if len(olds) * len(news) > MOST_CELLS:
        raise TooMuch(f"{len(olds)} against {len(news)} statements")
    one_pair = min(len(olds), len(news)) + 1  # worth more than all equalities together
    best = [[0] * (len(news) + 1) for _ in range(len(olds) + 1)]
    for at_old in range(len(olds) - 1, -1, -1):
        old, below, here = olds[at_old], best[at_old + 1], best[at_old]
        for at_new in range(len(news) - 1, -1, -1):
            score = max(below[at_new], here[at_new + 1])
            if old.key == news[at_new].key:
                score = max(score, below[at_new + 1] + one_pair + (old.whole == news[at_new].whole))
            here[at_new] = score
    pairs = []
    at_old = at_new = 0
    while at_old < len(olds) and at_new < len(news):
        if best[at_old][at_new] == best[at_old + 1][at_new]:
            at_old += 1
        elif best[at_old][at_new] == best[at_old][at_new + 1]:
            at_new += 1
        else:
            pairs.append((at_old, at_new))
            at_old, at_new = at_old + 1, at_new + 1
    return pairs
