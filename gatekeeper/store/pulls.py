"""Repositories, pull requests, deliveries, and what each publisher showed last."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from gatekeeper.domain.documents import Value
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.store.statements import insert_once, upsert
from gatekeeper.store.tables import deliveries, published, pulls, repositories


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


class Delivery(Value):
    """A webhook delivery as it arrived. ``times`` counts how often GitHub sent it."""

    hook_id: int
    guid: str
    event: str
    action: str | None
    body: bytes
    times: int
    received_at: datetime
    done_at: datetime | None
    note: str | None


class PullReads:
    """Look up repositories, pull requests, deliveries and publications."""

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

    def delivery(self, hook_id: int, guid: str) -> Delivery | None:
        """Return a delivery, or None if it never arrived."""
        row = self.connection.execute(
            select(deliveries).where(deliveries.c.hook_id == hook_id, deliveries.c.guid == guid)
        ).first()
        return None if row is None else Delivery.model_validate(dict(row._mapping))


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
    ) -> None:
        """Note what an event says about a pull request. The repository must have been remembered before.

        With another head than before the pull request has no verdict: the old one never stands beside a new head. The next
        snapshot brings back the verdict of its own head, if there is one.
        """
        another_head = (
            (pulls.c.repository_id == repository_id) & (pulls.c.number == number) & (pulls.c.head_sha != head_sha)
        )
        self.connection.execute(update(pulls).where(another_head).values(verdict=None, outcome=None))
        values = {
            "title": title[:1024], "author_id": author_id, "author_login": author_login, "base_ref": base_ref,
            "draft": draft, "open": open, "head_sha": head_sha, "updated_at": self.now,
        }  # fmt: skip
        upsert(self.connection, pulls, {"repository_id": repository_id, "number": number}, values)

    def record_delivery(
        self, hook_id: int, guid: str, event: str, action: str | None, body: bytes, received_at: datetime
    ) -> bool:
        """Keep a delivery. Returns whether there is work to do: False only if it arrived before and was finished."""
        values = {
            "hook_id": hook_id, "guid": guid, "event": event, "action": action, "body": body, "times": 1,
            "received_at": received_at,
        }  # fmt: skip
        if insert_once(self.connection, deliveries, values):
            return True
        same = (deliveries.c.hook_id == hook_id) & (deliveries.c.guid == guid)
        row = self.connection.execute(
            update(deliveries).where(same).values(times=deliveries.c.times + 1).returning(deliveries.c.done_at)
        ).one()
        return row.done_at is None

    def delivery_done(self, hook_id: int, guid: str, note: str | None = None) -> None:
        """Note that a delivery needs no more work, and why."""
        same = (deliveries.c.hook_id == hook_id) & (deliveries.c.guid == guid)
        self.connection.execute(update(deliveries).where(same).values(done_at=self.now, note=note))

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
