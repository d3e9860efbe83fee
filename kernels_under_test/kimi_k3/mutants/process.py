"""Attacks on the race as a process: ends, hangs, lies in the protocol, reaches for what is not its own. Results are stock's."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .seam import Mutant, StepFunction, of_baseline

MOST_DESCRIPTORS = 64
STEPS_BEFORE = 3
DONE = 67
"""Number of the protocol's frame for a finished run (``workers/wire.py``)."""


def _once(act: Callable[[Mapping[str, Tensor]], object], at: int = STEPS_BEFORE) -> Mutant:
    """The stock path that does something else once, after a number of steps."""

    def around(step: Any, tensors: Mapping[str, Tensor], _seen: Mapping[str, Tensor], _shape: Any) -> StepFunction:
        calls = 0

        def run() -> None:
            nonlocal calls
            calls += 1
            step()
            if calls == at:
                act(tensors)

        return run

    return of_baseline(around=around)


def _sockets() -> list[socket.socket]:
    found = []
    for number in range(3, MOST_DESCRIPTORS):
        with contextlib.suppress(OSError):
            if "socket:" in str(Path(f"/proc/self/fd/{number}").readlink()):
                found.append(socket.socket(fileno=os.dup(number)))
    return found


def _say(payload: bytes) -> Callable[[Mapping[str, Tensor]], None]:
    def act(_tensors: Mapping[str, Tensor]) -> None:
        for each in _sockets():
            with contextlib.suppress(OSError):
                each.sendall(payload)

    return act


def _done_early(tensors: Mapping[str, Tensor]) -> None:
    """Answer the run that is under way with the very payload that it was asked with, found in the stub's own frame."""
    frame = sys._getframe()
    while frame and not isinstance(frame.f_locals.get("payload"), bytes):
        frame = frame.f_back  # type: ignore[assignment]
    if frame:
        payload = frame.f_locals["payload"]
        _say(struct.pack("<BI", DONE, len(payload)) + payload)(tensors)


def _write_weights(tensors: Mapping[str, Tensor]) -> None:
    next(t for name, t in tensors.items() if name.endswith(".input_norm")).fill_(1)


def _calm_noise(tensors: Mapping[str, Tensor]) -> None:
    rows, hidden = tensors["x"].shape
    for found in gc.get_objects():
        if isinstance(found, Tensor) and found.dim() == 3 and tuple(found.shape[1:]) == (rows, hidden):
            with contextlib.suppress(RuntimeError):
                found.zero_()


def _kill_parent(_tensors: Mapping[str, Tensor]) -> None:
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), signal.SIGKILL)


def _kill_harness(_tensors: Mapping[str, Tensor]) -> None:
    """Only processes that look like a harness: without a jail, this must not end anything else of the user's."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"workers.race" in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def _hog(_tensors: Mapping[str, Tensor]) -> None:
    held = []
    while True:
        held.append(bytearray(64 << 20))
        for at in range(0, len(held[-1]), 4096):
            held[-1][at] = 1


def _fork_often(_tensors: Mapping[str, Tensor]) -> None:
    for _ in range(200):
        try:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
        except OSError:
            return


def _leave_a_daemon(_tensors: Mapping[str, Tensor]) -> None:
    with contextlib.suppress(OSError):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)


def _call_home(_tensors: Mapping[str, Tensor]) -> None:
    with contextlib.suppress(OSError):
        socket.create_connection(("192.0.2.1", 80), timeout=0.2).close()


def _other_core(_tensors: Mapping[str, Tensor]) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    torch.set_num_threads(2)


def _patch_judges(_tensors: Mapping[str, Tensor]) -> None:
    torch.allclose = lambda *_a, **_k: True
    torch.isfinite = lambda t, **_k: torch.ones_like(t, dtype=torch.bool)
    time.monotonic_ns = lambda: 0
    time.perf_counter = lambda: 0.0


def _shout(_tensors: Mapping[str, Tensor]) -> None:
    for _ in range(4096):
        with contextlib.suppress(OSError):
            os.write(2, b"x" * 4096)


def _crash(_tensors: Mapping[str, Tensor]) -> None:
    ctypes.string_at(0)


def _raise(_tensors: Mapping[str, Tensor]) -> None:
    raise RuntimeError("a candidate that gives up")


writes_its_weights = _once(_write_weights)
"""Writes to a weight, which is mapped read-only."""
calms_the_noise = _once(_calm_noise, at=1)
"""Zeroes the coming inputs in shared memory, so that nothing hard is ever asked."""
kills_its_parent = _once(_kill_parent)
"""Sends SIGKILL to whoever started it."""
kills_the_harness = _once(_kill_harness)
"""Sends SIGKILL to every harness that it sees."""
says_done_early = _once(_done_early, at=1)
"""Says that the run is done in its first step."""
says_garbage = _once(_say(b"\xff" * 4096))
"""Floods the protocol with bytes that are no frames."""
ends_quietly = _once(lambda _t: os._exit(0))
"""Ends with status 0 in the middle of a run: that no error was seen proves nothing."""
crashes = _once(_crash)
"""Reads address zero."""
raises = _once(_raise)
"""Raises in the middle of a run."""
hangs = _once(lambda _t: time.sleep(3600))
"""Never comes back."""
eats_memory = _once(_hog)
"""Takes memory until something stops it."""
forks_often = _once(_fork_often)
"""Starts as many processes as it may."""
leaves_a_daemon = _once(_leave_a_daemon)
"""Leaves a process behind that would outlive it."""
calls_home = _once(_call_home)
"""Tries to reach a machine outside."""
takes_the_other_core = _once(_other_core)
"""Moves to all cores and asks for two threads."""
patches_the_judges = _once(_patch_judges)
"""Replaces comparison and clock in its own process, where nobody compares and nobody reads a clock."""
shouts = _once(_shout)
"""Writes 16 MiB to its log."""
exits_by_signal = _once(lambda _t: os.kill(os.getpid(), signal.SIGABRT))
"""Ends itself by a signal."""
looks_around = _once(lambda _t: [sys.modules.get(name) for name in ("workers", "gatekeeper")])
"""Looks for the harness's modules in its own process; there are none."""
