"""Settings, read once from the environment (prefix ``GATEKEEPER_``). Only ``bootstrap`` imports this module."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """All that an operator may choose. Which mode this is follows from ``database_url`` and ``broker_url`` alone."""

    model_config = SettingsConfigDict(env_prefix="GATEKEEPER_", frozen=True, extra="forbid")

    database_url: str = Field(
        default="sqlite:///var/gatekeeper.db", description="sqlite:///FILE or postgresql://USER@HOST/NAME"
    )
    broker_url: SecretStr | None = Field(
        default=None, description="redis://... selects Celery workers; unset, the web process does the work itself"
    )
    data_dir: Path = Field(default=Path("var"), description="directory of the bare mirrors and of the process lock")
    webhook_secret: SecretStr = Field(default=SecretStr(""), description="secret of the webhook, at least 32 bytes")
    previous_webhook_secret: SecretStr | None = Field(
        default=None, description="the secret before, still accepted while it is being rotated"
    )
    webhook_secrets: dict[str, tuple[SecretStr, ...]] = Field(
        default={},
        description="JSON object of secrets by OWNER/NAME, OWNER/* or installation:ID; each a list of one, or two while rotated",
    )
    host: str = Field(default="127.0.0.1", description="address that `gatekeeper serve` listens on")
    port: int = Field(default=8000, ge=1, le=65535, description="port that `gatekeeper serve` listens on")
    base_url: str = Field(
        default="http://127.0.0.1:8000",
        pattern=r"^https?://[^/?#]+/?$",
        description="address that people reach the pages at",
    )
    github_app: str = Field(
        default="",
        description="client id or number of the GitHub App; empty: no API, verdicts go to log and pages only",
    )
    github_private_key_file: Path | None = Field(
        default=None, description="file with the App's private key as GitHub generates it (PEM)"
    )
    github_private_key: SecretStr | None = Field(default=None, description="the private key itself, instead of a file")
    github_api_url: str = Field(
        default="https://api.github.com", description="REST API; of an Enterprise Server https://HOST/api/v3"
    )
    git_base_url: str = Field(
        default="https://github.com", description="the only place that repositories are fetched from"
    )
    policy_set: str = Field(default="default", description="policy set for repositories that name none")
    allowed_repositories: frozenset[str] = Field(
        default=frozenset(), description="JSON list of OWNER/NAME that are served; empty: all that have a secret"
    )
    allowed_installations: frozenset[int] = Field(
        default=frozenset(), description="JSON list of GitHub App installation ids that are served; empty: all"
    )
    trusted_authors: frozenset[str] = Field(
        default=frozenset(), description="JSON list of logins whose code may run in the jail without an approval"
    )
    coalesce_seconds: float = Field(default=0, ge=0, le=600, description="how long an intake waits for further pushes")
    repository_deliveries: int = Field(default=300, ge=1, description="deliveries of one repository in a minute")
    sender_deliveries: int = Field(
        default=120, ge=1, description="deliveries in a minute that one account causes in one"
    )
    repository_delivery_bytes: int = Field(
        default=128 * 1024 * 1024, ge=1, description="bytes of delivery bodies of one repository in a minute"
    )
    repository_intakes: int = Field(
        default=500, ge=1, description="pull requests of one repository that wait to be read"
    )
    author_intakes: int = Field(default=50, ge=1, description="of these, how many may be one author's")
    delivery_days: int = Field(
        default=30, ge=8, le=3650, description="days that deliveries are kept; GitHub sends again for up to seven"
    )
    documentation: bool | None = Field(
        default=None, description="whether /docs and /openapi.json are served; unset: only without a broker"
    )
    worker_threads: int = Field(default=2, ge=1, le=64, description="threads of the embedded worker, races not counted")
    race_slots: int = Field(default=1, ge=1, le=16, description="races that the embedded worker runs at the same time")
    probe_seconds: int = Field(default=300, ge=5, description="longest time that a probe may take")
    lease_seconds: float = Field(default=60, ge=1, description="how long a silent worker keeps a job")
    reconcile_seconds: float = Field(default=60, ge=0.1, description="how often lost work is looked for")
    stop_seconds: float = Field(default=20, ge=0, description="how long a stop waits for jobs that are being worked on")
    log_format: Literal["json", "plain"] = Field(default="json", description="form of the log lines on standard error")

    @field_validator("broker_url")
    @classmethod
    def _broker_is_redis(cls, value: SecretStr | None) -> SecretStr | None:
        # Celery takes a bare word for the host of an AMQP server, and would then look for it in silence.
        if value is not None and not value.get_secret_value().startswith(("redis://", "rediss://", "redis+socket://")):
            raise ValueError("expected redis://HOST:PORT/NUMBER; nothing else is tested")
        return value
