"""Raw delivery to typed event. Nothing here is believed later: an event only says which repository and number to look at.

No URL of a payload is kept, so none can ever be followed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gatekeeper.domain.errors import Rejected
from gatekeeper.domain.events import BaseMoved, Event, Ping, PullRequestAction, PullRequestChanged, RepositoryRef

EVENT_NAME = re.compile(r"[a-z0-9_]{1,64}")
DELIVERY_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HOOK_ID = re.compile(r"[0-9]{1,18}")

_NOT_JUDGED = "not a part of what is judged"
_LATER = "answered to, but nothing here acts on it yet: the reconciler looks at the pull request by itself"
_ACCOUNT = "about accounts and people, not about a pull request"

IGNORED_EVENTS: dict[str, str] = {
    "branch_protection_configuration": _NOT_JUDGED,
    "branch_protection_rule": _NOT_JUDGED,
    "check_run": _LATER,
    "check_suite": _LATER,
    "code_scanning_alert": _NOT_JUDGED,
    "commit_comment": _NOT_JUDGED,
    "create": "a new branch or tag holds no pull request",
    "custom_property": _NOT_JUDGED,
    "custom_property_values": _NOT_JUDGED,
    "delete": "the pull request event tells of a closed pull request",
    "dependabot_alert": _NOT_JUDGED,
    "deploy_key": _ACCOUNT,
    "deployment": _NOT_JUDGED,
    "deployment_protection_rule": _NOT_JUDGED,
    "deployment_review": _NOT_JUDGED,
    "deployment_status": _NOT_JUDGED,
    "discussion": _NOT_JUDGED,
    "discussion_comment": _NOT_JUDGED,
    "fork": _NOT_JUDGED,
    "github_app_authorization": _ACCOUNT,
    "gollum": _NOT_JUDGED,
    "installation": _LATER,
    "installation_repositories": _LATER,
    "installation_target": _ACCOUNT,
    "issue_comment": _LATER,
    "issue_dependencies": _NOT_JUDGED,
    "issues": _NOT_JUDGED,
    "label": _NOT_JUDGED,
    "marketplace_purchase": _ACCOUNT,
    "member": _ACCOUNT,
    "membership": _ACCOUNT,
    "merge_group": _LATER,
    "meta": "the webhook itself was removed",
    "milestone": _NOT_JUDGED,
    "org_block": _ACCOUNT,
    "organization": _ACCOUNT,
    "package": _NOT_JUDGED,
    "page_build": _NOT_JUDGED,
    "personal_access_token_request": _ACCOUNT,
    "project": _NOT_JUDGED,
    "project_card": _NOT_JUDGED,
    "project_column": _NOT_JUDGED,
    "projects_v2": _NOT_JUDGED,
    "projects_v2_item": _NOT_JUDGED,
    "projects_v2_status_update": _NOT_JUDGED,
    "public": _NOT_JUDGED,
    "pull_request_review": _LATER,
    "pull_request_review_comment": _NOT_JUDGED,
    "pull_request_review_thread": _NOT_JUDGED,
    "registry_package": _NOT_JUDGED,
    "release": _NOT_JUDGED,
    "repository": _LATER,
    "repository_advisory": _NOT_JUDGED,
    "repository_dispatch": _NOT_JUDGED,
    "repository_import": _NOT_JUDGED,
    "repository_ruleset": _NOT_JUDGED,
    "repository_vulnerability_alert": _NOT_JUDGED,
    "secret_scanning_alert": _NOT_JUDGED,
    "secret_scanning_alert_location": _NOT_JUDGED,
    "secret_scanning_scan": _NOT_JUDGED,
    "security_advisory": _NOT_JUDGED,
    "security_and_analysis": _NOT_JUDGED,
    "sponsorship": _ACCOUNT,
    "star": _ACCOUNT,
    "status": _NOT_JUDGED,
    "sub_issues": _NOT_JUDGED,
    "team": _ACCOUNT,
    "team_add": _ACCOUNT,
    "watch": _ACCOUNT,
    "workflow_dispatch": _NOT_JUDGED,
    "workflow_job": _NOT_JUDGED,
    "workflow_run": _NOT_JUDGED,
}
"""Every event that GitHub documents and that is left alone on purpose, with the reason that the sender is told."""


@dataclass(frozen=True)
class Ignored:
    """A delivery that is answered and then dropped."""

    reason: str
    known: bool = True


class _Payload(BaseModel):
    """Strict: a number that arrives as text is not a number. What is not named here is never read."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


P = TypeVar("P", bound=_Payload)


class _Repository(_Payload):
    id: int = Field(gt=0)
    full_name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$")

    @field_validator("full_name")
    @classmethod
    def _no_step_upwards(cls, full_name: str) -> str:
        if not all(part.strip(".") for part in full_name.split("/")):
            raise ValueError("expected OWNER/NAME; neither may consist of dots")
        return full_name


class _Sender(_Payload):
    id: int


class _Installation(_Payload):
    id: int = Field(gt=0)


class _User(_Payload):
    id: int
    login: str = Field(max_length=100)


class _Head(_Payload):
    sha: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")


class _Base(_Payload):
    ref: str = Field(min_length=1, max_length=255)


class _PullRequest(_Payload):
    head: _Head
    base: _Base
    user: _User | None
    title: str = Field(max_length=1024)
    draft: bool = False
    state: str = Field(max_length=20)
    updated_at: str | None = Field(default=None, max_length=40)


class _PullRequestPayload(_Payload):
    action: str = Field(max_length=100)
    number: int = Field(gt=0, lt=1 << 31)
    pull_request: _PullRequest
    repository: _Repository
    installation: _Installation | None = None
    sender: _Sender | None = None


class _PushPayload(_Payload):
    ref: str = Field(min_length=1, max_length=255)
    after: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")
    deleted: bool = False
    repository: _Repository
    installation: _Installation | None = None
    sender: _Sender | None = None


class _PingPayload(_Payload):
    hook_id: int = Field(gt=0)


def read_event(name: str, payload: dict[str, Any]) -> Event | Ignored:
    """Return the typed event, or why the delivery is ignored.

    Raises:
        Rejected: ``HOOK_PAYLOAD`` if a field that is needed is missing or of the wrong type, ``HOOK_TEXT`` if a text that
            would be stored holds NUL, another control character (but in a title, where it becomes a space) or half of a
            surrogate pair.
    """
    match name:
        case "pull_request":
            return _pull_request(_read(_PullRequestPayload, payload))
        case "push":
            return _push(_read(_PushPayload, payload))
        case "ping":
            return Ping(hook_id=_read(_PingPayload, payload).hook_id)
        case _ if name in IGNORED_EVENTS:
            return Ignored(IGNORED_EVENTS[name])
        case _:
            return Ignored("an event that is not known here", known=False)


def _pull_request(payload: _PullRequestPayload) -> PullRequestChanged:
    pull = payload.pull_request
    author = pull.user or _User(id=0, login="ghost")  # GitHub sends null for an account that was deleted
    return PullRequestChanged(
        repository=_repository(payload.repository),
        number=payload.number,
        action=_action(payload.action),
        head_sha=pull.head.sha,
        base_ref=_text("pull_request.base.ref", pull.base.ref),
        author_id=author.id,
        author_login=_text("pull_request.user.login", author.login),
        title=_text("pull_request.title", _shown(pull.title)),
        draft=pull.draft,
        open=pull.state == "open",
        updated_at=_moment("pull_request.updated_at", pull.updated_at),
        installation_id=payload.installation.id if payload.installation else None,
        sender_id=payload.sender.id if payload.sender else None,
    )


def _push(payload: _PushPayload) -> BaseMoved | Ignored:
    branch = payload.ref.removeprefix("refs/heads/")
    if branch == payload.ref:
        return Ignored("a push of something that is not a branch")
    if payload.deleted or not branch:
        return Ignored("a branch was deleted: nothing can be merged into it")
    return BaseMoved(
        repository=_repository(payload.repository),
        ref=_text("ref", branch),
        after=payload.after,
        installation_id=payload.installation.id if payload.installation else None,
        sender_id=payload.sender.id if payload.sender else None,
    )


def _action(text: str) -> PullRequestAction:
    try:
        return PullRequestAction(text)
    except ValueError:
        return PullRequestAction.UNKNOWN


def _repository(payload: _Repository) -> RepositoryRef:
    return RepositoryRef(id=payload.id, full_name=payload.full_name)


def _read(model: type[P], payload: dict[str, Any]) -> P:
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Rejected(
            "the payload is not what this event carries",
            code="HOOK_PAYLOAD",
            expected=first["msg"],
            found=f"field {where}",
        ) from None


def _moment(field: str, value: str | None) -> datetime | None:
    """Return a time with its zone, or reject it."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if value.isascii() else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not 2000 <= moment.year < 9000:
        raise Rejected(
            "the payload is not what this event carries",
            code="HOOK_PAYLOAD", expected="a time such as 2026-11-30T04:15:00Z", found=f"field {field}",
        )  # fmt: skip
    return moment.astimezone(UTC)


def _shown(value: str) -> str:
    """Return a text that is only shown, with a space for each tab, line end or other control character: a title may hold one
    by accident. NUL stays, and is refused."""
    return "".join(" " if 0 < ord(character) < 0x20 or ord(character) == 0x7F else character for character in value)


def _text(field: str, value: str) -> str:
    """Return a text that every database and log can hold, or reject it."""
    if any(
        ord(character) < 0x20 or ord(character) == 0x7F or 0xD800 <= ord(character) <= 0xDFFF for character in value
    ):
        raise Rejected(
            "a text holds a character that cannot be stored",
            code="HOOK_TEXT", expected="no control characters and no lone surrogates", found=f"field {field}",
        )  # fmt: skip
    return value
