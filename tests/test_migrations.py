"""The schema comes from migrations alone, on both databases, and matches the tables that the code uses."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect

from gatekeeper.store.migrate import migrate, pending_revisions
from gatekeeper.store.tables import METADATA


def test_autogenerate_finds_no_difference_after_an_upgrade_from_empty(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "render_as_batch": True})
        assert compare_metadata(context, METADATA) == []


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    assert pending_revisions(engine) == []
    before = sorted(inspect(engine).get_table_names())
    migrate(engine)
    assert sorted(inspect(engine).get_table_names()) == before
    assert set(METADATA.tables) <= set(before)
