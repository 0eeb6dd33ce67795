"""Partitions of the events table on PostgreSQL, one for each month in which sessions began."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

PARTITION_LOCK = 0x70617274
"""Key of the advisory lock that making a partition holds."""


def partition_name(period: int) -> str:
    """The table of a month's events."""
    return f"events_{period}"


class Partitions:
    """Makes partitions as months come. Does nothing on SQLite."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: set[int] = set()

    def ensure(self, period: int) -> None:
        """See to it that a month has a partition, in a transaction of its own.

        Where that is not allowed, the month's events go to the partition for all others.
        """
        if self._engine.dialect.name == "postgresql" and period not in self._made:
            try:
                with self._engine.begin() as connection:
                    _make(connection, period)
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
            self._made.add(period)


def existing(connection: Connection) -> set[int]:
    """The months that have a partition."""
    if connection.dialect.name != "postgresql":
        return set()
    names = connection.scalars(
        text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'events'::regclass")
    )
    return {int(name.rpartition("_")[2]) for name in names if name.rpartition("_")[2].isdecimal()}


def drop(connection: Connection, period: int) -> None:
    """Remove a month's partition with everything in it."""
    connection.execute(text(f"DROP TABLE {partition_name(period)}"))


def _make(connection: Connection, period: int) -> None:
    if period in existing(connection):
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PARTITION_LOCK})
    # A table that is there already is the partition another process has just made.
    connection.execute(
        text(
            f"CREATE TABLE IF NOT EXISTS {partition_name(period)} PARTITION OF events "
            f"FOR VALUES IN ({period})"
        )
    )
