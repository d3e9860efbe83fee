"""Bring a database to the newest schema, and say how far it is."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from gatekeeper.store.engine import WRITES

SCRIPTS = Path(__file__).resolve().parents[2] / "migrations"
# Any constant will do: it keeps two processes that start at once from migrating at once.
LOCK = 0x67617465
VERSION_TABLE = "alembic_version"


def migrate(engine: Engine) -> None:
    """Upgrade to the newest revision in one transaction. Safe to call from several processes at once."""
    with engine.connect() as plain:
        connection = plain.execution_options(**{WRITES: True})
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            command.upgrade(_configuration(connection), "head")


def pending_revisions(engine: Engine) -> list[str]:
    """Return the revisions that :func:`migrate` would apply, oldest first."""
    script = ScriptDirectory.from_config(_configuration(None))
    with engine.connect() as connection:
        current = _revision(connection)
    return [revision.revision for revision in reversed(list(script.iterate_revisions("head", current)))]


def _revision(connection: Connection) -> str | None:
    """Return the revision of a database; Alembic's own way writes two log lines, and readiness asks every few seconds."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608  (a constant)
    return found


def _configuration(connection: Connection | None) -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(SCRIPTS))
    configuration.set_main_option("path_separator", "os")
    configuration.attributes["connection"] = connection
    return configuration
