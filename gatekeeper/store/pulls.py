"""Repositories, pull requests, and what each publisher showed last."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from gatekeeper.domain.documents import Value
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.store.statements import upsert
from gatekeeper.store.tables import published, pulls, repositories


class Repository(Value):
    """A repository that sent us something. ``id`` stays when ``full_name`` changes."""

    id: int
    full_name: str
    installation_id: int | None
    default_branch: str | None
    seen_at: datetime


class Pull(Value):
    """A pull request as last seen. ``snapshot`` and ``verdict`` are the current ones; all else is for people and filters."""

    repository_id: int
    number: int
    title: str
    author_id: int
    author_login: str
    base_ref: str
    draft: bool
    open: bool
    head_sha: str
    snapshot: str | None
    verdict: str | None
    outcome: str | None
    updated_at: datetime
    event_at: datetime | None = None
    """The forge's own time of the newest event whose hints stand here; None where no event carried one."""

    def announces_the_same_as(self, other: Pull | None) -> bool:
        """Whether both rows hold the same hints, whatever snapshot and verdict stand beside them."""
        apart = {"snapshot", "verdict", "outcome", "updated_at"}
        return other is not None and self.model_dump(exclude=apart) == other.model_dump(exclude=apart)


class Published(Value):
    """What a publisher showed last for a pull request; ``external`` holds ids of the other side (check runs, comments)."""

    publisher: str
    repository_id: int
    number: int
    snapshot: str
    verdict: str
    head_sha: str
    external: dict[str, Any]
    at: datetime


class PullReads:
    """Look up repositories, pull requests and publications."""

    connection: Connection

    def repository(self, repository_id: int) -> Repository | None:
        """Return a repository by id, or None if it was never seen."""
        row = self.connection.execute(select(repositories).where(repositories.c.id == repository_id)).first()
        return None if row is None else Repository.model_validate(dict(row._mapping))

    def repository_named(self, full_name: str) -> Repository | None:
        """Return the repository seen last under this name, or None: after a rename a name can pass to another one."""
        row = self.connection.execute(
            select(repositories)
            .where(repositories.c.full_name == full_name)
            .order_by(repositories.c.seen_at.desc())
            .limit(1)
        ).first()
        return None if row is None else Repository.model_validate(dict(row._mapping))

    def pull(self, repository_id: int, number: int) -> Pull | None:
        """Return a pull request, or None if it was never seen."""
        row = self.connection.execute(
            select(pulls).where(pulls.c.repository_id == repository_id, pulls.c.number == number)
        ).first()
        return None if row is None else Pull.model_validate(dict(row._mapping))

    def open_pulls(self, repository_id: int, base_ref: str | None = None) -> list[Pull]:
        """Return open pull requests of a repository, by number; with ``base_ref`` only those onto this branch."""
        statement = select(pulls).where(pulls.c.repository_id == repository_id, pulls.c.open.is_(True))
        if base_ref is not None:
            statement = statement.where(pulls.c.base_ref == base_ref)
        rows = self.connection.execute(statement.order_by(pulls.c.number))
        return [Pull.model_validate(dict(row._mapping)) for row in rows]

    def published(self, publisher: str, repository_id: int, number: int) -> Published | None:
        """Return what a publisher showed last for a pull request, or None."""
        row = self.connection.execute(
            select(published).where(
                published.c.publisher == publisher,
                published.c.repository_id == repository_id,
                published.c.number == number,
            )
        ).first()
        return None if row is None else Published.model_validate(dict(row._mapping))


class PullWrites(PullReads):
    """Remember what was seen and shown."""

    now: datetime

    def remember_repository(
        self, repository: RepositoryRef, installation_id: int | None = None, default_branch: str | None = None
    ) -> None:
        """Note a repository's present name; what is not given keeps its value."""
        values: dict[str, Any] = {"full_name": repository.full_name, "seen_at": self.now}
        if installation_id is not None:
            values["installation_id"] = installation_id
        if default_branch is not None:
            values["default_branch"] = default_branch
        upsert(self.connection, repositories, {"id": repository.id}, values)

    def remember_pull(
        self,
        repository_id: int,
        number: int,
        *,
        title: str,
        author_id: int,
        author_login: str,
        base_ref: str,
        draft: bool,
        open: bool,
        head_sha: str,
        event_at: datetime | None = None,
        again: bool = False,
    ) -> bool:
        """Note what an event says about a pull request, unless a newer one has been noted. Returns whether it was noted.

        Events come late, twice and in any order. ``event_at`` is the forge's own time of the pull request's last change: an
        event with an older one changes nothing here, nor does one without a time once one with a time has come. Two events of
        one second count in the order in which they came; one that came before (``again``) then yields to whatever has come
        since. The repository must have been remembered before.

        With another head than before the pull request has no verdict: the old one never stands beside a new head. The next
        snapshot brings back the verdict of its own head, if there is one.
        """
        # The row is locked before it is read: two events at once must not both find themselves the newer one.
        mine = (pulls.c.repository_id == repository_id) & (pulls.c.number == number)
        self.connection.execute(update(pulls).where(mine).values(number=number))
        known = self.pull(repository_id, number)
        if known is not None and not _newer(event_at, known.event_at, again):
            return False
        self.connection.execute(
            update(pulls).where(mine, pulls.c.head_sha != head_sha).values(verdict=None, outcome=None)
        )
        values = {
            "title": title[:1024], "author_id": author_id, "author_login": author_login, "base_ref": base_ref,
            "draft": draft, "open": open, "head_sha": head_sha, "updated_at": self.now, "event_at": event_at,
        }  # fmt: skip
        upsert(self.connection, pulls, {"repository_id": repository_id, "number": number}, values)
        return True

    def mark_published(
        self,
        publisher: str,
        repository_id: int,
        number: int,
        *,
        snapshot: str,
        verdict: str,
        head_sha: str,
        external: Mapping[str, Any] | None = None,
    ) -> None:
        """Note what a publisher now shows for a pull request."""
        values = {
            "snapshot": snapshot, "verdict": verdict, "head_sha": head_sha, "external": dict(external or {}),
            "at": self.now,
        }  # fmt: skip
        key = {"publisher": publisher, "repository_id": repository_id, "number": number}
        upsert(self.connection, published, key, values)


def _newer(event_at: datetime | None, known_at: datetime | None, again: bool) -> bool:
    if known_at is None:
        return event_at is not None or not again
    return event_at is not None and (event_at > known_at or (event_at == known_at and not again))
