"""A competing load: another process on the cores of the arms, so that whatever depends on who runs when comes out otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPIN = "while True: pass"


@contextmanager
def competing(cpus: tuple[int, ...] | None) -> Iterator[None]:
    """Keep one process a core busy on ``cpus`` (every core that this process may use, where they are None)."""
    chosen = cpus or tuple(sorted(os.sched_getaffinity(0)))
    busy = [subprocess.Popen([sys.executable, "-I", "-S", "-c", SPIN]) for _ in chosen]
    try:
        for process, cpu in zip(busy, chosen, strict=True):
            os.sched_setaffinity(process.pid, {cpu})
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
