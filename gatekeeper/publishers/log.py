"""Says every verdict in one log record: the publisher that works everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structlog import get_logger

from gatekeeper import texts
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict

_LEVELS = {"passed": "info", "pending": "info", "failed": "warning", "error": "error"}


class LogPublisher:
    """Writes a verdict to the structured log, once for each digest."""

    name = "log"

    def publish(
        self, snapshot: Snapshot, digest: str, verdict: Verdict, external: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Log the verdict unless it is the one that was logged last. Returns ``{"digest": ...}``."""
        if external.get("digest") != digest:
            getattr(get_logger(__name__), _LEVELS[verdict.outcome.value])(
                "verdict",
                text=texts.log_line(snapshot.repository, snapshot.key.number, verdict),
                outcome=verdict.outcome.value,
                repository=snapshot.repository,
                number=snapshot.key.number,
                head=snapshot.key.head_sha,
                digest=digest,
                **{check.check.value.replace("-", "_"): check.outcome.value for check in verdict.checks},
            )
        return {"digest": digest}
