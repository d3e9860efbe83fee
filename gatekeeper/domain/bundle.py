"""All documents that a verdict was decided from, in one file: with the git objects it can be decided again, offline."""

from __future__ import annotations

from typing import Literal

from gatekeeper.domain.documents import Document
from gatekeeper.domain.evidence import Evidence
from gatekeeper.domain.repository import RepositoryConfiguration
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict


class Bundle(Document):
    """A snapshot with the configuration and the evidence that its verdict rests on, and that verdict."""

    schema_version: Literal[1] = 1
    snapshot: Snapshot
    configuration: RepositoryConfiguration
    evidence: tuple[Evidence, ...] = ()
    verdict: Verdict | None = None
