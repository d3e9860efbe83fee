"""``gatekeeper serve`` as a process: it stops in order, and it refuses to start with what would open the gate."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

PATIENCE = 60.0
SECRETS = '{"demo/vllm": ["' + "s" * 40 + '"]}'


def start(folder: Path, **settings: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the service on a free port with its data below ``folder``."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEKEEPER_")}
    environment = kept | {
        "GATEKEEPER_DATABASE_URL": f"sqlite:///{folder / 'gatekeeper.db'}",
        "GATEKEEPER_DATA_DIR": str(folder / "data"),
        "GATEKEEPER_PORT": str(port),
        **{f"GATEKEEPER_{name}": value for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "gatekeeper", "serve"]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder), port


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait for the first answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"not ready; status {process.poll()}")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_puts_everything_away(tmp_path: Path, how: signal.Signals) -> None:
    process, port = start(tmp_path, WEBHOOK_SECRETS=SECRETS)
    try:
        wait_until_ready(process, port)
        with socket.create_connection(("127.0.0.1", port)):  # one that says nothing must not hold the stop up
            process.send_signal(how)
            assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "gatekeeper.db-wal").exists(), "the database was closed and not just left"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, "CONFIG_WEBHOOK_SECRET"),
        ({"WEBHOOK_SECRET": "short"}, "CONFIG_WEBHOOK_SECRET"),
        ({"WEBHOOK_SECRETS": '{"demo": ["' + "s" * 40 + '"]}'}, "CONFIG_WEBHOOK_SECRETS"),
        ({"WEBHOOK_SECRETS": SECRETS, "DELIVERY_DAYS": "7"}, "CONFIG_DELIVERY_DAYS"),
    ],
)
def test_hook_empty_secret_refuses_to_start(tmp_path: Path, settings: dict[str, str], code: str) -> None:
    process, _ = start(tmp_path, **settings)
    assert process.wait(PATIENCE) != 0
    told = (tmp_path / "log").read_text()
    assert code in told and "Traceback" not in told and "s" * 40 not in told
    assert not (tmp_path / "gatekeeper.db").exists(), "nothing was opened before"
