"""What an answer of GitHub, or the lack of one, means for the work that asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from github.Requester import Requester

from gatekeeper.domain.errors import Conflict, GatekeeperError, Postponed, Rejected, Retryable

LONGEST_FOUND = 500


@dataclass(frozen=True)
class Answer:
    """An answer of the API: status, headers with lower-case names, and the JSON value of the body (None for an empty one)."""

    status: int
    headers: Mapping[str, str]
    data: Any = None

    @property
    def message(self) -> str:
        """What GitHub says is wrong, with its first details; an empty text where it says nothing."""
        if not isinstance(self.data, dict):
            return ""
        details = self.data.get("errors")
        first = f" ({details})" if details else ""
        return f"{self.data.get('message', '')}{first}"[:LONGEST_FOUND]


class Throttled(Postponed):
    """A limit of GitHub, or of our own manners, is reached: ``GITHUB_LIMIT``. Nothing is sent for ``retry_after`` seconds."""

    def __init__(self, message: str, *, retry_after: float, found: str = "") -> None:
        super().__init__(message, code="GITHUB_LIMIT", expected=f"a pause of {retry_after:.0f} s", found=found)
        self.retry_after: float = retry_after


class Missing(Conflict):
    """GitHub has no such thing, or the App may not see it: ``GITHUB_MISSING``."""


class Refused(Rejected):
    """GitHub does not take what was sent (422, or 400): ``GITHUB_REFUSED``. Sent again as it is, it would be refused again."""


class Unauthorised(Retryable):
    """The token was not accepted (401): ``GITHUB_AUTHENTICATION``. It is dropped; the next try makes a new one."""


def is_limit(answer: Answer) -> bool:
    """Return whether an answer says that too much was asked.

    GitHub answers 429, or 403 with ``retry-after``, with no request left, or with one of three texts (REST rate limits). A
    plain 403 is a missing permission.
    """
    if answer.status == 429:
        return True
    if answer.status != 403:
        return False
    if "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0":
        return True
    said = answer.data.get("message") if isinstance(answer.data, dict) else None
    return Requester.isRateLimitError(said if isinstance(said, str) else "")


def fault_of(answer: Answer, asked: str) -> GatekeeperError | None:
    """Return what an answer means that is no limit; None for a good one.

    Args:
        answer: what GitHub said.
        asked: verb and path, for the log and for people.
    """
    status, request_id = answer.status, answer.headers.get("x-github-request-id", "none")
    if 200 <= status < 300 or status == 304:
        return None
    found = f"{asked}: {status} {answer.message}".strip() + f", request id {request_id}"
    if status == 401:
        return Unauthorised("GitHub does not accept the token", code="GITHUB_AUTHENTICATION", found=found)
    if status == 403:
        return Retryable(
            "the App may not do this; its permissions, or their approval by the owner, are missing",
            code="GITHUB_PERMISSION", expected="the permissions of docs/install.md", found=found,
        )  # fmt: skip
    if status in (404, 410):
        return Missing("GitHub does not know this, or does not show it to the App", code="GITHUB_MISSING", found=found)
    if status in (400, 409, 422):
        return Refused("GitHub does not take what was sent", code="GITHUB_REFUSED", found=found)
    if 300 <= status < 400:
        return Retryable("the repository has another name or place now", code="GITHUB_MOVED", found=found)
    return Retryable("GitHub cannot answer now", code="GITHUB_UNREACHABLE", found=found)
