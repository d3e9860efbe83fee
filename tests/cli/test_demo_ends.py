"""However the demonstration ends, its service ends with it: at a closed terminal, at a kill, in a script's background."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper.demo import run

PATIENCE = 90.0
LEADER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
DEMO = [sys.executable, "-m", "gatekeeper", "demo"]


class Shown:
    """A demonstration on a terminal of its own, read until its service answers."""

    def __init__(self, folder: Path) -> None:
        self.master, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEADER, *DEMO], stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True, env={**os.environ, "TMPDIR": str(folder), "TERM": "xterm"},
        )  # fmt: skip
        os.close(terminal)
        self._until(b"the dashboard is at")
        [self.service] = children(self.process.pid)

    def _until(self, wanted: bytes) -> None:
        seen, deadline = b"", time.monotonic() + PATIENCE
        while wanted not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([self.master], [], [], 0.2)[0]:
                seen += os.read(self.master, 4096)

    def close_terminal(self) -> None:
        os.close(self.master)
        self.master = -1

    def kill(self) -> None:
        for pid in (self.process.pid, self.service):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)


def children(parent: int) -> list[int]:
    return [
        pid for pid, of in ((int(e.name), parent_of(int(e.name))) for e in Path("/proc").glob("[0-9]*")) if of == parent
    ]


def parent_of(pid: int) -> int | None:
    try:
        return int(re.search(r"^PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])  # type: ignore[index]
    except OSError:
        return None


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not alive(pid)


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    demonstration = Shown(tmp_path)
    yield demonstration
    demonstration.kill()


def test_a_closed_terminal_ends_the_service_and_leaves_no_folder(shown: Shown, tmp_path: Path) -> None:
    shown.close_terminal()
    shown.process.wait(PATIENCE)
    assert not alive(shown.service)
    assert list(tmp_path.glob("gatekeeper-demo-*")) == []


def test_a_killed_demonstration_takes_its_service_along_and_the_next_one_its_folder(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.tempfile, "tempdir", str(tmp_path))
    [folder] = tmp_path.glob("gatekeeper-demo-*")
    run.sweep()
    assert folder.exists(), "it is in use"
    shown.process.kill()
    assert gone(shown.service)
    shown.process.wait()
    with run.private_folder() as other:
        assert not folder.exists() and other.exists()
        run.sweep()
        assert other.exists()
    assert not other.exists()


def test_an_interrupt_is_heard_where_the_shell_had_it_ignored(tmp_path: Path) -> None:
    ignored = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ignored, *DEMO], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if b"building" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert list(tmp_path.glob("gatekeeper-demo-*")) == []
