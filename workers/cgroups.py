"""One control group for each jailed process tree: freeze, kill, count CPU time, bound memory and number of processes.

The version 2 hierarchy is used for freezing, killing and CPU time, which need no controller to be enabled there. Limits come
from version 2 controllers where delegated, else from the version 1 hierarchies beside it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from workers import scratch

PREFIX = "gatekeeper-"


class Cgroup:
    """A control group that holds one process tree. Create it by :meth:`create`; it must be removed by :meth:`remove`."""

    def __init__(self, unified: Path, limits: tuple[Path, ...], bounds: Mapping[str, Path]) -> None:
        self.unified = unified
        self.limits = limits
        self.bounds = bounds
        """``memory`` and ``pids``, where they hold: the directory that counts them."""
        self._freeze = os.open(unified / "cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
        self._events = os.open(unified / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def create(cls, name: str, *, memory: int, processes: int) -> Cgroup:
        """Make a group below this process's own group, with at most ``memory`` bytes and ``processes`` tasks.

        Raises:
            OSError: if the hierarchy is not there or may not be written.
        """
        places = own_groups()
        if "" not in places:
            raise FileNotFoundError("no version 2 control group hierarchy is mounted")
        unified = places[""] / f"{PREFIX}{name}"
        unified.mkdir()
        made: list[Path] = []
        bounds: dict[str, Path] = {}
        wanted = {
            "memory": ("memory.max", "memory.limit_in_bytes", memory),
            "pids": ("pids.max", "pids.max", processes),
        }
        for controller, (new_file, old_file, value) in wanted.items():
            if (unified / new_file).exists():
                (unified / new_file).write_text(str(value))
                bounds[controller] = unified
            elif controller in places:
                group = places[controller] / f"{PREFIX}{name}"
                try:
                    group.mkdir()
                    (group / old_file).write_text(str(value))
                    made.append(group)
                    bounds[controller] = group
                except OSError:
                    with contextlib.suppress(OSError):
                        group.rmdir()
        return cls(unified, tuple(made), bounds)

    @property
    def entrances(self) -> list[str]:
        """Files that a process writes ``0`` into to join this group."""
        return [str(group / "cgroup.procs") for group in (self.unified, *self.limits)]

    def freeze(self, timeout: float = 5.0) -> None:
        """Stop every task of the tree and return when all stand still.

        Raises:
            TimeoutError: if some task still runs after ``timeout`` seconds.
        """
        os.pwrite(self._freeze, b"1", 0)
        deadline = time.monotonic() + timeout
        while b"frozen 1" not in os.pread(self._events, 256, 0):
            if time.monotonic() > deadline:
                raise TimeoutError(f"tasks of {self.unified.name} would not freeze within {timeout:g} s")

    def thaw(self) -> None:
        """Let every task of the tree run again."""
        os.pwrite(self._freeze, b"0", 0)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all tasks that are or were in the group, in seconds, to the microsecond."""
        for line in (self.unified / "cpu.stat").read_text().splitlines():
            name, value = line.split()
            if name == "usage_usec":
                return int(value) / 1e6
        raise OSError(f"{self.unified}/cpu.stat has no usage_usec")

    def processes(self) -> list[int]:
        """Return the pids in the group."""
        return [int(pid) for pid in (self.unified / "cgroup.procs").read_text().split()]

    def limits_hit(self) -> tuple[str, ...]:
        """Return reason codes of the bounds that the tree ran into: ``RUN_OOM`` (the kernel killed a task of it for want of memory)
        and ``RUN_PIDS_LIMIT`` (it was refused another process or thread)."""
        memory, pids = self.bounds.get("memory"), self.bounds.get("pids")
        found = []
        if memory and any(_counter(memory / name, "oom_kill") for name in ("memory.events", "memory.oom_control")):
            found.append("RUN_OOM")
        if pids and _counter(pids / "pids.events", "max"):
            found.append("RUN_PIDS_LIMIT")
        return tuple(found)

    def kill(self) -> None:
        """Send SIGKILL to every task; frozen ones die too."""
        (self.unified / "cgroup.kill").write_text("1")

    def remove(self, timeout: float = 5.0) -> None:
        """Wait until the group is empty and delete it.

        Raises:
            TimeoutError: if a task is still there after ``timeout`` seconds (it hangs in the kernel).
        """
        deadline = time.monotonic() + timeout
        waiting = [self.unified, *self.limits]
        while waiting:
            try:
                waiting[0].rmdir()
                waiting.pop(0)
            except FileNotFoundError:
                waiting.pop(0)
            except OSError as error:
                # Busy until the last thread is gone, which is a little later than the list of processes is empty.
                if time.monotonic() > deadline:
                    raise TimeoutError(f"tasks {self.processes()} of {self.unified.name} do not end") from error
                time.sleep(0.001)
        os.close(self._freeze)
        os.close(self._events)


def _counter(file: Path, name: str) -> int:
    """Return a counter of a file of lines ``name value``; 0 where there is none."""
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            if line.split()[0] == name:
                return int(line.split()[1])
    return 0


def own_groups() -> dict[str, Path]:
    """Return this process's group directory by controller name; ``""`` is the version 2 hierarchy."""
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mounts.setdefault("", Path(place))
        elif kind == "cgroup":
            for controller in ("memory", "pids", "cpuset"):
                if controller in options.split(","):
                    mounts.setdefault(controller, Path(place))
    groups: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in mounts:
                inside = mounts[controller] / path.lstrip("/")
                groups[controller] = inside if inside.is_dir() else mounts[controller]
    return groups


def sweep() -> int:
    """Kill and delete groups whose harness is gone, and homes of theirs; return how many there were.

    Names of groups are ``gatekeeper-<pid>-<n>``.
    """
    swept = 0
    for place in own_groups().values():
        for group in place.glob(f"{PREFIX}*-*"):
            pid = group.name[len(PREFIX) :].split("-")[0]
            if not pid.isdigit() or Path("/proc", pid).exists():
                continue
            swept += 1
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
            with contextlib.suppress(OSError):
                group.rmdir()
    return swept + scratch.sweep()
