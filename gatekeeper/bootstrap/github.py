"""GitHub's part of a service: the App of the settings, where pull requests are looked up and where verdicts are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gatekeeper.config import Settings
from gatekeeper.context import Forge, Publisher
from gatekeeper.domain.errors import ConfigurationError
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.github.app import GithubApp, Identity
from gatekeeper.github.forge import GithubForge
from gatekeeper.github.recorded import RecordedForge
from gatekeeper.github.runs import CheckRuns
from gatekeeper.publishers.checks import ChecksPublisher
from gatekeeper.publishers.log import LogPublisher
from gatekeeper.publishers.page import PagePublisher
from gatekeeper.services import publish
from gatekeeper.store.pulls import Pull
from gatekeeper.store.unit_of_work import Store


def github_app(settings: Settings) -> GithubApp | None:
    """Return the GitHub App of the settings, or None if none is named.

    Raises:
        ConfigurationError: ``CONFIG_GITHUB_APP``, ``CONFIG_GITHUB_PRIVATE_KEY``, ``CONFIG_GITHUB_PRIVATE_KEY_FILE`` or
            ``CONFIG_GITHUB_API_URL``.
    """
    secret, file = settings.github_private_key, settings.github_private_key_file
    if not settings.github_app:
        if secret is not None or file is not None:
            raise ConfigurationError(
                "a private key is set and GATEKEEPER_GITHUB_APP is not", code="CONFIG_GITHUB_APP",
                expected="the App's client id or number", found="none",
            )  # fmt: skip
        return None
    if (secret is None) == (file is None):
        raise ConfigurationError(
            "the App of GATEKEEPER_GITHUB_APP has no private key, or two", code="CONFIG_GITHUB_PRIVATE_KEY",
            expected="GATEKEEPER_GITHUB_PRIVATE_KEY_FILE or GATEKEEPER_GITHUB_PRIVATE_KEY", found="none" if file is None else "both",
        )  # fmt: skip
    try:
        key = secret.get_secret_value() if secret is not None else (file or Path()).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "the file of GATEKEEPER_GITHUB_PRIVATE_KEY_FILE cannot be read", code="CONFIG_GITHUB_PRIVATE_KEY_FILE",
            expected="a readable file in PEM", found=f"{file}: {type(error).__name__}",
        ) from None  # fmt: skip
    # Many places that keep variables hold one line only: there the key's line ends are written out.
    identity = Identity(settings.github_app, key.replace("\\n", "\n"), settings.github_api_url)
    return GithubApp(identity, settings.data_dir / "github")


def outside(settings: Settings, store: Store, github: GithubApp | None) -> tuple[Forge, tuple[Publisher, ...]]:
    """Return where pull requests are looked up and where verdicts are shown."""
    page = PagePublisher(settings.base_url)
    if github is None:
        return RecordedForge(_recorded(store), settings.trusted_authors), (LogPublisher(), page)
    checks = ChecksPublisher(lambda repository: CheckRuns(github, repository), page.address)

    def seen(repository: RepositoryRef, number: int, head_sha: str, base_ref: str) -> None:
        publish.announce(store, checks.name, repository, number, head_sha, base_ref)

    return GithubForge(github, settings.trusted_authors, seen), (LogPublisher(), page, checks)


def _recorded(store: Store) -> Callable[[int, int], Pull | None]:
    def recorded(repository_id: int, number: int) -> Pull | None:
        with store.read() as uow:
            return uow.pull(repository_id, number)

    return recorded
