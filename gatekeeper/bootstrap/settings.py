"""What the environment says: settings read, secrets and quotas made of them, and names that are no settings."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping

import structlog
from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

from gatekeeper import logs
from gatekeeper.config import Settings
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.github.signatures import MINIMUM_SECRET_BYTES
from gatekeeper.github.tenants import Keyring, make_keyring
from gatekeeper.services.deliveries import Quotas

LOG = structlog.get_logger(__name__)
PREFIX = "GATEKEEPER_"


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        ConfigurationError: ``CONFIG_<FIELD>`` for the first value that is wrong; the value itself is repeated only where it cannot
            be a secret.
    """
    try:
        return Settings()
    except SettingsError as error:  # a list or an object that is not JSON; the error tells its field in its text only
        name = next((name for name in Settings.model_fields if f'"{name}"' in str(error)), "settings")
        described = Settings.model_fields[name].description if name in Settings.model_fields else ""
        raise ConfigurationError(
            f"{PREFIX}{name.upper()} is wrong: it cannot be read", code=f"CONFIG_{name.upper()}",
            expected=f"JSON: {described}", found="something else",
        ) from None  # fmt: skip
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        where = ".".join([name.upper(), *(str(part) for part in first["loc"][1:])])
        field = Settings.model_fields.get(name)
        open_value = field is not None and (field.annotation in (int, float) or first["type"] == "literal_error")
        raise ConfigurationError(
            f"{PREFIX}{where} is wrong", code=f"CONFIG_{name.upper()}",
            expected=_expected(field, first["type"], first["msg"]),
            found=repr(first["input"])[:100] if open_value else "something else",
        ) from None  # fmt: skip


def _expected(field: FieldInfo | None, kind: str, message: str) -> str:
    """Return in words what a setting must be: its form, and what it is for."""
    form = message.removeprefix("Value error, ").removeprefix("Input should be ").removeprefix("expected ")
    if field is None:
        return form
    if field.annotation in (int, float):
        least = next((limit.ge for limit in field.metadata if isinstance(limit, Ge)), None)
        most = next((limit.le for limit in field.metadata if isinstance(limit, Le)), None)
        form = "a whole number" if field.annotation is int else "a number"
        form += f" from {least} to {most}" if most is not None else f" of at least {least}"
    elif kind == "string_pattern_mismatch":
        form = "http:// or https:// with a host, and a port where it has one, without a path"
    return f"{form}: {field.description}"


def keyring(settings: Settings) -> Keyring:
    """Return who may speak for which repository.

    Raises:
        ConfigurationError: ``CONFIG_WEBHOOK_SECRET`` if no secret is set or one is shorter than 32 bytes,
            ``CONFIG_WEBHOOK_SECRETS`` if one is kept under something that is no scope.
    """
    everywhere = {
        "WEBHOOK_SECRET": settings.webhook_secret,
        "PREVIOUS_WEBHOOK_SECRET": settings.previous_webhook_secret,
    }
    given = {name: secret.get_secret_value().encode() for name, secret in everywhere.items() if secret is not None}
    scoped = {
        scope: tuple(secret.get_secret_value().encode() for secret in secrets)
        for scope, secrets in settings.webhook_secrets.items()
    }
    if scoped and list(given.values()) == [b""]:
        given = {}
    for name, secret in given.items():
        _demand_long(name, secret)
    for scope, secrets in scoped.items():
        name = f"WEBHOOK_SECRETS, for {scope[:120]},"
        if not 1 <= len(secrets) <= 2:
            raise ConfigurationError(
                f"{PREFIX}{name} is not as it should be", code="CONFIG_WEBHOOK_SECRET",
                expected="a list of one secret, or of two while it is rotated", found=f"{len(secrets)} secrets",
            )  # fmt: skip
        for secret in secrets:
            _demand_long(name, secret)
    return make_keyring(
        tuple(given.values()),
        scoped,
        repositories=settings.allowed_repositories,
        installations=settings.allowed_installations,
    )


def _demand_long(name: str, secret: bytes) -> None:
    length = len(secret.strip())
    if length < MINIMUM_SECRET_BYTES:
        raise ConfigurationError(
            f"{PREFIX}{name} is {'too short to protect anything' if length else 'not set'}", code="CONFIG_WEBHOOK_SECRET",
            expected=f"at least {MINIMUM_SECRET_BYTES} bytes, such as `openssl rand -hex 32` prints, and the same at GitHub",
            found=f"{length} bytes" if length else "nothing",
        )  # fmt: skip


def quotas(settings: Settings) -> Quotas:
    """Return how much one repository, sender or author may ask for."""
    return Quotas(
        repository_deliveries=settings.repository_deliveries,
        sender_deliveries=settings.sender_deliveries,
        repository_bytes=settings.repository_delivery_bytes,
        repository_intakes=settings.repository_intakes,
        author_intakes=settings.author_intakes,
    )


def documented(settings: Settings) -> bool:
    """Return whether the API's description is open to all: as the setting says, and else only in the embedded mode."""
    return settings.broker_url is None if settings.documentation is None else settings.documentation


def configure_logs(settings: Settings, *, quiet: bool = False) -> None:
    """Set up structured logs as the settings ask; ``quiet`` leaves out what is no warning, for commands that a person types."""
    logs.configure(as_json=settings.log_format == "json", level=logging.WARNING if quiet else logging.INFO)
    for name in unknown_settings(os.environ):
        LOG.warning("settings.unknown", setting=name, meant=nearest_setting(name))


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that look like settings and are none: a misspelt one would otherwise be passed over in silence."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    return sorted(name for name in environment if name.upper().startswith(PREFIX) and name.upper() not in known)


def nearest_setting(name: str) -> str | None:
    """Return the setting that is spelt most like ``name``, or None if none is. The prefix, which all have, makes nothing alike."""
    known = [field.upper() for field in Settings.model_fields]
    close = difflib.get_close_matches(name.upper().removeprefix(PREFIX), known, n=1, cutoff=0.8)
    return f"{PREFIX}{close[0]}" if close else None
