"""The page of a pull request reads the store; publishing there means noting that this verdict is the one that people see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict


class PagePublisher:
    """Notes the address at which a verdict can be read. ``base_url`` comes from the settings, never from a request."""

    name = "page"

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")

    def address(self, repository: str, number: int) -> str:
        """Return the address of a pull request's page."""
        return f"{self.base_url}/pulls/{repository}/{number}"

    def publish(
        self, snapshot: Snapshot, digest: str, verdict: Verdict, external: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return ``{"digest": ..., "outcome": ..., "url": ...}``; the page shows it beside the other publishers."""
        del external  # an address has no state of its own
        url = self.address(snapshot.repository, snapshot.key.number)
        return {"digest": digest, "outcome": verdict.outcome.value, "url": url}
