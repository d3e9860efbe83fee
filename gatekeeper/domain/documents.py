"""Immutable documents named by the digest of their canonical JSON (RFC 8785)."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import rfc8785
from pydantic import BaseModel, ConfigDict, StringConstraints

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
GitId = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]


class Value(BaseModel):
    """A frozen part of a document. Unknown fields are refused, and NaN or infinity cannot be stored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64")


class Document(Value):
    """A fact or a verdict: stored once, never changed, named by :meth:`digest`."""

    def canonical_json(self) -> bytes:
        """Return the RFC 8785 bytes of this document: the same value gives the same bytes on every machine."""
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """Return ``sha256:<hex>`` of :meth:`canonical_json`."""
        return digest_bytes(self.canonical_json())


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 serialisation of a JSON value.

    Raises:
        rfc8785.CanonicalizationError: for NaN, infinity, integers beyond 2**53 or lone surrogates.
    """
    return rfc8785.dumps(value)


def digest_bytes(data: bytes) -> str:
    """Return ``sha256:<hex>`` of raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def shown_path(raw: bytes) -> str:
    """Return a printable, reversible spelling of a raw git path: bytes that are not printable ASCII become ``\\xNN``.

    Two different byte strings never share a spelling, because the backslash itself is escaped too.
    """
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in raw)


def raw_path(shown: str) -> bytes:
    """Return the raw git path that :func:`shown_path` spells as ``shown``.

    Raises:
        ValueError: if ``shown`` is no such spelling: a lone backslash, or a character that is not printable ASCII.
    """
    literal, *escaped = shown.split("\\x")
    parts = [literal.encode("ascii")]
    for part in escaped:
        parts.append(bytes.fromhex(part[:2]))
        parts.append(part[2:].encode("ascii"))
    raw = b"".join(parts)
    if shown_path(raw) != shown:
        raise ValueError(f"expected a path as shown_path spells it; found {shown!r}")
    return raw
