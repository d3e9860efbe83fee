"""A running jailed process tree and the typed end that each one comes to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from workers import scratch
from workers.cgroups import Cgroup
from workers.processes import ProcessTree, oldest_child, state_of

LOG_LIMIT = 64 << 10
KILL_SECONDS = 10.0
KILL_AGAIN_SECONDS = 0.1


class Ending(StrEnum):
    """How a jailed process ended, as seen from outside."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    KILLED = "killed"
    """By us: it was told to, or it used up its time."""


def printable(text: str) -> str:
    """Return text without control characters (zero bytes, escape sequences); line ends and tabs stay. No text store has to
    bear what an attacker prints."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


@dataclass(frozen=True)
class Ended:
    """The end of a process tree. ``status`` is the exit status or the signal's number (0 for ``KILLED``)."""

    how: Ending
    status: int
    leftovers: int
    """Processes beside the main one that were still there when it ended or was killed."""
    cpu_seconds: float
    log: str
    """The last part of what it printed: an attacker's text, for display only."""

    hit: tuple[str, ...] = ()
    """Reason codes of the bounds that the tree ran into, as the kernel counted them: ``RUN_OOM``, ``RUN_PIDS_LIMIT``."""

    @property
    def clean(self) -> bool:
        """True if it exited with status 0 and left nothing behind."""
        return self.how is Ending.EXITED and self.status == 0 and not self.leftovers


class JailedProcess:
    """One process tree in a jail. Every way out goes through :meth:`finish` or :meth:`kill`, and both leave nothing alive."""

    def __init__(
        self, process: subprocess.Popen[bytes], holder: Cgroup | ProcessTree, buffer: int | None, *, own_processes: int,
        home: Path | None = None,
    ) -> None:  # fmt: skip
        self._process = process
        self._holder = holder
        self._buffer = buffer
        self._own = own_processes
        self._home = home
        """A directory that only this process had; it is deleted at the end."""
        self._ended: Ended | None = None

    @property
    def pid(self) -> int:
        """Process id of the tree's root as this machine sees it."""
        return self._process.pid

    @property
    def ended(self) -> Ended | None:
        """The end, once there is one; None does not prove that it still runs."""
        return self._ended

    def freeze(self) -> None:
        """Stop the whole tree and return when it stands still.

        Raises:
            TimeoutError: if it does not stop.
        """
        self._holder.freeze()

    def thaw(self) -> None:
        """Let the whole tree run again."""
        self._holder.thaw()

    def cpu_time(self) -> float:
        """Return the CPU time of the whole tree so far, in seconds."""
        return self._ended.cpu_seconds if self._ended else self._holder.cpu_seconds()

    def processes(self) -> list[int]:
        """Return the pids in the tree, the jail's own helpers included."""
        return [] if self._ended else self._holder.processes()

    def extra_processes(self) -> int:
        """Return how many processes there are beyond the main one and the jail's own helpers."""
        return max(0, len(self.processes()) - self._own)

    def pin(self, cpus: tuple[int, ...]) -> None:
        """Bind every thread of the tree to these cores."""
        for task in self._tasks():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(task, cpus)

    def strays(self, cpus: tuple[int, ...]) -> list[int]:
        """Return the threads of the tree that are bound to anything but these cores."""
        found = []
        for task in self._tasks():
            with contextlib.suppress(ProcessLookupError):
                if os.sched_getaffinity(task) != set(cpus):
                    found.append(task)
        return found

    def _tasks(self) -> list[int]:
        tasks: list[int] = []
        for pid in self.processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                tasks.extend(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
        return tasks

    def alive(self) -> bool:
        """Return True while the main process has not ended."""
        return self._ended is None and self._process.poll() is None

    def log_text(self, limit: int = LOG_LIMIT) -> str:
        """Return the last ``limit`` bytes of what was printed into the buffer, bytes that are no UTF-8 replaced."""
        if self._buffer is None:
            return self._ended.log if self._ended else ""
        size = os.fstat(self._buffer).st_size
        return printable(os.pread(self._buffer, limit, max(0, size - limit)).decode("utf-8", "replace"))

    def finish(self, timeout: float) -> Ended:
        """Wait up to ``timeout`` seconds for the main process, then kill whatever is left of the tree."""
        if self._ended:
            return self._ended
        deadline = time.monotonic() + timeout
        leftovers = 0
        main = None
        while self._process.poll() is None and time.monotonic() < deadline:
            main = main or self._main()
            extra = self.extra_processes()
            # Once the main process has ended its helpers take all others down: who is gone by then was there before.
            if main is None or state_of(main) not in ("X", "Z"):
                leftovers = extra
            time.sleep(0.002)
        if self._own == 1 and self._process.poll() is not None:
            leftovers = len(self.processes())
        return self._end(leftovers)

    def _main(self) -> int | None:
        """Return the pid of the main process: below the jail's own helpers, of which each has started one child."""
        found: int | None = self.pid
        for _ in range(self._own - 1):
            found = oldest_child(found) if found else None
        return found

    def kill(self) -> Ended:
        """Kill the whole tree now, and return how it ended."""
        return self._ended or self._end(self.extra_processes())

    def _kill_all(self) -> None:
        """Kill until the main process is gone, and once more what it may have started meanwhile.

        A process that has just been started may not have entered its control group yet: killing the group alone would miss
        it, and waiting for it would never end.

        Raises:
            TimeoutError: if the main process does not die (it hangs in the kernel).
        """
        deadline = time.monotonic() + KILL_SECONDS
        while True:
            self._holder.kill()
            self._process.kill()
            try:
                self._process.wait(KILL_AGAIN_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"process {self.pid} does not end within {KILL_SECONDS:g} s") from None
        self._holder.kill()

    def _end(self, leftovers: int) -> Ended:
        code = self._process.poll()
        cpu_seconds = self._holder.cpu_seconds()
        self._kill_all()
        hit = self._holder.limits_hit()
        self._holder.remove()
        if self._home is not None:
            scratch.remove(self._home)
        if code is None:
            how, status = Ending.KILLED, 0
        elif code < 0 or code > 128:
            # bubblewrap reports a child's signal as 128 + number.
            how, status = Ending.SIGNALLED, -code if code < 0 else code - 128
        else:
            how, status = Ending.EXITED, code
        log = self.log_text()
        if self._buffer is not None:
            os.close(self._buffer)
            self._buffer = None
        self._ended = Ended(how, status, leftovers, cpu_seconds, log, hit)
        return self._ended
