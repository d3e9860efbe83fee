"""Signals that ask for an end, for commands that have started something: they raise, so that what was started is stopped in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block for each signal that asks for an end. To be entered in the main thread.

    A shell that starts a job with ``&`` lets it ignore SIGINT; it is listened to again, so that Ctrl-C ends what it began.
    SIGHUP, from a terminal that is closed, stays ignored where ``nohup`` made it so.
    """
    before = {number: signal.getsignal(number) for number in ASKING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    if before[signal.SIGHUP] is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # A terminal that is closed sends it twice (kernel and shell): the second must not break off the end that is under way.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
