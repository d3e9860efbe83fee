"""The two ways in which rows come into being: once, or anew. Both are safe against a second writer on both databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, update
from sqlalchemy.exc import IntegrityError


def insert_once(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its primary key exists. Returns whether this call inserted it.

    Raises:
        IntegrityError: if the row breaks another constraint (a foreign key, a second unique key).
    """
    same = and_(*(column == values[column.name] for column in table.primary_key))
    found = select(next(iter(table.primary_key))).where(same)
    if connection.execute(found).first() is not None:
        return False
    try:
        with connection.begin_nested():
            connection.execute(insert(table).values(**values))
    except IntegrityError:
        if connection.execute(found).first() is None:
            raise
        return False
    return True


def upsert(connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Update the row with this primary key, or insert it."""
    same = and_(*(table.c[name] == value for name, value in key.items()))
    if connection.execute(update(table).where(same).values(**values)).rowcount:
        return
    if not insert_once(connection, table, {**key, **values}):
        connection.execute(update(table).where(same).values(**values))
