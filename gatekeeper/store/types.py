"""Column types that behave alike on SQLite and Postgres."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite forgets time zones: naive values are refused on the way in, UTC is put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """Return the moment in UTC.

        Raises:
            ValueError: for a datetime without a time zone.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"expected a datetime with a time zone; found {value.isoformat()} without one")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return an aware datetime in UTC."""
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
