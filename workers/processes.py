"""A process tree held by signals alone, for machines whose control groups may not be written. Same methods as ``Cgroup``."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from workers.launch import descendants

STOPPED = {"T", "t", "Z", "X"}


class ProcessTree:
    """All descendants of one process, found through /proc. Daemons stay inside because the root is a reaper or a pid 1."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.entrances: list[str] = []

    def processes(self) -> list[int]:
        """Return the pids of the tree, the root included while it lives."""
        below = descendants(self.root)
        return ([self.root] if state_of(self.root) not in ("X", "Z") else []) + below

    def freeze(self, timeout: float = 5.0) -> None:
        """Stop every process below the root, again until none is left that runs.

        Raises:
            TimeoutError: if some process still runs after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            running = [pid for pid in descendants(self.root) if state_of(pid) not in STOPPED]
            if not running:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {running} would not stop within {timeout:g} s")
            for pid in running:
                send(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let every process of the tree run again."""
        for pid in descendants(self.root):
            send(pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads that live in the tree, in seconds (nanosecond counters of the scheduler)."""
        total = 0
        for pid in (self.root, *descendants(self.root)):
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError, IndexError):
                    total += int(task.read_text().split()[0])
        return total / 1e9

    def limits_hit(self) -> tuple[str, ...]:
        """Return nothing: limits of single processes leave no trace that can be read from outside."""
        return ()

    def kill(self) -> None:
        """Kill every process below the root, then the root."""
        for _ in range(100):
            alive = [pid for pid in descendants(self.root) if state_of(pid) not in ("Z", "X")]
            if not alive:
                break
            for pid in alive:
                send(pid, signal.SIGKILL)
        send(self.root, signal.SIGKILL)

    def remove(self, timeout: float = 5.0) -> None:
        """Wait until no process of the tree is left.

        Raises:
            TimeoutError: if a process is still there after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while any(state_of(pid) not in ("Z", "X") for pid in descendants(self.root)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {descendants(self.root)} do not end")
            time.sleep(0.001)


def state_of(pid: int) -> str:
    """Return the state letter of a process, ``X`` if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0].decode()
    except OSError:
        return "X"


def oldest_child(parent: int) -> int | None:
    """Return the child of a process that was started first, None if it has none. Later ones may be orphans that it took in."""
    found: list[tuple[int, int]] = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                # After the name in brackets: state, parent, ... and the start time as the twentieth (proc(5), fields 3, 4, 22).
                fields = (place / "stat").read_bytes().rsplit(b")", 1)[1].split()
                if int(fields[1]) == parent:
                    found.append((int(fields[19]), int(place.name)))
    return min(found)[1] if found else None


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; that the process is gone already is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
