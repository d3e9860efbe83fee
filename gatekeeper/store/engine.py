"""Database engines, set up so that concurrent writers lose nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from gatekeeper.domain.errors import ConfigurationError

BUSY_TIMEOUT_MILLISECONDS = 30_000
WRITES = "gatekeeper_writes"


def make_engine(url: str) -> Engine:
    """Return an engine for a ``sqlite:///`` or ``postgresql+psycopg://`` URL.

    Raises:
        ConfigurationError: for what is no URL (not repeated: it may hold a password), for any other database, because
            nothing else is tested, and for SQLite in memory, because each connection would see a database of its own.
    """
    parsed = _parsed(url)
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, pool_pre_ping=True, pool_size=16, max_overflow=16)
    if backend != "sqlite":
        raise ConfigurationError(
            "the database of GATEKEEPER_DATABASE_URL is not supported",
            code="CONFIG_DATABASE",
            expected="sqlite or postgresql",
            found=backend,
        )
    if not parsed.database or parsed.database == ":memory:":
        raise ConfigurationError(
            "GATEKEEPER_DATABASE_URL names SQLite without a file",
            code="CONFIG_DATABASE",
            expected="sqlite:///path/to/file.db",
            found=url,
        )
    folder = Path(parsed.database).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            "the folder of the file in GATEKEEPER_DATABASE_URL cannot be made", code="CONFIG_DATABASE",
            expected="sqlite:///path/to/file.db in a directory that may be written to",
            found=f"{folder.absolute()}: {error.strerror}",
        ) from None  # fmt: skip
    engine = create_engine(parsed, pool_size=32, max_overflow=32, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL, None for another database; raises as :func:`make_engine` for what is no URL."""
    parsed = _parsed(url)
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigurationError(
            "GATEKEEPER_DATABASE_URL is no URL of a database", code="CONFIG_DATABASE",
            expected="sqlite:///path/to/file.db or postgresql://USER@HOST/NAME",
        ) from None  # fmt: skip


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own transaction control begins late and takes the write lock later still: take it over.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that turns into a writer fails at once with "database is locked"; an immediate one waits.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def worth_retrying(error: OperationalError) -> bool:
    """Return whether a database error is the world's fault (lock, deadlock, lost connection) and not a wrong statement."""
    if isinstance(error.orig, sqlite3.Error):
        primary = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        return primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR}
    return True
