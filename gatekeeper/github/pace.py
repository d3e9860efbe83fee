"""Manners towards GitHub: one write at a time for each installation, a pause between writes, and silence after a limit.

The state of an installation is a small file, so that all processes that share the data directory keep to it together. Limits
and what to do at one: GitHub's documentation, "Rate limits for the REST API" and "Best practices for using the REST API".
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatekeeper.github.faults import Answer, Throttled, is_limit
from gatekeeper.github.meter import number

POINTS = {"GET": 1}
"""What a request counts towards the limit of points; every verb that is not named counts as a write."""
WRITE_POINTS = 5
MINUTE, HOUR = 60.0, 3600.0
LOOK_AGAIN = 0.05
FIRST_SILENCE, LONGEST_SILENCE = 60.0, 3600.0


@dataclass(frozen=True)
class Limits:
    """GitHub's limits for one installation; the defaults are those of its documentation.

    ``between_writes``: seconds from the end of a write to the begin of the next. ``writes_a_minute``, ``writes_an_hour``: requests
    that make content. ``points_a_minute``: a read is one point and a write five. ``patience``: seconds that a caller is kept
    waiting; a longer wait is an error that says how long.
    """

    between_writes: float = 1.0
    writes_a_minute: int = 80
    writes_an_hour: int = 500
    points_a_minute: int = 900
    patience: float = 5.0


@dataclass
class _State:
    """``writes``: times of the last hour's writes. ``points``: by second. ``silent_until``: no request before this time."""

    writes: list[float] = field(default_factory=list)
    points: dict[str, int] = field(default_factory=dict)
    silent_until: float = 0.0
    strikes: int = 0

    def forget(self, now: float) -> None:
        self.silent_until = min(self.silent_until, now + 2 * LONGEST_SILENCE)  # a clock that was put back
        self.writes = [moment for moment in self.writes if now - HOUR < moment <= now + MINUTE]
        self.points = {
            second: points for second, points in self.points.items() if now - MINUTE < float(second) <= now + 1
        }


class Pace:
    """The manners of one installation.

    Args:
        folder: where the state is kept; shared by all processes.
        installation: the installation's id.
        limits: how much is allowed.
        now: wall time in seconds, the same for all processes.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        folder: Path,
        installation: int,
        limits: Limits | None = None,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"{installation}.json"
        self._writer = folder / f"{installation}.writer"
        self._limits = limits or Limits()
        self._now, self._sleep = now, sleep

    @contextmanager
    def turn(self, verb: str) -> Iterator[None]:
        """Wait until a request may be sent, and count it. A write holds off all other writes until the block ends.

        Raises:
            Throttled: if the wait would be longer than ``patience``; it says how long it would be.
        """
        if verb == "GET":
            self._wait(verb)
            yield
            return
        with self._only_writer():
            self._wait(verb)
            try:
                yield
            finally:
                with self._state() as state:  # the pause counts from the end of a write
                    if state.writes:
                        state.writes[-1] = max(self._now(), state.writes[-1])

    def learn(self, answer: Answer) -> float | None:
        """Keep silent where an answer asks for it. Returns for how many seconds, or None if it asks for nothing.

        ``retry-after`` counts first, then ``x-ratelimit-reset`` if no request is left, else a pause of a minute that doubles
        with each limit in a row up to an hour.
        """
        if not is_limit(answer):
            if answer.status < 400:
                self._well()
            return None
        now = self._now()
        with self._state() as state:
            state.strikes += 1
            after = number(answer.headers, "retry-after")
            reset = number(answer.headers, "x-ratelimit-reset")
            if after is not None:
                pause = after
            elif answer.headers.get("x-ratelimit-remaining") == "0" and reset is not None:
                pause = reset - now + 1  # both clocks count in whole seconds
            else:
                pause = min(FIRST_SILENCE * 2.0 ** min(state.strikes - 1, 10), LONGEST_SILENCE)
            pause = min(max(pause, 1.0), LONGEST_SILENCE * 2)
            state.silent_until = max(state.silent_until, now + pause)
        return pause

    def _well(self) -> None:
        with self._state() as state:
            state.strikes = 0

    def _wait(self, verb: str) -> None:
        while True:
            with self._state() as state:
                now = self._now()
                pause = self._pause(state, verb, now)
                if pause <= 0:
                    second = str(int(now))
                    state.points[second] = state.points.get(second, 0) + POINTS.get(verb, WRITE_POINTS)
                    if verb != "GET":
                        state.writes.append(now)
                    return
            if pause > self._limits.patience:
                raise Throttled(
                    "no request is sent to GitHub now, so that its limits are kept", retry_after=pause, found=verb
                )
            self._sleep(pause)

    def _pause(self, state: _State, verb: str, now: float) -> float:
        """Seconds until the next request of this verb may be sent; 0 or less: now."""
        limits = self._limits
        waits = [state.silent_until - now]
        points = POINTS.get(verb, WRITE_POINTS)
        if sum(state.points.values()) + points > limits.points_a_minute:
            waits.append(float(min(state.points, key=float)) + MINUTE + 1 - now)
        if verb != "GET" and state.writes:
            waits.append(state.writes[-1] + limits.between_writes - now)
            for most, span in ((limits.writes_a_minute, MINUTE), (limits.writes_an_hour, HOUR)):
                recent = [moment for moment in state.writes if moment > now - span]
                if len(recent) >= most:
                    waits.append(recent[-most] + span - now)
        return max(waits)

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        """Hold the lock of the installation's writer; a lock of the file, so that a process that dies gives it back."""
        descriptor = os.open(self._writer, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            waited = 0.0
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if waited >= self._limits.patience:
                        raise Throttled(
                            "somebody else is writing for this installation", retry_after=1.0, found="its writer's lock"
                        ) from None
                    self._sleep(LOOK_AGAIN)
                    waited += LOOK_AGAIN
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _state(self) -> Iterator[_State]:
        """Yield the state under its lock and store what it is afterwards. A file that cannot be read counts as empty."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            state = _parse(os.pread(descriptor, size, 0))
            state.forget(self._now())
            yield state
            data = json.dumps(vars(state)).encode()
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)


def _parse(data: bytes) -> _State:
    try:
        kept: Any = json.loads(data) if data else {}
        return _State(
            writes=sorted(float(moment) for moment in kept.get("writes", [])),
            points={second: int(points) for second, points in kept.get("points", {}).items() if float(second) >= 0},
            silent_until=float(kept.get("silent_until", 0)),
            strikes=int(kept.get("strikes", 0)),
        )
    except (ValueError, TypeError, AttributeError):
        return _State()
