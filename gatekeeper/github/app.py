"""The GitHub App's identity: a signed claim of its own, and a token for each repository that it is installed on.

A token is asked for one repository and for no more permissions than are used, so that no request can touch another repository
of the same installation, whatever its path says. GitHub's documentation: "Generating a JSON Web Token (JWT) for a GitHub App",
"Generating an installation access token for a GitHub App".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from github.Auth import AppAuth, Auth
from github.Requester import Requester

from gatekeeper.domain.errors import ConfigurationError, Conflict, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.github.client import Client
from gatekeeper.github.faults import Missing, Refused
from gatekeeper.github.meter import APP, Meter
from gatekeeper.github.pace import Limits, Pace

API_VERSION = "2022-11-28"
PERMISSIONS = {"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "read"}
"""All that is asked for in a token. The App's manifest in ``docs/install.md`` grants the same."""
RENEW_BEFORE = 300.0
"""Seconds before its end at which a token is replaced; GitHub's tokens last an hour."""
INSTALLED, NOT_INSTALLED = 3600.0, 120.0
"""Seconds for which it is believed that a repository belongs to an installation, or to none."""
TIMEOUT = 15
UNLIMITED = 1_000_000
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Identity:
    """Who the App is. ``app``: its client id or number. ``private_key``: PEM. ``api_url``: where the REST API is."""

    app: str
    private_key: str = field(repr=False)
    api_url: str = "https://api.github.com"

    def __post_init__(self) -> None:
        """Refuse what could not work, or would send the key's work in the clear.

        Raises:
            ConfigurationError: ``CONFIG_GITHUB_APP``, ``CONFIG_GITHUB_PRIVATE_KEY`` or ``CONFIG_GITHUB_API_URL``.
        """
        if not self.app.strip() or not self.app.isascii() or not self.app.isalnum():
            raise ConfigurationError(
                "the GitHub App is not named as it should be",
                code="CONFIG_GITHUB_APP", expected="its client id or its number", found=repr(self.app[:40]),
            )  # fmt: skip
        try:
            key = load_pem_private_key(self.private_key.encode(), password=None)
        except (ValueError, TypeError) as error:
            raise _wrong_key(type(error).__name__) from None
        if not isinstance(key, RSAPrivateKey):
            raise _wrong_key(type(key).__name__)
        url = urlsplit(self.api_url)
        plain = url.scheme == "http" and url.hostname in LOOPBACK
        if not (url.scheme == "https" or plain) or not url.hostname or url.query or url.fragment or url.username:
            raise ConfigurationError(
                "the address of GitHub's API is not as it should be", code="CONFIG_GITHUB_API_URL",
                expected="https://api.github.com, or https://HOST/api/v3 of an Enterprise Server", found=self.api_url[:200],
            )  # fmt: skip


@dataclass(frozen=True)
class _Token:
    text: str = field(repr=False)
    ends: float


class _RepositoryAuth(Auth):
    """PyGithub asks this for the token of each request."""

    def __init__(self, fetch: Callable[[], str]) -> None:
        self._fetch = fetch

    @property
    def token_type(self) -> str:
        return "Bearer"

    @property
    def token(self) -> str:
        return self._fetch()


class GithubApp:
    """Hands out a :class:`Client` for each repository; tokens and installations are looked up, cached and renewed here.

    Args:
        identity: who the App is.
        folder: where the manners of the installations are kept; shared by all processes.
        limits: how much may be asked.
        now: wall time in seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        identity: Identity,
        folder: Path,
        *,
        limits: Limits | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.meter = Meter()
        self._identity, self._folder, self._limits = identity, folder, limits
        self._now, self._sleep = now, sleep
        self._lock = threading.RLock()
        self._paces: dict[int, Pace] = {}
        self._tokens: dict[tuple[int, int], _Token] = {}
        self._installations: dict[int, tuple[int | None, float]] = {}
        self._clients: dict[tuple[int, int], Client] = {}
        self._number = int(identity.app) if identity.app.isdigit() else None
        self._own = Client(
            self._requester(AppAuth(identity.app, identity.private_key)), APP, self._pace(APP), self.meter
        )

    def number(self) -> int:
        """Return the App's number, by which its check runs are told from those of others; asked for once.

        Raises:
            Retryable: if GitHub does not answer, or with something else.
        """
        with self._lock:
            if self._number is None:
                told = self._own.get("/app")
                self._number = _integer(told, "id", "GET /app")
            return self._number

    def client(self, repository: RepositoryRef) -> Client:
        """Return a client that may see this repository and no other.

        Raises:
            Conflict: ``GITHUB_NOT_INSTALLED`` or ``GITHUB_SUSPENDED``.
            Retryable: if GitHub does not answer.
        """
        installation = self.installation(repository)
        with self._lock:
            key = (installation, repository.id)
            if key not in self._clients:
                auth = _RepositoryAuth(lambda: self._token(installation, repository))
                self._clients[key] = Client(
                    self._requester(auth), installation, self._pace(installation), self.meter,
                    lambda: self._forget(installation, repository),
                )  # fmt: skip
            return self._clients[key]

    def installation(self, repository: RepositoryRef) -> int:
        """Return the installation that a repository belongs to now; what a payload says is not asked.

        Raises:
            Conflict: ``GITHUB_NOT_INSTALLED`` or ``GITHUB_SUSPENDED``.
            Retryable: if GitHub does not answer.
        """
        with self._lock:
            known, until = self._installations.get(repository.id, (None, 0.0))
            if until > self._now():
                if known is None:
                    raise _not_installed(repository)
                return known
            try:
                told = self._own.get(f"/repos/{repository.full_name}/installation")
            except Missing:
                self._installations[repository.id] = (None, self._now() + NOT_INSTALLED)
                raise _not_installed(repository) from None
            if isinstance(told, dict) and told.get("suspended_at"):
                raise Conflict("the installation is suspended", code="GITHUB_SUSPENDED", found=repository.full_name)
            number = _integer(told, "id", "GET installation")
            self._installations[repository.id] = (number, self._now() + INSTALLED)
            return number

    def close(self) -> None:
        """Forget all tokens."""
        with self._lock:
            self._tokens.clear()
            self._clients.clear()

    def _token(self, installation: int, repository: RepositoryRef) -> str:
        key = (installation, repository.id)
        with self._lock:
            kept = self._tokens.get(key)
            if kept is None or kept.ends - RENEW_BEFORE <= self._now():
                kept = self._tokens[key] = self._new_token(installation, repository)
            return kept.text

    def _new_token(self, installation: int, repository: RepositoryRef) -> _Token:
        body = {"repository_ids": [repository.id], "permissions": PERMISSIONS}
        try:
            told = self._own.send("POST", f"/app/installations/{installation}/access_tokens", body)
        except (Missing, Refused) as error:
            # Uninstalled since, or taken out of the installation, or another repository took the name.
            self._installations.pop(repository.id, None)
            raise Conflict(
                "the App has no right to this repository (any more)", code="GITHUB_NOT_INSTALLED", found=str(error)
            ) from error
        except Retryable:
            self._installations.pop(repository.id, None)  # a suspended installation is told apart when it is looked up
            raise
        text = told.get("token") if isinstance(told, dict) else None
        ends = _moment(told.get("expires_at")) if isinstance(told, dict) else None
        if not isinstance(text, str) or not text or ends is None:
            raise Retryable("GitHub's answer holds no token", code="GITHUB_ANSWER", found="POST access_tokens")
        return _Token(text, ends)

    def _forget(self, installation: int, repository: RepositoryRef) -> None:
        with self._lock:
            self._tokens.pop((installation, repository.id), None)

    def _pace(self, installation: int) -> Pace:
        if installation not in self._paces:
            limits = self._limits or Limits()
            if installation == APP:  # tokens are no content; only the points count
                limits = replace(limits, between_writes=0, writes_a_minute=UNLIMITED, writes_an_hour=UNLIMITED)
            self._paces[installation] = Pace(self._folder, installation, limits, now=self._now, sleep=self._sleep)
        return self._paces[installation]

    def _requester(self, auth: Auth) -> Requester:
        # PyGithub neither retries nor waits here: a job that cannot be done now goes back to the queue instead of sleeping.
        return Requester(
            auth=auth, base_url=self._identity.api_url.rstrip("/"), timeout=TIMEOUT, user_agent="gatekeeper", per_page=100,
            verify=True, retry=None, pool_size=None, api_version=API_VERSION,
        )  # fmt: skip


def _not_installed(repository: RepositoryRef) -> Conflict:
    return Conflict(
        "the App is not installed on this repository", code="GITHUB_NOT_INSTALLED",
        expected="an installation as in docs/install.md", found=repository.full_name,
    )  # fmt: skip


def _wrong_key(found: str) -> ConfigurationError:
    return ConfigurationError(
        "the GitHub App's private key cannot be used",
        code="CONFIG_GITHUB_PRIVATE_KEY", expected="an RSA key in PEM, as GitHub generates it, without a password", found=found,
    )  # fmt: skip


def _integer(told: Any, name: str, asked: str) -> int:
    value = told.get(name) if isinstance(told, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise Retryable("GitHub's answer is not what it documents", code="GITHUB_ANSWER", found=f"{asked}: no {name}")
    return value


def _moment(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None
