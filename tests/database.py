"""Databases for tests: a fresh SQLite file each time, and one throw-away Postgres database where a server answers."""

from __future__ import annotations

import getpass
import os
import secrets
from functools import cache

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

VARIABLE = "GATEKEEPER_TEST_DATABASE_URL"
LOCAL = "127.0.0.1:5432"


@cache
def server_url() -> str | None:
    """Return the URL of a Postgres maintenance database where databases may be created, or None if no server answers.

    A server that was named on purpose and does not answer is an error, not an absence.
    """
    named = os.environ.get(VARIABLE)
    tried = [named] if named else [f"postgresql://{user}@{LOCAL}/postgres" for user in ("postgres", getpass.getuser())]
    for url in tried:
        parsed = make_url(url).set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, connect_args={"connect_timeout": 2})
        try:
            with engine.connect() as connection:
                connection.execute(text("SELECT 1"))
            return parsed.render_as_string(hide_password=False)
        except OperationalError:
            if named:
                raise
        finally:
            engine.dispose()
    return None


def create_database(server: str) -> str:
    """Create ``gatekeeper_test_<random>`` and return its URL."""
    name = f"gatekeeper_test_{secrets.token_hex(6)}"
    _run(server, f'CREATE DATABASE "{name}"')
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def drop_database(server: str, url: str) -> None:
    """Drop a database made by :func:`create_database`, whoever is still connected."""
    name = make_url(url).database or ""
    assert name.startswith("gatekeeper_test_"), name
    _run(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _run(server: str, statement: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()
