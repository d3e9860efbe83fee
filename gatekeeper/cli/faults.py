"""Errors and texts as a terminal gets them. Light on purpose: every start of the command line loads this."""

from __future__ import annotations

import os
from pathlib import Path

from gatekeeper.domain.errors import GatekeeperError


def from_system(error: OSError) -> GatekeeperError:
    """Return an error of the operating system (no permission, no space left) as one that says what was being touched."""
    where = f": {error.filename}" if error.filename else ""
    return GatekeeperError(f"{error.strerror or error}{where}", code="OS_ERROR")


def writable(file: Path) -> bool:
    """Return whether a file can be written: asked before what takes minutes, so that no result is lost after it."""
    return os.access(file if file.exists() else file.absolute().parent, os.W_OK)


def printable(text: str) -> str:
    """Spell out control characters: a terminal must not obey what a repository or a pull request wrote."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
