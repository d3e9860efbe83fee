"""The schema comes from migrations alone, on both databases, and matches the tables that the code uses."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from gatekeeper.store.engine import WRITES, make_engine
from gatekeeper.store.migrate import _configuration, migrate, pending_revisions
from gatekeeper.store.tables import METADATA
from gatekeeper.store.unit_of_work import Store


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


def test_rows_of_the_first_schema_survive_the_upgrade(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.connect() as plain, plain.execution_options(**{WRITES: True}).begin():
        command.upgrade(_configuration(plain), "0001")
        plain.execute(
            text(
                "INSERT INTO deliveries (hook_id, guid, event, body, times, received_at)"
                " VALUES (1, 'g', 'push', x'7b7d', 1, '2026-11-30 04:00:00.000000')"
            )
        )
    migrate(engine)
    with Store(engine, lambda _: None).read() as uow:
        kept = uow.delivery(1, "g")
    assert kept is not None and (kept.body, kept.size, kept.repository_id, kept.times) == (b"{}", 2, None, 1)
    engine.dispose()
