"""Pairs of processes that were started before their blocks begin: starting one takes longer than many a block's runs.

How many start side by side is the device's choice: on a CPU one pair, since its start-up would disturb whatever is timed meanwhile
or wait for the same two cores; on a GPU host several, all frozen before anything is timed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gatekeeper.domain.samples import Arm
from workers.loop.blocks import Plan
from workers.loop.runs import stand_still
from workers.protocol import ArmFailed
from workers.side import Side

Pair = dict[Arm, Side]


class Waiting:
    """The pairs that wait, in the order of their blocks. ``start`` starts one; ``together`` is how many start side by side."""

    def __init__(self, start: Callable[[Plan], Pair], together: int) -> None:
        self._start, self._together = start, together
        self._pairs: deque[Pair] = deque()
        self._running = False

    def fill(self, plans: Sequence[Plan]) -> None:
        """Start the pairs of the next blocks, if none waits any more; they start up while the caller goes on."""
        if not self._pairs:
            for plan in plans[: self._together]:
                self._pairs.append(self._start(plan))
            self._running = True

    def take(self, plans: Sequence[Plan]) -> Pair:
        """Return the pair of the first of the blocks to come; none of the others runs when this returns."""
        self.fill(plans)
        if self._running and self._together > 1:
            for pair in self._pairs:
                for side in pair.values():
                    _settle(side)
        self._running = False
        return self._pairs.popleft()

    def close(self) -> None:
        """Kill the pairs that no block has taken."""
        for pair in self._pairs:
            for side in pair.values():
                side.close()
        self._pairs.clear()


def _settle(side: Side) -> None:
    """Freeze a process once it has started. One that fails to start is its block's business: there it is told who failed."""
    try:
        side.ready()
        stand_still(side)
    except ArmFailed:
        return
