"""What the environment says: settings read, secrets and quotas made of them, and names that are no settings."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping

import structlog
from pydantic import ValidationError
from pydantic_settings import SettingsError

from gatekeeper import logs
from gatekeeper.config import Settings
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.github.tenants import Keyring, make_keyring
from gatekeeper.services.deliveries import Quotas

LOG = structlog.get_logger(__name__)
PREFIX = "GATEKEEPER_"


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        ConfigurationError: ``CONFIG_<FIELD>`` for the first value that is wrong; the value itself is not repeated.
    """
    try:
        return Settings()
    except SettingsError as error:  # a list or an object that is not JSON; the error tells its field in its text only
        field = next((name for name in Settings.model_fields if f'"{name}"' in str(error)), "settings").upper()
        raise ConfigurationError(
            f"GATEKEEPER_{field} is wrong: it cannot be read", code=f"CONFIG_{field}", expected="JSON",
            found="something else",
        ) from None  # fmt: skip
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]).upper() or "SETTINGS"
        raise ConfigurationError(
            f"GATEKEEPER_{field} is wrong: {first['msg']}", code=f"CONFIG_{field.split('.')[0]}"
        ) from None


def keyring(settings: Settings) -> Keyring:
    """Return who may speak for which repository.

    Raises:
        ConfigurationError: ``CONFIG_WEBHOOK_SECRET`` if no secret is set or one is shorter than 32 bytes,
            ``CONFIG_WEBHOOK_SECRETS`` if one is kept under something that is no scope.
    """
    everywhere = [settings.webhook_secret, settings.previous_webhook_secret]
    given = [secret.get_secret_value().encode() for secret in everywhere if secret is not None]
    scoped = {
        scope: tuple(secret.get_secret_value().encode() for secret in secrets)
        for scope, secrets in settings.webhook_secrets.items()
    }
    return make_keyring(
        () if scoped and given == [b""] else given,
        scoped,
        repositories=settings.allowed_repositories,
        installations=settings.allowed_installations,
    )


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
    """Return the setting that is spelt most like ``name``, or None if none is."""
    known = [f"{PREFIX}{field.upper()}" for field in Settings.model_fields]
    return next(iter(difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)), None)
