"""Starts and stops the service that the demonstration talks to: ``gatekeeper serve`` as a process of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from gatekeeper.domain.errors import Retryable

PREFERRED_PORT = 8700
START_SECONDS = 60.0
STOP_SECONDS = 20.0
PR_SET_PDEATHSIG = 1
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")


@dataclass(frozen=True)
class Service:
    """A running service: its address and where it writes its log."""

    url: str
    log: Path

    def client(self) -> httpx.Client:
        """Return a client for it. The service is on this machine: a proxy that the environment names is none of its business."""
        return httpx.Client(base_url=self.url, timeout=10, trust_env=False)


@contextmanager
def running(folder: Path, *, secret: str, git_base_url: str, trusted: tuple[str, ...]) -> Iterator[Service]:
    """Run the service with its data below ``folder`` until the block ends.

    Raises:
        Retryable: ``DEMO_SERVICE`` if it does not become ready; the message holds the end of its log.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = folder / "service.log"
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
        "GATEKEEPER_DATABASE_URL": f"sqlite:///{folder / 'gatekeeper.db'}",
        "GATEKEEPER_DATA_DIR": str(folder / "data"),
        "GATEKEEPER_WEBHOOK_SECRET": secret,
        "GATEKEEPER_GIT_BASE_URL": git_base_url,
        "GATEKEEPER_HOST": "127.0.0.1",
        "GATEKEEPER_PORT": str(port),
        "GATEKEEPER_BASE_URL": url,
        "GATEKEEPER_POLICY_SET": "demo",
        "GATEKEEPER_TRUSTED_AUTHORS": "[" + ",".join(f'"{login}"' for login in trusted) + "]",
    }
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "gatekeeper", "serve"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=environment,
            cwd=folder,
            start_new_session=True,  # Ctrl-C reaches the demonstration, which then stops the service in order
            preexec_fn=_ending_with(os.getpid()),
        )
        try:
            _wait_until_ready(process, url, log)
            yield Service(url=url, log=log)
        finally:
            _stop(process)


def _ending_with(parent: int) -> Callable[[], None]:
    """Return what a child does before it becomes the service: from then on it is asked to stop when ``parent`` dies, even if killed.

    SIGTERM and not SIGKILL, because the service has processes of its own to stop.
    """
    libc = ctypes.CDLL(None)  # loaded here: after the fork only what cannot wait for a lock may run

    def settle() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return settle


def free_port() -> int:
    """Return the preferred port if nobody listens there, else any free one."""
    for wanted in (PREFERRED_PORT, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Retryable("no free port", code="DEMO_PORT")


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=2, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    state = "still not ready" if process.poll() is None else f"ended with status {process.returncode}"
    tail = log.read_text(errors="replace")[-2000:]
    raise Retryable(f"the service is {state}; its log ends:\n{tail}", code="DEMO_SERVICE")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
