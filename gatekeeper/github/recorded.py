"""A forge made of what the webhooks said, for installations without access to an API (the demonstration, a closed network).

Only what no git object can tell is taken from there: title, author, base branch, draft and open. Ids and code come from git.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.snapshot import Author, PullFacts


class Hint(Protocol):
    """What an event said about a pull request; read-only, so that a frozen row will do."""

    @property
    def title(self) -> str: ...
    @property
    def author_id(self) -> int: ...
    @property
    def author_login(self) -> str: ...
    @property
    def base_ref(self) -> str: ...
    @property
    def draft(self) -> bool: ...
    @property
    def open(self) -> bool: ...


class RecordedForge:
    """Answers from recorded events. ``trusted`` are the logins whose code may be run in the jail without an approval."""

    def __init__(self, recorded: Callable[[int, int], Hint | None], trusted: Collection[str] = ()) -> None:
        self._recorded = recorded
        self._trusted = frozenset(trusted)

    def pull(self, repository: RepositoryRef, number: int) -> PullFacts:
        """Return what the last event said about a pull request.

        Raises:
            Conflict: ``PULL_UNKNOWN`` if no event ever named it.
        """
        hint = self._recorded(repository.id, number)
        if hint is None:
            raise Conflict("no such pull request", code="PULL_UNKNOWN", found=f"{repository.full_name}#{number}")
        return PullFacts(
            number=number,
            title=hint.title,
            author=Author(id=hint.author_id, login=hint.author_login, trusted=hint.author_login in self._trusted),
            base_ref=hint.base_ref,
            draft=hint.draft,
            open=hint.open,
        )
