"""How much of GitHub is used: requests by installation, and what is left of its quota. For health pages and metrics."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from gatekeeper.github.faults import Answer, is_limit

APP = 0
"""Stands in the place of an installation for requests that the App makes in its own name."""


@dataclass
class Use:
    """What one installation has cost since this process started, and its quota as GitHub told it last.

    ``not_modified`` are reads that were answered from the cache after a 304, which GitHub does not count. ``limited`` were
    refused for a limit, ``failed`` got any other status of 400 and above, ``silent`` got no answer at all.
    """

    reads: int = 0
    writes: int = 0
    not_modified: int = 0
    limited: int = 0
    failed: int = 0
    silent: int = 0
    limit: int | None = None
    remaining: int | None = None
    resets_at: str | None = None


class Meter:
    """Counts; safe to use from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: defaultdict[int, Use] = defaultdict(Use)

    def note(self, installation: int, verb: str, answer: Answer | None) -> None:
        """Count one request and remember the quota that its answer tells; ``None`` where no answer came."""
        with self._lock:
            use = self._uses[installation]
            if verb == "GET":
                use.reads += 1
            else:
                use.writes += 1
            if answer is None:
                use.silent += 1
                return
            use.not_modified += answer.status == 304
            if is_limit(answer):
                use.limited += 1
            elif answer.status >= 400:
                use.failed += 1
            _quota(use, answer.headers)

    def read(self) -> dict[str, dict[str, int | str | None]]:
        """Return the figures by installation (``app`` for the App itself) as JSON values."""
        with self._lock:
            return {
                "app" if installation == APP else str(installation): asdict(use)
                for installation, use in sorted(self._uses.items())
            }


def _quota(use: Use, headers: Mapping[str, str]) -> None:
    if headers.get("x-ratelimit-resource", "core") != "core":
        return
    limit, remaining, reset = (number(headers, f"x-ratelimit-{name}") for name in ("limit", "remaining", "reset"))
    if limit is None or remaining is None:
        return
    use.limit, use.remaining = int(limit), int(remaining)
    use.resets_at = None if reset is None else datetime.fromtimestamp(reset, UTC).isoformat()


def number(headers: Mapping[str, str], name: str) -> float | None:
    """Return a header's number of at least 0, or None where there is none: a proxy may have put anything there."""
    text = headers.get(name, "").strip()
    return float(text) if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 16 else None
