"""What an operator gets wrong is told as that, names the setting, and neither a traceback nor a password is shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatekeeper import bootstrap
from gatekeeper.cli import main
from gatekeeper.domain.errors import GatekeeperError

PASSWORD = "hush-hush"


@pytest.fixture(autouse=True)
def _sound_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handlers = logging.getLogger().handlers[:]
    monkeypatch.setenv("GATEKEEPER_DATABASE_URL", f"sqlite:///{tmp_path / 'gatekeeper.db'}")
    monkeypatch.setenv("GATEKEEPER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GATEKEEPER_WEBHOOK_SECRET", "s" * 40)
    yield
    logging.getLogger().handlers[:] = handlers


@pytest.mark.parametrize("command", ["serve", "migrate"])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("DATABASE_URL", f"just-a-word-{PASSWORD}", "CONFIG_DATABASE: GATEKEEPER_DATABASE_URL is no URL"),
        (
            "DATABASE_URL",
            f"postgresql://me:{PASSWORD}@host:port/name",
            "CONFIG_DATABASE: GATEKEEPER_DATABASE_URL is no URL",
        ),
        (
            "DATABASE_URL",
            f"postgresql://me:{PASSWORD}@127.0.0.1:1/name",
            "STORE_UNREACHABLE: the database cannot be used",
        ),
        (
            "DATABASE_URL",
            "sqlite:////dev/null/a.db",
            "CONFIG_DATABASE: the folder of the file in GATEKEEPER_DATABASE_URL cannot be made",
        ),
        ("DATABASE_URL", "sqlite:///{folder}", "STORE_UNREACHABLE: the database cannot be used"),
        ("DATABASE_URL", "sqlite:///{folder}/text", "STORE_UNREACHABLE: the database cannot be used"),
        (
            "TRUSTED_AUTHORS",
            "ada",
            "CONFIG_TRUSTED_AUTHORS: GATEKEEPER_TRUSTED_AUTHORS is wrong: it cannot be read (expected JSON",
        ),
        ("WEBHOOK_SECRETS", f"acme/*={PASSWORD}", "CONFIG_WEBHOOK_SECRETS: GATEKEEPER_WEBHOOK_SECRETS is wrong"),
        (
            "BROKER_URL",
            f"a-host-{PASSWORD}",
            "CONFIG_BROKER_URL: GATEKEEPER_BROKER_URL is wrong (expected redis://",
        ),
        (
            "BROKER_URL",
            f"amqp://me:{PASSWORD}@host",
            "CONFIG_BROKER_URL: GATEKEEPER_BROKER_URL is wrong (expected redis://",
        ),
    ],
)
def test_a_wrong_setting_is_not_called_a_fault_of_gatekeeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: str, name: str, value: str, told: str,
) -> None:  # fmt: skip
    (tmp_path / "text").write_text("no database at all, but a file that is long enough to be looked into\n" * 20)
    monkeypatch.setenv(f"GATEKEEPER_{name}", value.replace("{folder}", str(tmp_path)))
    assert main([command]) == 3
    shown = capsys.readouterr().err
    assert told in shown
    assert PASSWORD not in shown and "Traceback" not in shown and "fault of gatekeeper" not in shown


def test_a_variable_that_is_no_setting_is_named_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEKEEPER_TRUSTED_AUTHOR", '["ada"]')
    monkeypatch.setenv("GATEKEEPER_WEATHER", "fine")
    assert main(["decisions", "acme/kernels#1"]) == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if "settings.unknown" in line]
    assert any("GATEKEEPER_TRUSTED_AUTHOR" in line and "GATEKEEPER_TRUSTED_AUTHORS" in line for line in lines)
    assert any("GATEKEEPER_WEATHER" in line and "null" in line for line in lines)
    assert '["ada"]' not in "".join(lines) and not any("GATEKEEPER_DATA_DIR" in line for line in lines)


def test_settings_are_known_by_their_names_in_any_case() -> None:
    environment = {"GATEKEEPER_PORT": "1", "gatekeeper_host": "h", "GATEKEEPER_HOSTS": "h", "HOME": "/"}
    assert bootstrap.unknown_settings(environment) == ["GATEKEEPER_HOSTS"]
    assert bootstrap.nearest_setting("GATEKEEPER_HOSTS") == "GATEKEEPER_HOST"
    for name in ("WEATHER", "FOO", "HOSTNAME"):
        assert bootstrap.nearest_setting(f"GATEKEEPER_{name}") is None, "the prefix makes nothing alike"


@pytest.mark.parametrize(
    ("expected", "found", "shown"),
    [
        ("", "", "A_CODE: it is so"),
        ("one", "", "A_CODE: it is so (expected one)"),
        ("", "two", "A_CODE: it is so (found two)"),
        ("one", "two", "A_CODE: it is so (expected one; found two)"),
    ],
)
def test_an_error_leaves_out_what_it_does_not_know(expected: str, found: str, shown: str) -> None:
    assert str(GatekeeperError("it is so", code="A_CODE", expected=expected, found=found)) == shown
