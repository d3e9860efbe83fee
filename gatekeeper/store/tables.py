"""The schema: a document is kept as the very text that was hashed, beside the columns that it is searched by."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from gatekeeper.store.types import UtcDateTime

# Named constraints: Alembic's batch mode on SQLite can only alter what has a name.
METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

DIGEST = String(71)  # "sha256:" and 64 hexadecimal digits
GIT_ID = String(64)
WORD = String(40)

repositories = Table(
    "repositories",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("full_name", String(200), nullable=False, index=True),
    Column("installation_id", BigInteger),
    Column("default_branch", String(255)),
    Column("seen_at", UtcDateTime, nullable=False),
)

snapshots = Table(
    "snapshots",
    METADATA,
    Column("digest", DIGEST, primary_key=True),
    Column("body", Text, nullable=False),
    Column("repository_id", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),
    Column("head_sha", GIT_ID, nullable=False),
    Column("base_sha", GIT_ID, nullable=False),
    Column("merge_tree", GIT_ID),
    Column("stored_at", UtcDateTime, nullable=False),
    Index(None, "repository_id", "number", "stored_at"),
    Index(None, "repository_id", "head_sha"),
)

# Trees that a snapshot's evidence is about: the specialised directories of its merge result.
snapshot_trees = Table(
    "snapshot_trees",
    METADATA,
    Column("tree", GIT_ID, primary_key=True),
    Column("snapshot", DIGEST, ForeignKey("snapshots.digest"), primary_key=True),
)

verdicts = Table(
    "verdicts",
    METADATA,
    Column("digest", DIGEST, primary_key=True),
    Column("body", Text, nullable=False),
    Column("snapshot", DIGEST, ForeignKey("snapshots.digest"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("supersedes", DIGEST, ForeignKey("verdicts.digest")),
    Column("policy_set", DIGEST, nullable=False),
    Column("outcome", WORD, nullable=False),
    Column("isolation", WORD),
    Column("scope", WORD),
    Column("benchmarks", WORD),
    Column("contributor_log", WORD),
    Column("decided_at", UtcDateTime, nullable=False),
    UniqueConstraint("snapshot", "position"),
    Index(None, "decided_at"),
)

evidence = Table(
    "evidence",
    METADATA,
    Column("digest", DIGEST, primary_key=True),
    Column("body", Text, nullable=False),
    Column("kind", WORD, nullable=False),
    Column("origin", WORD, nullable=False),
    Column("request", DIGEST, index=True),
    Column("tree", GIT_ID, index=True),
    Column("repository_id", BigInteger),
    Column("number", Integer),
    Column("head_sha", GIT_ID),
    Column("recorded_at", UtcDateTime, nullable=False),
    Index(None, "repository_id", "number", "head_sha"),
    Index(None, "kind", "recorded_at"),
)

documents = Table(
    "documents",
    METADATA,
    Column("kind", WORD, primary_key=True),
    Column("digest", DIGEST, primary_key=True),
    Column("body", Text, nullable=False),
    Column("stored_at", UtcDateTime, nullable=False),
)

# One row for each pull request seen. Author and title are for people; ``snapshot`` and ``verdict`` name the current ones.
pulls = Table(
    "pulls",
    METADATA,
    Column("repository_id", BigInteger, ForeignKey("repositories.id"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("title", String(1024), nullable=False),
    Column("author_id", BigInteger, nullable=False),
    Column("author_login", String(100), nullable=False),
    Column("base_ref", String(255), nullable=False),
    Column("draft", Boolean, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("head_sha", GIT_ID, nullable=False),
    Column("snapshot", DIGEST, ForeignKey("snapshots.digest"), index=True),
    Column("verdict", DIGEST, ForeignKey("verdicts.digest")),
    Column("outcome", WORD),
    Column("updated_at", UtcDateTime, nullable=False),
    # The forge's own time of the newest event whose hints stand here: an older event that comes later changes nothing.
    Column("event_at", UtcDateTime),
    Index(None, "updated_at", "repository_id", "number"),
    Index(None, "repository_id", "updated_at"),
    Index(None, "open", "updated_at"),
    Index(None, "outcome", "updated_at"),
)

jobs = Table(
    "jobs",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("kind", WORD, nullable=False),
    Column("key", String(200), nullable=False),
    Column("state", WORD, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("asked", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("voids", Integer, nullable=False, server_default="0"),
    Column("fence", BigInteger, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("delivery_id", String(100)),
    Column("run_after", UtcDateTime, nullable=False),
    Column("lease_until", UtcDateTime),
    Column("error", Text),
    Column("enqueued_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    UniqueConstraint("kind", "key"),
    Index(None, "state", "run_after"),
    Index(None, "state", "lease_until"),
    Index(None, "state", "kind"),
)

deliveries = Table(
    "deliveries",
    METADATA,
    Column("hook_id", BigInteger, primary_key=True, autoincrement=False),
    Column("guid", String(100), primary_key=True),
    Column("event", String(100), nullable=False),
    Column("action", String(100)),
    Column("body", LargeBinary, nullable=False),
    Column("size", Integer, nullable=False, server_default="0"),
    Column("repository_id", BigInteger),
    Column("number", Integer),
    Column("sender_id", BigInteger),
    Column("times", Integer, nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    Column("done_at", UtcDateTime),
    Column("note", Text),
    Index(None, "received_at"),
    Index(None, "repository_id", "received_at"),
    Index(None, "sender_id", "received_at"),
)

published = Table(
    "published",
    METADATA,
    Column("publisher", WORD, primary_key=True),
    Column("repository_id", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("snapshot", DIGEST, ForeignKey("snapshots.digest"), nullable=False),
    Column("verdict", DIGEST, ForeignKey("verdicts.digest"), nullable=False),
    Column("head_sha", GIT_ID, nullable=False),
    Column("external", JSON, nullable=False),
    Column("at", UtcDateTime, nullable=False),
)
