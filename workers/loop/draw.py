"""Which runs the oracle follows: drawn after they are over, so that nobody could know it while they ran."""

from __future__ import annotations

import random

from workers.loop.blocks import Pair

_random = random.SystemRandom()


class Draw:
    """Draws a share of the pairs of one block, and one pair of each configuration where the share draws none."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._chosen: list[tuple[int, Pair]] = []
        self._seen: dict[int, int] = {}
        self._spare: dict[int, Pair] = {}
        """One pair of each configuration, every one offered so far being equally likely: no more than that is kept in memory."""

    def offer(self, number: int, pair: Pair) -> None:
        """Take note of a pair whose runs are over, at the configuration ``number``."""
        self._seen[number] = self._seen.get(number, 0) + 1
        if _random.random() < self._share:
            self._chosen.append((number, pair))
        if _random.randrange(self._seen[number]) == 0:
            self._spare[number] = pair

    def chosen(self) -> list[tuple[int, Pair]]:
        """Return what was drawn, as (configuration, pair)."""
        drawn = {number for number, _ in self._chosen}
        return self._chosen + [(number, pair) for number, pair in self._spare.items() if number not in drawn]
