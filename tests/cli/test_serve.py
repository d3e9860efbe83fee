"""``serve``, ``worker`` and ``migrate`` as an operator starts them."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gatekeeper.catalog import ROOT
from gatekeeper.cli import main


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    handlers = logging.getLogger().handlers[:]
    port = free_port()
    values = {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'gatekeeper.db'}",
        "DATA_DIR": str(tmp_path / "data"),
        "WEBHOOK_SECRET": "s" * 40,
        "POLICY_SET": "demo",
        "PORT": port,
        "BASE_URL": f"http://127.0.0.1:{port}",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"GATEKEEPER_{name}", value)
    yield dict(os.environ)
    logging.getLogger().handlers[:] = handlers  # a command sends the logs to a stream that ends with its test


def gatekeeper(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gatekeeper", *arguments], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def serving(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = gatekeeper(environment, "serve")
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate(timeout=5)
            try:
                if httpx.get(f"{environment['GATEKEEPER_BASE_URL']}/readyz", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_serve_answers_refuses_a_second_one_and_ends_in_order_on_a_signal(environment: dict[str, str]) -> None:
    with serving(environment) as process:
        answer = httpx.get(f"{environment['GATEKEEPER_BASE_URL']}/readyz").json()
        assert answer["checks"] == {"database": "ok", "mirrors": "ok", "worker": "ok"} and answer["queue"] == {}
        before = process.poll()
        second = gatekeeper(
            environment | {"GATEKEEPER_DATA_DIR": "/no/such", "GATEKEEPER_DATABASE_URL": "sqlite:////no/such/a.db"},
            "serve",
        )
        said = second.communicate(timeout=60)[1].splitlines()
        port = environment["GATEKEEPER_PORT"]
        assert before is None and second.returncode == 3 and "CONFIG_PORT" in said[-1] and f"port {port}" in said[-1]
        assert "GATEKEEPER_PORT" in said[-1] and len(said) == 1, "one line, and nothing was opened"
        second = gatekeeper(environment | {"GATEKEEPER_PORT": free_port()}, "serve")
        said = second.communicate(timeout=60)[1]
        assert second.returncode == 3 and "CONFIG_DATA_DIR" in said
        for _ in range(3):
            httpx.get(f"{environment['GATEKEEPER_BASE_URL']}/readyz")
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=30)[1]
        assert log.count("Context impl") <= 1, "only the migration at the start: readiness logs nothing"
        # uvicorn hands the signal on once everything is closed.
        assert process.returncode in (0, -signal.SIGTERM)
    with serving(environment):
        pass


@pytest.mark.parametrize(
    ("arguments", "changes", "status", "said"),
    [
        (["serve"], {"WEBHOOK_SECRET": "short"}, 3, "CONFIG_WEBHOOK_SECRET"),
        (["serve"], {"PORT": "none"}, 3, "CONFIG_PORT"),
        (["serve"], {"POLICY_SET": "nothing"}, 3, "CONFIG_POLICY_SET"),
        (["worker"], {}, 3, "CONFIG_BROKER_URL"),
        (["worker", "--concurrency", "0"], {}, 64, "--concurrency"),
        (["worker", "--target", "abacus"], {"BROKER_URL": "redis://127.0.0.1:1/0"}, 64, "expected one of"),
        (["serve", "now"], {}, 64, "unexpected extra argument"),
    ],
)
def test_what_cannot_start_says_why(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], changes: dict[str, str], status: int, said: str,
) -> None:  # fmt: skip
    assert main(["migrate"]) == 0
    for name, value in changes.items():
        monkeypatch.setenv(f"GATEKEEPER_{name}", value)
    capsys.readouterr()
    assert main(arguments) == status
    assert said in capsys.readouterr().err


def test_migrate_says_what_it_did_and_then_that_nothing_is_left(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out.startswith("applied 0001")
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["decisions", "acme/kernels#1"],
        ["retry", "acme/kernels#1"],
        ["approve", "acme/kernels#1", "--head", "a" * 40, "--by", "mira"],
        ["withdraw", "acme/kernels#1", "sha256:1", "--by", "mira", "--reason", "no"],
        ["worker"],
    ],
)
def test_a_command_about_what_is_stored_makes_no_database(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    arguments: list[str],
) -> None:  # fmt: skip
    if arguments == ["worker"]:
        monkeypatch.setenv("GATEKEEPER_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEKEEPER_DATABASE_URL", "sqlite:///var/gatekeeper.db")
    assert main(arguments) == 3
    said = capsys.readouterr().err
    assert (
        "CONFIG_DATABASE" in said
        and str(tmp_path / "var" / "gatekeeper.db") in said
        and "GATEKEEPER_DATABASE_URL" in said
    )
    assert list(tmp_path.iterdir()) == []


def test_a_command_about_what_is_stored_does_not_migrate(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "gatekeeper.db").touch()
    assert main(["decisions", "acme/kernels#1"]) == 3
    assert "CONFIG_MIGRATION" in capsys.readouterr().err and (tmp_path / "gatekeeper.db").read_bytes()[:1] in (
        b"",
        b"S",
    )
    assert main(["migrate"]) == 0


def test_help_names_every_command_and_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in ("approve", "decisions", "migrate", "reset-budget", "retry", "serve", "waive", "withdraw", "worker"):
        assert f"\n  {command} " in shown
    assert main(["worker", "--help"]) == 0
    assert "--probes / --no-probes" in capsys.readouterr().out
