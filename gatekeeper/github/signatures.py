"""Who sent a delivery: HMAC-SHA256 over the raw bytes, as GitHub signs them.

Only ``X-Hub-Signature-256`` counts. The SHA-1 header is never read, so a right SHA-1 beside a wrong SHA-256 proves nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from gatekeeper.domain.errors import ConfigurationError, Rejected

MINIMUM_SECRET_BYTES = 32
"""A shorter secret could be guessed offline from one delivery that an attacker has seen."""

_FORM = re.compile(rb"sha256=([0-9a-f]{64})")


def sign(secret: bytes, body: bytes) -> str:
    """Return the value of ``X-Hub-Signature-256`` for these raw bytes."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def check_secrets(secrets: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the webhook secrets of one scope, newest first, or refuse to start.

    Raises:
        ConfigurationError: ``CONFIG_WEBHOOK_SECRET`` for no secret, more than two, or one shorter than 32 bytes.
    """
    if not 1 <= len(secrets) <= 2:
        raise ConfigurationError(
            "the webhook secret is not set as it should be",
            code="CONFIG_WEBHOOK_SECRET", expected="one secret, or two while it is rotated", found=f"{len(secrets)} secrets",
        )  # fmt: skip
    for secret in secrets:
        if len(secret.strip()) < MINIMUM_SECRET_BYTES:
            raise ConfigurationError(
                "the webhook secret is too short to protect anything",
                code="CONFIG_WEBHOOK_SECRET",
                expected=f"at least {MINIMUM_SECRET_BYTES} bytes",
                found=f"{len(secret.strip())} bytes",
            )
    return tuple(secrets)


def read_signature(values: Sequence[bytes]) -> bytes:
    """Return the hexadecimal digest from the raw values of the signature header.

    Raises:
        Rejected: ``HOOK_SIGNATURE`` if the header is absent or has another form, ``HOOK_HEADERS`` if it is repeated: two
            readers of a repeated header may each take another one.
    """
    if len(values) > 1:
        raise Rejected("the signature header is repeated", code="HOOK_HEADERS", expected="one", found=str(len(values)))
    match = _FORM.fullmatch(values[0]) if values else None
    if match is None:
        raise Rejected("the delivery is not signed as it should be", code="HOOK_SIGNATURE")
    return match.group(1)


def verify_signature(claimed: bytes, body: bytes, secrets: Sequence[bytes]) -> None:
    """Check a digest from :func:`read_signature` against the raw body with every accepted secret.

    Raises:
        Rejected: ``HOOK_SIGNATURE`` if none fits.
    """
    fitting_scopes(claimed, body, {"": secrets})


def fitting_scopes(claimed: bytes, body: bytes, secrets: Mapping[str, Sequence[bytes]]) -> frozenset[str]:
    """Return the names under which a secret is kept that made this digest of the raw body.

    All secrets are always tried, so that the time taken does not tell which one fitted.

    Raises:
        Rejected: ``HOOK_SIGNATURE`` if none fits.
    """
    # A list inside `any`: a generator would stop at the first secret that fits.
    fitting = frozenset(scope for scope, kept in secrets.items() if any([_fits(claimed, body, one) for one in kept]))
    if not fitting:
        raise Rejected("the delivery is not signed as it should be", code="HOOK_SIGNATURE")
    return fitting


def _fits(claimed: bytes, body: bytes, secret: bytes) -> bool:
    wanted = hmac.new(secret, body, hashlib.sha256).hexdigest().encode("ascii")
    return hmac.compare_digest(wanted, claimed)
