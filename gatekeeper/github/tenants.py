"""Who may speak for which repository: secrets by scope, and the repositories and installations that are served at all.

A scope is ``OWNER/NAME`` (one repository), ``OWNER/*`` (all of an owner) or ``installation:ID``. Beside them there may be one
secret for every repository that no scope covers. A right signature is not enough: it must be made with a secret of a scope
that covers what the body names, so that whoever knows one tenant's secret cannot speak for another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gatekeeper.domain.errors import ConfigurationError, Rejected
from gatekeeper.github.signatures import check_secrets, fitting_scopes

EVERYWHERE = "*"
"""The scope of the secret for all repositories that have none of their own."""
_SCOPE = re.compile(r"installation:[1-9][0-9]{0,17}|[A-Za-z0-9_.-]{1,100}/([A-Za-z0-9_.-]{1,100}|\*)")


@dataclass(frozen=True)
class Tenant:
    """A repository as a body names it or as it was known before: its name and, for a GitHub App, its installation."""

    full_name: str
    installation_id: int | None

    def scopes(self) -> frozenset[str]:
        """Return every scope that covers this repository, lower-case."""
        name = self.full_name.lower()
        return frozenset({name, f"{name.split('/')[0]}/*", f"installation:{self.installation_id}"})


@dataclass(frozen=True)
class Keyring:
    """The secrets by scope (lower-case; :data:`EVERYWHERE` for the rest), and what is served: empty sets mean everything."""

    secrets: Mapping[str, tuple[bytes, ...]] = field(repr=False)
    repositories: frozenset[str] = frozenset()
    installations: frozenset[int] = frozenset()

    def signers(self, claimed: bytes, body: bytes) -> frozenset[str]:
        """Return the scopes whose secret signed these raw bytes.

        Raises:
            Rejected: ``HOOK_SIGNATURE`` if there is none.
        """
        return fitting_scopes(claimed, body, self.secrets)

    def demand(self, signers: frozenset[str], named: Tenant, known: Tenant | None) -> None:
        """Refuse a delivery that its signer may not send.

        Args:
            signers: scopes whose secret signed the delivery.
            named: the repository as the body names it.
            known: what is stored under the repository id of the body, if anything: a body must not give somebody else's
                repository another name.

        Raises:
            Rejected: ``HOOK_REPO`` if the repository or its installation is not served here, or the secret is not theirs.
        """
        if self.repositories and named.full_name.lower() not in self.repositories:
            raise _refused("this installation does not serve that repository", "a repository that is served", named)
        if self.installations and named.installation_id not in self.installations:
            raise _refused("this installation does not serve that GitHub App installation", "a served one", named)
        if not signers & self._speakers(named):
            raise _refused(
                "the secret belongs to another repository", "a secret of the repository that is named", named
            )
        if known is not None:
            # A former name that nobody may speak for any more (it was renamed, and the settings follow) holds nobody off.
            speakers = self._speakers(known)
            if speakers and not signers & speakers:
                raise _refused("that repository id belongs to another name", "a secret of both names", named)

    def _speakers(self, tenant: Tenant) -> frozenset[str]:
        """The scopes that may speak for a repository: its own ones if there are any, else the one for everything else."""
        own = tenant.scopes() & set(self.secrets)
        return own or frozenset({EVERYWHERE}) & set(self.secrets)


def make_keyring(
    everywhere: Sequence[bytes],
    scoped: Mapping[str, Sequence[bytes]] | None = None,
    *,
    repositories: Collection[str] = (),
    installations: Collection[int] = (),
) -> Keyring:
    """Check the secrets and put them in order; each scope has one, or two while it is rotated, newest first.

    Raises:
        ConfigurationError: ``CONFIG_WEBHOOK_SECRET`` if there is no secret at all or one is too short,
            ``CONFIG_WEBHOOK_SECRETS`` for a scope of another form.
    """
    secrets: dict[str, tuple[bytes, ...]] = {}
    for scope, kept in (scoped or {}).items():
        if not _SCOPE.fullmatch(scope) or scope.lower() in secrets:
            raise ConfigurationError(
                "a webhook secret is kept under a name that is no scope",
                code="CONFIG_WEBHOOK_SECRETS", expected="OWNER/NAME, OWNER/* or installation:ID, each once", found=scope[:120],
            )  # fmt: skip
        secrets[scope.lower()] = check_secrets(kept)
    if everywhere or not secrets:
        secrets[EVERYWHERE] = check_secrets(everywhere)
    return Keyring(secrets, frozenset(name.lower() for name in repositories), frozenset(installations))


def _refused(message: str, expected: str, named: Tenant) -> Rejected:
    installation = f", installation {named.installation_id}" if named.installation_id is not None else ""
    return Rejected(message, code="HOOK_REPO", expected=expected, found=f"{named.full_name}{installation}")
