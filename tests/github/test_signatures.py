"""The signature check against the vector that GitHub publishes for it, and at its edges."""

from __future__ import annotations

import pytest

from gatekeeper.domain.errors import Rejected
from gatekeeper.github.signatures import read_signature, sign, verify_signature

# The example values of GitHub's page on validating webhook deliveries.
SECRET = b"It's a Secret to Everybody"
BODY = b"Hello, World!"
SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def test_the_published_vector() -> None:
    assert sign(SECRET, BODY) == SIGNATURE
    verify_signature(read_signature([SIGNATURE.encode()]), BODY, [SECRET])


@pytest.mark.parametrize("position", [7, 38, 70])
def test_one_changed_digit_is_refused(position: int) -> None:
    changed = SIGNATURE[:position] + ("0" if SIGNATURE[position] != "0" else "1") + SIGNATURE[position + 1 :]
    with pytest.raises(Rejected) as refused:
        verify_signature(read_signature([changed.encode()]), BODY, [SECRET])
    assert refused.value.code == "HOOK_SIGNATURE"


@pytest.mark.parametrize(
    "value", [b"", b"sha256=", SIGNATURE.upper().encode(), SIGNATURE.encode() + b"\n", b" " + SIGNATURE.encode()]
)
def test_only_one_form_is_read(value: bytes) -> None:
    with pytest.raises(Rejected):
        read_signature([value])


def test_no_secret_fits_nothing() -> None:
    with pytest.raises(Rejected):
        verify_signature(read_signature([sign(b"", BODY).encode()]), BODY, [])
