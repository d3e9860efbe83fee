"""What a pull request is now, asked of GitHub; what a webhook said about it is not believed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gatekeeper.domain.errors import Conflict, Retryable
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.snapshot import Author, PullFacts
from gatekeeper.github.app import GithubApp
from gatekeeper.github.faults import Missing

LONGEST_TITLE = 1024
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

Seen = Callable[[RepositoryRef, int, str, str], None]
"""Told of the head of an open pull request: repository, number, object id, base branch."""


class _Said(BaseModel):
    """Only what is named here is read. GitHub's integers and texts are taken as they are, or not at all."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class _Repository(_Said):
    id: int = Field(gt=0)


class _User(_Said):
    id: int
    login: str = Field(max_length=100)


class _Head(_Said):
    sha: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")


class _Base(_Said):
    ref: str = Field(min_length=1, max_length=255)
    repo: _Repository


class _Pull(_Said):
    """A pull request as the API gives it. The head's repository is not read: it is null once a fork was deleted."""

    number: int = Field(gt=0)
    title: str
    state: str
    draft: bool = False
    user: _User | None
    head: _Head
    base: _Base


class GithubForge:
    """The forge of an installed App.

    Args:
        app: the App's identity.
        trusted: logins whose code may be run in the jail without an approval.
        seen: told of each open pull request's head before anything else is done with it.
    """

    def __init__(self, app: GithubApp, trusted: Collection[str] = (), seen: Seen | None = None) -> None:
        self._app = app
        self._trusted = frozenset(trusted)
        self._seen = seen

    def pull(self, repository: RepositoryRef, number: int) -> PullFacts:
        """Return what a pull request is now; one request, which is free where nothing has changed.

        Raises:
            Conflict: ``PULL_UNKNOWN`` if there is no such pull request or another repository has the name now,
                ``GITHUB_NOT_INSTALLED`` or ``GITHUB_SUSPENDED``.
            Throttled: if a limit is reached; it says for how long.
            Retryable: if GitHub does not answer as it should, or the App lacks a permission.
        """
        where = f"{repository.full_name}#{number}"
        try:
            told = self._app.client(repository).get(f"/repos/{repository.full_name}/pulls/{number}")
        except Missing as error:
            raise Conflict("no such pull request", code="PULL_UNKNOWN", found=where) from error
        pull = _read(told, where)
        if pull.base.repo.id != repository.id:
            raise Conflict(
                "another repository has that name now", code="PULL_UNKNOWN",
                expected=f"repository {repository.id}", found=f"{where} of repository {pull.base.repo.id}",
            )  # fmt: skip
        author = pull.user or _User(id=0, login="ghost")  # GitHub sends null for an account that was deleted
        if self._seen is not None and pull.state == "open":
            self._seen(repository, number, pull.head.sha, pull.base.ref)
        return PullFacts(
            number=number,
            title=_UNPRINTABLE.sub("\ufffd", pull.title)[:LONGEST_TITLE],
            author=Author(id=author.id, login=author.login, trusted=author.login in self._trusted),
            base_ref=pull.base.ref,
            draft=pull.draft,
            open=pull.state == "open",
        )


def _read(told: Any, where: str) -> _Pull:
    try:
        return _Pull.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Retryable(
            "GitHub's answer is not what it documents",
            code="GITHUB_ANSWER", expected=first["msg"], found=f"{where}: field {field}",
        ) from None  # fmt: skip
