"""Alembic's entry: one history for SQLite and Postgres. The caller hands a connection over, or GATEKEEPER_DATABASE_URL names one."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import Connection

from gatekeeper.store.engine import make_engine
from gatekeeper.store.tables import METADATA


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    _run(handed_over)
else:
    engine = make_engine(os.environ.get("GATEKEEPER_DATABASE_URL", "sqlite:///var/gatekeeper.db"))
    with engine.connect() as connection:
        _run(connection)
        connection.commit()
