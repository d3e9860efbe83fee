"""Typed webhook events. A payload is a hint to go and look: these carry ids and nothing that is believed later."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from gatekeeper.domain.documents import GitId, Value


class PullRequestAction(StrEnum):
    """The ``pull_request`` actions that GitHub documents; others arrive as ``unknown`` and are only noted."""

    ASSIGNED = "assigned"
    AUTO_MERGE_DISABLED = "auto_merge_disabled"
    AUTO_MERGE_ENABLED = "auto_merge_enabled"
    CLOSED = "closed"
    CONVERTED_TO_DRAFT = "converted_to_draft"
    DEMILESTONED = "demilestoned"
    DEQUEUED = "dequeued"
    EDITED = "edited"
    ENQUEUED = "enqueued"
    LABELED = "labeled"
    LOCKED = "locked"
    MILESTONED = "milestoned"
    OPENED = "opened"
    READY_FOR_REVIEW = "ready_for_review"
    REOPENED = "reopened"
    REVIEW_REQUEST_REMOVED = "review_request_removed"
    REVIEW_REQUESTED = "review_requested"
    SYNCHRONIZE = "synchronize"
    UNASSIGNED = "unassigned"
    UNLABELED = "unlabeled"
    UNLOCKED = "unlocked"
    UNKNOWN = "unknown"


class RepositoryRef(Value):
    """A repository as a payload names it. ``id`` is the identity; ``full_name`` is for people and may be renamed."""

    id: int = Field(gt=0)
    full_name: str = Field(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$", max_length=200)


class PullRequestChanged(Value):
    """Something happened to a pull request. Whether it matters is decided after looking at git."""

    repository: RepositoryRef
    number: int = Field(gt=0)
    action: PullRequestAction
    head_sha: GitId
    base_ref: Annotated[str, Field(min_length=1, max_length=255)]
    author_id: int
    author_login: Annotated[str, Field(max_length=100)]
    title: Annotated[str, Field(max_length=1024)] = ""
    draft: bool = False
    open: bool = True
    updated_at: AwareDatetime | None = None
    """The forge's own time of the pull request's last change: what events are ordered by, because they come in any order."""
    installation_id: int | None = None
    sender_id: int | None = None
    """Account whose action caused the event."""


class BaseMoved(Value):
    """A branch was pushed. Open fast-track pull requests on that branch are looked at again."""

    repository: RepositoryRef
    ref: Annotated[str, Field(min_length=1, max_length=255)]
    after: GitId
    installation_id: int | None = None
    sender_id: int | None = None


class Ping(Value):
    """GitHub says hello after a webhook was set up."""

    hook_id: int


Event = PullRequestChanged | BaseMoved | Ping
