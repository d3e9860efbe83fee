"""Documents in the store: put once, found by digest, and checked against their name each time they are read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, select, update
from sqlalchemy.exc import IntegrityError

from gatekeeper.domain.documents import Document, digest_bytes
from gatekeeper.domain.errors import Conflict, GatekeeperError, Rejected
from gatekeeper.domain.events import RepositoryRef
from gatekeeper.domain.evidence import Evidence, ProbeEvidence, PullSubject, RaceEvidence, TreeSubject
from gatekeeper.domain.policy import ProbeRequirement, RaceRequirement
from gatekeeper.domain.race import TreeSource
from gatekeeper.domain.snapshot import Snapshot
from gatekeeper.domain.verdict import Verdict
from gatekeeper.store import tables
from gatekeeper.store.pulls import Pull
from gatekeeper.store.statements import insert_once, upsert

D = TypeVar("D", bound=Document)
# SQLite allows 32,766 variables in a statement; lists longer than this are asked for in pieces.
PIECE = 500
LASTING = ("budget_reset", "withdrawal")
"""Kinds of decision that hold at later heads too."""


class DocumentReads:
    """Look documents up."""

    connection: Connection

    def snapshot(self, digest: str) -> Snapshot:
        """Return a snapshot. Raises ``Rejected`` (``STORE_UNKNOWN_DOCUMENT``) if there is none of this digest."""
        return _load(self.connection, tables.snapshots, digest, Snapshot)

    def verdict(self, digest: str) -> Verdict:
        """Return a verdict. Raises ``Rejected`` if there is none of this digest."""
        return _load(self.connection, tables.verdicts, digest, Verdict)

    def evidence(self, digest: str) -> Evidence:
        """Return a piece of evidence. Raises ``Rejected`` if there is none of this digest."""
        return _load(self.connection, tables.evidence, digest, Evidence)

    def document(self, kind: str, digest: str, cls: type[D]) -> D:
        """Return another document (a race request, a probe request, a repository's configuration) as ``cls``.

        Raises:
            Rejected: if there is none of this kind and digest.
        """
        return _load(self.connection, tables.documents, digest, cls, kind=kind)

    def latest_snapshot(self, repository_id: int, number: int) -> tuple[str, Snapshot] | None:
        """Return digest and snapshot that were made current last for a pull request, or None before the first."""
        row = self.connection.execute(
            select(tables.snapshots.c.digest, tables.snapshots.c.body)
            .join(tables.pulls, tables.pulls.c.snapshot == tables.snapshots.c.digest)
            .where(tables.pulls.c.repository_id == repository_id, tables.pulls.c.number == number)
        ).first()
        return None if row is None else (row.digest, _parse(row.digest, row.body, Snapshot))

    def snapshots_of_pull(self, repository_id: int, number: int, limit: int) -> list[str]:
        """Return the digests of a pull request's snapshots, newest first."""
        table = tables.snapshots
        return list(
            self.connection.scalars(
                select(table.c.digest)
                .where(table.c.repository_id == repository_id, table.c.number == number)
                .order_by(table.c.stored_at.desc(), table.c.digest)
                .limit(limit)
            )
        )

    def snapshots_with_tree(self, tree: str, *, open_only: bool = False) -> list[str]:
        """Return the digests of current snapshots that this tree belongs to, sorted.

        A tree belongs to a snapshot if it is its merge result, if it was noted with :meth:`note_trees`, or if one of its
        verdicts asked for a race or a probe of it.
        """
        noted = select(tables.snapshot_trees.c.snapshot).where(tables.snapshot_trees.c.tree == tree)
        statement = select(tables.pulls.c.snapshot).where(tables.pulls.c.snapshot.in_(noted))
        if open_only:
            statement = statement.where(tables.pulls.c.open.is_(True))
        found = self.connection.scalars(statement.distinct())
        return sorted(digest for digest in found if digest is not None)

    def trees_left_behind(self, snapshot: Snapshot, digest: str) -> frozenset[str]:
        """Return the trees that only other snapshots of this pull request had."""
        table = tables.snapshot_trees
        now = select(table.c.tree).where(table.c.snapshot == digest)
        ever = _trees_of_pull(snapshot.key.repository_id, snapshot.key.number)
        return frozenset(self.connection.scalars(ever.where(table.c.tree.not_in(now))))

    def snapshots_of_pulls_with_tree(self, tree: str) -> list[str]:
        """Return the digests of current snapshots of pull requests that had this tree at any time, sorted."""
        had = (
            select(tables.snapshots.c.repository_id, tables.snapshots.c.number)
            .join(tables.snapshot_trees, tables.snapshot_trees.c.snapshot == tables.snapshots.c.digest)
            .where(tables.snapshot_trees.c.tree == tree)
            .distinct()
            .subquery()
        )
        found = self.connection.scalars(
            select(tables.pulls.c.snapshot)
            .join(had, (had.c.repository_id == tables.pulls.c.repository_id) & (had.c.number == tables.pulls.c.number))
            .distinct()
        )
        return sorted(digest for digest in found if digest is not None)

    def snapshots_with_head(self, repository_id: int, head_sha: str) -> list[str]:
        """Return the digests of current snapshots of pull requests at this head, sorted."""
        found = self.connection.scalars(
            select(tables.snapshots.c.digest)
            .join(tables.pulls, tables.pulls.c.snapshot == tables.snapshots.c.digest)
            .where(tables.snapshots.c.repository_id == repository_id, tables.snapshots.c.head_sha == head_sha)
        )
        return sorted(found)

    def latest_verdict(self, snapshot_digest: str) -> tuple[str, Verdict] | None:
        """Return digest and verdict at the end of a snapshot's chain, or None before the first."""
        row = self.connection.execute(
            select(tables.verdicts.c.digest, tables.verdicts.c.body)
            .where(tables.verdicts.c.snapshot == snapshot_digest)
            .order_by(tables.verdicts.c.position.desc())
            .limit(1)
        ).first()
        return None if row is None else (row.digest, _parse(row.digest, row.body, Verdict))

    def head_was_seen(self, repository_id: int, head_sha: str) -> bool:
        """Return whether a snapshot was ever taken at this head."""
        found = select(tables.snapshots.c.digest).where(
            tables.snapshots.c.repository_id == repository_id, tables.snapshots.c.head_sha == head_sha
        )
        return self.connection.execute(found.limit(1)).first() is not None

    def verdicts(self, snapshot_digest: str) -> list[tuple[str, Verdict]]:
        """Return all verdicts of a snapshot with their digests, first one first."""
        rows = self.connection.execute(
            select(tables.verdicts.c.digest, tables.verdicts.c.body)
            .where(tables.verdicts.c.snapshot == snapshot_digest)
            .order_by(tables.verdicts.c.position)
        )
        return [(row.digest, _parse(row.digest, row.body, Verdict)) for row in rows]

    def evidence_for(self, snapshot: Snapshot, trees: Iterable[str]) -> tuple[tuple[str, Evidence], ...]:
        """Return everything that counts for a snapshot, sorted by digest.

        That is all evidence about one of these trees, whichever pull request brought it; what people decided about this pull
        request at this head; and, so that its budget holds over pushes, its resets with what took them back, and the races
        of every tree that any of its snapshots ever had. Closing, opening again or renaming a pull request changes none of
        this.
        """
        key, wanted, table = snapshot.key, sorted(set(trees)), tables.evidence
        this_pull = (table.c.repository_id == key.repository_id) & (table.c.number == key.number)
        about_pull = this_pull & ((table.c.head_sha == key.head_sha) | table.c.kind.in_(LASTING))
        earlier = (table.c.kind == "race") & table.c.tree.in_(_trees_of_pull(key.repository_id, key.number))
        found: dict[str, str] = {}
        for condition in (about_pull, earlier):
            found.update((row.digest, row.body) for row in self.connection.execute(select(table).where(condition)))
        for start in range(0, len(wanted), PIECE):
            about = table.c.tree.in_(wanted[start : start + PIECE])
            found.update((row.digest, row.body) for row in self.connection.execute(select(table).where(about)))
        return tuple((digest, _parse(digest, found[digest], Evidence)) for digest in sorted(found))

    def evidence_of_pull(self, repository_id: int, number: int) -> tuple[tuple[str, Evidence], ...]:
        """Return all that people decided about a pull request, at whichever head, oldest first."""
        table = tables.evidence
        rows = self.connection.execute(
            select(table.c.digest, table.c.body)
            .where(table.c.repository_id == repository_id, table.c.number == number)
            .order_by(table.c.recorded_at, table.c.digest)
        )
        return tuple((row.digest, _parse(row.digest, row.body, Evidence)) for row in rows)

    def answers_to(self, request: str) -> frozenset[str]:
        """Return the digests of all evidence that answers a race or probe request."""
        return frozenset(
            self.connection.scalars(select(tables.evidence.c.digest).where(tables.evidence.c.request == request))
        )


class DocumentWrites(DocumentReads):
    """Put documents. Each put is idempotent and returns the digest."""

    now: datetime

    def put_snapshot(self, snapshot: Snapshot, *, seen: Pull | None = None) -> str:
        """Store a snapshot and make it the current one of its pull request, also if the same was stored before.

        ``seen`` is the pull request's row from before the snapshot was taken. What an event has said since then is newer than
        the snapshot and stays: title, state and announced head are then left alone, and an announced head has no verdict yet.
        """
        digest, body = _dump(snapshot)
        key = snapshot.key
        values = {
            "digest": digest, "body": body, "repository_id": key.repository_id, "number": key.number,
            "head_sha": key.head_sha, "base_sha": key.base_sha, "merge_tree": key.merge_tree, "stored_at": self.now,
        }  # fmt: skip
        insert_once(self.connection, tables.snapshots, values)
        if key.merge_tree is not None:
            self.note_trees(digest, [key.merge_tree])
        repository = RepositoryRef(id=key.repository_id, full_name=snapshot.repository)
        insert_once(
            self.connection, tables.repositories,
            {"id": repository.id, "full_name": repository.full_name, "seen_at": self.now},
        )  # fmt: skip
        latest = self.latest_verdict(digest)
        facts = {
            "title": snapshot.title[:1024], "author_id": snapshot.author.id, "author_login": snapshot.author.login,
            "base_ref": snapshot.base_ref, "draft": snapshot.draft, "open": snapshot.open, "head_sha": key.head_sha,
            "snapshot": digest, "verdict": latest[0] if latest else None,
            "outcome": latest[1].outcome.value if latest else None, "updated_at": self.now,
        }  # fmt: skip
        mine = (tables.pulls.c.repository_id == key.repository_id) & (tables.pulls.c.number == key.number)
        if seen is not None:
            self.connection.execute(update(tables.pulls).where(mine).values(number=key.number))  # locks the row
            row = self.connection.execute(select(tables.pulls).where(mine)).one()
            now = Pull.model_validate(dict(row._mapping))
            if not now.announces_the_same_as(seen):
                judged = now.head_sha == key.head_sha
                kept = ("snapshot", "updated_at", *(("verdict", "outcome") if judged else ()))
                facts = {"verdict": None, "outcome": None} | {name: facts[name] for name in kept}
        upsert(self.connection, tables.pulls, {"repository_id": key.repository_id, "number": key.number}, facts)
        return digest

    def note_trees(self, snapshot_digest: str, trees: Iterable[str]) -> None:
        """Note that these trees (specialised directories in the merge result) belong to a stored snapshot."""
        for tree in sorted(set(trees)):
            insert_once(self.connection, tables.snapshot_trees, {"tree": tree, "snapshot": snapshot_digest})

    def put_verdict(self, verdict: Verdict) -> str:
        """Append a verdict to its snapshot's chain; it becomes the pull request's verdict if the snapshot is current.

        It does not while a newer head is announced whose snapshot has not been taken yet.

        Raises:
            Rejected: if the snapshot is not stored.
            Conflict: if ``supersedes`` does not name the end of the chain (somebody else decided in between).
        """
        digest, body = _dump(verdict)
        if _exists(self.connection, tables.verdicts, digest):
            return digest
        if not _exists(self.connection, tables.snapshots, verdict.snapshot):
            raise _unknown("snapshots", verdict.snapshot)
        position = self._next_position(verdict)
        outcomes = {check.check.value.replace("-", "_"): check.outcome.value for check in verdict.checks}
        values = {
            "digest": digest, "body": body, "snapshot": verdict.snapshot, "position": position,
            "supersedes": verdict.supersedes, "policy_set": verdict.policy_set, "outcome": verdict.outcome.value,
            "decided_at": verdict.decided_at, **outcomes,
        }  # fmt: skip
        try:
            insert_once(self.connection, tables.verdicts, values)
        except IntegrityError as error:
            raise _fork(verdict, "another verdict at the same place") from error
        self.note_trees(verdict.snapshot, _asked_trees(verdict))
        judged_head = (
            select(tables.snapshots.c.head_sha).where(tables.snapshots.c.digest == verdict.snapshot).scalar_subquery()
        )
        self.connection.execute(
            update(tables.pulls)
            .where(tables.pulls.c.snapshot == verdict.snapshot, tables.pulls.c.head_sha == judged_head)
            .values(verdict=digest, outcome=verdict.outcome.value, updated_at=self.now)
        )
        return digest

    def _next_position(self, verdict: Verdict) -> int:
        end = self.connection.execute(
            select(tables.verdicts.c.digest, tables.verdicts.c.position)
            .where(tables.verdicts.c.snapshot == verdict.snapshot)
            .order_by(tables.verdicts.c.position.desc())
            .limit(1)
        ).first()
        if (end.digest if end else None) != verdict.supersedes:
            raise _fork(verdict, end.digest if end else "an empty chain")
        return end.position + 1 if end else 0

    def put_evidence(self, evidence: Evidence) -> str:
        """Store a checked fact."""
        digest, body = _dump(evidence)
        about: dict[str, Any] = {}
        match evidence.subject:
            case TreeSubject(tree=tree):
                about = {"tree": tree}
            case PullSubject(repository_id=repository_id, number=number, head_sha=head_sha):
                about = {"repository_id": repository_id, "number": number, "head_sha": head_sha}
        if isinstance(evidence.body, RaceEvidence | ProbeEvidence):
            about["request"] = evidence.body.request
        values = {
            "digest": digest, "body": body, "kind": evidence.body.kind, "origin": evidence.origin.value,
            "recorded_at": evidence.recorded_at, **about,
        }  # fmt: skip
        insert_once(self.connection, tables.evidence, values)
        return digest

    def put_document(self, kind: str, document: Document) -> str:
        """Store another document under a kind of the caller's choice."""
        digest, body = _dump(document)
        insert_once(
            self.connection, tables.documents, {"kind": kind, "digest": digest, "body": body, "stored_at": self.now}
        )
        return digest


def _trees_of_pull(repository_id: int, number: int) -> Select[tuple[str]]:
    """Trees that any snapshot of a pull request ever had."""
    return (
        select(tables.snapshot_trees.c.tree)
        .join(tables.snapshots, tables.snapshots.c.digest == tables.snapshot_trees.c.snapshot)
        .where(tables.snapshots.c.repository_id == repository_id, tables.snapshots.c.number == number)
    )


def _dump(document: Document) -> tuple[str, str]:
    data = document.canonical_json()
    return digest_bytes(data), data.decode("utf-8")


def _parse(digest: str, body: str, cls: type[D]) -> D:
    found = digest_bytes(body.encode("utf-8"))
    if found != digest:
        raise GatekeeperError(
            "a stored document was changed", code="STORE_DOCUMENT_CHANGED", expected=digest, found=found
        )
    return cls.model_validate_json(body)


def _load(connection: Connection, table: Table, digest: str, cls: type[D], kind: str | None = None) -> D:
    statement = select(table.c.body).where(table.c.digest == digest)
    if kind is not None:
        statement = statement.where(table.c.kind == kind)
    body = connection.scalar(statement)
    if body is None:
        raise _unknown(kind or table.name, digest)
    return _parse(digest, body, cls)


def _exists(connection: Connection, table: Table, digest: str) -> bool:
    return connection.execute(select(table.c.digest).where(table.c.digest == digest)).first() is not None


def _unknown(where: str, digest: str) -> Rejected:
    return Rejected(
        "no such document", code="STORE_UNKNOWN_DOCUMENT", expected=f"a digest that is in {where}", found=digest
    )


def _fork(verdict: Verdict, end: str) -> Conflict:
    return Conflict(
        "a verdict must follow the latest one of its snapshot",
        code="STORE_VERDICT_CHAIN", expected=end, found=verdict.supersedes or "no predecessor",
    )  # fmt: skip


def _asked_trees(verdict: Verdict) -> set[str]:
    trees: set[str] = set()
    for result in verdict.results:
        for requirement in result.requirements:
            source = None
            if isinstance(requirement, RaceRequirement):
                source = requirement.request.candidate
            elif isinstance(requirement, ProbeRequirement):
                source = requirement.request.source
            if isinstance(source, TreeSource):
                trees.add(source.tree)
    return trees
