"""The database as commands meet it: brought to the newest schema, and an error of its own told as the operator's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy.exc import DatabaseError, OperationalError

from gatekeeper.config import Settings
from gatekeeper.domain.errors import ConfigurationError, Retryable
from gatekeeper.store.engine import make_engine, sqlite_file
from gatekeeper.store.migrate import migrate, pending_revisions


def upgrade_database(settings: Settings) -> list[str]:
    """Bring the database to the newest schema and return the revisions that were applied."""
    engine = make_engine(settings.database_url)
    try:
        with reaching_the_database():
            pending = pending_revisions(engine)
            migrate(engine)
        return pending
    finally:
        engine.dispose()


def demand_database(settings: Settings) -> None:
    """Refuse settings that name a SQLite file which is not there: opening it would make an empty one.

    Raises:
        ConfigurationError: ``CONFIG_DATABASE``, with the whole path.
    """
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        raise ConfigurationError(
            "there is no database here: this command is about what a service has stored", code="CONFIG_DATABASE",
            expected="GATEKEEPER_DATABASE_URL as the service has it, or the folder that the service was started in",
            found=f"no file {file.absolute()}",
        )  # fmt: skip


@contextlib.contextmanager
def reaching_the_database() -> Iterator[None]:
    """A database that is down or a file that cannot be opened is the world's fault or the operator's, never ours."""
    try:
        yield
    except DatabaseError as error:
        if type(error) not in (OperationalError, DatabaseError):  # the others are about our own statements
            raise
        raise Retryable(
            "the database cannot be used", code="STORE_UNREACHABLE",
            expected="the one that GATEKEEPER_DATABASE_URL names", found=" ".join(str(error.orig).split()),
        ) from error  # fmt: skip
