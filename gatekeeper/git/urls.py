"""Where repositories are fetched from: one address that the operator set, plus a validated name. Never from a payload."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from gatekeeper.domain.errors import ConfigurationError, Rejected

_HOST = re.compile(r"\A(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])\Z")
_LOOPBACK = frozenset({"localhost", "127.0.0.1"})
_NAME = re.compile(r"\A[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}\Z")
_PATH = re.compile(r"\A(?:/[A-Za-z0-9_.+@=,~ -]+)+\Z")
_EXPECTED = "https://HOST, http://localhost:PORT or file:///ABSOLUTE/PATH, without user, query or fragment"


@dataclass(frozen=True)
class Remote:
    """A checked base address. ``scheme`` is the only transport that git may use for it."""

    scheme: str
    base: str

    def url(self, full_name: str) -> str:
        """Return the clone address of ``owner/name``.

        Raises:
            Rejected: ``CI_URL`` for anything but two plain names.
        """
        parts = full_name.split("/")
        plain = len(parts) == 2 and all(_NAME.match(part) and part.strip(".") for part in parts)
        if not plain or full_name.lower().endswith(".git"):
            raise Rejected("not a repository name", code="CI_URL", expected="OWNER/NAME", found=repr(full_name[:120]))
        return f"{self.base}/{full_name}.git"


def remote(base_url: str) -> Remote:
    """Check the operator's ``git_base_url``.

    Raises:
        ConfigurationError: ``CI_URL`` unless it is https to a DNS name, http to this machine, or a file root.
    """

    def refuse() -> ConfigurationError:
        return ConfigurationError(
            "git_base_url is not allowed", code="CI_URL", expected=_EXPECTED, found=repr(base_url[:120])
        )

    if not base_url.isascii() or not base_url.isprintable() or "\\" in base_url or "%" in base_url:
        raise refuse()
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        raise refuse() from None
    if "?" in base_url or "#" in base_url or "@" in parts.netloc or not base_url.startswith(f"{parts.scheme}://"):
        raise refuse()
    path = parts.path.rstrip("/")
    if parts.scheme == "file":
        if parts.netloc or not _PATH.match(path) or {".", ".."} & set(path.split("/")):
            raise refuse()
        return Remote("file", f"file://{path}")
    host = parts.hostname or ""
    allowed = bool(_HOST.match(host)) if parts.scheme == "https" else parts.scheme == "http" and host in _LOOPBACK
    if not allowed or path or parts.netloc != (f"{host}:{port}" if port else host):
        raise refuse()
    return Remote(parts.scheme, f"{parts.scheme}://{parts.netloc}")


def branch_ref(name: str) -> str:
    """Return ``refs/heads/<name>`` for a valid branch name.

    The rules are those of ``git check-ref-format``, and no component may start with a dash.

    Raises:
        Rejected: ``CI_REF``.
    """
    parts = name.split("/")
    bad = (
        not name
        or len(name.encode("utf-8", "surrogatepass")) > 255
        or not name.isprintable()
        or any(token in name for token in ("..", "@{", "\\", " ", "~", "^", ":", "?", "*", "["))
        or name.endswith(".")
        or name == "@"
        or any(not part or part.startswith((".", "-")) or part.endswith(".lock") for part in parts)
    )
    if bad:
        raise Rejected(
            "not a branch name",
            code="CI_REF",
            expected="a name that git check-ref-format accepts",
            found=repr(name[:120]),
        )
    return f"refs/heads/{name}"


def pull_ref(number: int) -> str:
    """Return ``refs/pull/<number>/head``.

    Raises:
        Rejected: ``CI_REF`` unless ``number`` is a positive integer.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 10**10:
        raise Rejected("not a pull request number", code="CI_REF", expected="a positive integer", found=repr(number))
    return f"refs/pull/{number}/head"
