"""Fixtures for every part: a store on each database that is there, and a clock that only moves when told to."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Engine, text

from gatekeeper.store.engine import make_engine
from gatekeeper.store.migrate import migrate
from gatekeeper.store.tables import METADATA
from gatekeeper.store.unit_of_work import Store
from tests.database import create_database, drop_database, server_url

# Exceptions are logged as plain text: the default renders every local variable of every frame, at a tenth of a second each.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_report_header() -> str:
    """Say which databases the tests of the store run on."""
    return f"databases: sqlite, {'postgres' if server_url() else 'no postgres (no server answers)'}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for a database on each one that is there."""
    if "backend" in metafunc.fixturenames:
        postgres = [pytest.param("postgres", marks=pytest.mark.services)] if server_url() else []
        metafunc.parametrize("backend", ["sqlite", *postgres])


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what a test made of this process's logs: a handler that writes to a closed stream would disturb every later test."""
    root = logging.getLogger()
    handlers, level, ours = list(root.handlers), root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**ours)


@dataclass
class TestClock:
    """Time that stands still until a test moves it."""

    __test__ = False
    moment: datetime = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        """Return the moment."""
        return self.moment

    def move(self, **units: float) -> None:
        """Move forward, with the keywords of ``timedelta``."""
        self.moment += timedelta(**units)


@dataclass
class Notices:
    """Collects notifications, one entry for each call."""

    calls: list[tuple[str, ...]] = field(default_factory=list)

    def notify(self, job_ids: object) -> None:
        """Note a call."""
        self.calls.append(tuple(job_ids))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A migrated throw-away database, dropped at the end of the session."""
    server = server_url()
    assert server is not None
    url = create_database(server)
    try:
        engine = make_engine(url)
        migrate(engine)
        engine.dispose()
        yield url
    finally:
        drop_database(server, url)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite that is migrated and empty: copied, it costs a hundredth of another migration."""
    file = tmp_path_factory.mktemp("migrated") / "store.db"
    engine = make_engine(f"sqlite:///{file}")
    migrate(engine)
    engine.dispose()
    return file


@pytest.fixture
def engine(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine on an empty, migrated database of each kind."""
    if backend == "sqlite":
        shutil.copyfile(request.getfixturevalue("migrated"), tmp_path / "store.db")
        made = make_engine(f"sqlite:///{tmp_path / 'store.db'}")
    else:
        made = make_engine(request.getfixturevalue("postgres_url"))
        names = ", ".join(f'"{table.name}"' for table in METADATA.sorted_tables)
        with made.begin() as connection:
            connection.execute(text(f"TRUNCATE {names} CASCADE"))
    yield made
    made.dispose()


@pytest.fixture
def clock() -> TestClock:
    """A clock that only moves when told to."""
    return TestClock()


@pytest.fixture
def notices() -> Notices:
    """What the store told the queue."""
    return Notices()


@pytest.fixture
def store(engine: Engine, clock: TestClock, notices: Notices) -> Store:
    """A store on each database, with a clock of its own."""
    return Store(engine, notices.notify, clock.now)
