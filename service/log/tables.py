"""The log's tables. ``events`` is the log; ``sessions`` and ``provider_calls`` are read models made of it."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with a time zone, whatever the database makes of it."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; SQLite keeps no zone."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# SQLite numbers rows by itself only in a column of the type INTEGER.
_position = BigInteger().with_variant(Integer(), "sqlite")

events = Table(
    "events",
    metadata,
    Column("position", _position, primary_key=True, autoincrement=True),
    Column("session_id", String, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("event_id", String, nullable=False),
    Column("type", String, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("call_id", String),
    Column("payload", Text, nullable=False),
    UniqueConstraint("session_id", "sequence"),
    UniqueConstraint("event_id"),
    Index(None, "call_id"),
    sqlite_autoincrement=True,
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("label", String),
    Column("started_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("aborted_calls", BigInteger, nullable=False),
    Column("cuts", BigInteger, nullable=False),
    Column("model", String),
    Index(None, "started_at"),
)

provider_calls = Table(
    "provider_calls",
    metadata,
    Column("call_id", String, primary_key=True),
    Column("session_id", String, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("outcome", String, nullable=False),
    Column("rule", String),
    Column("code", String),
    Column("fallback", String),
    Column("estimated_tokens", Float),
    Column("budget_tokens", Float),
    Column("target_tokens", Float),
    Column("resident_tokens", Float),
    Column("context_window", Float),
    Column("evicted_units", Integer, nullable=False),
    Column("advanced", Boolean, nullable=False),
    Column("response_tokens", Float),
    UniqueConstraint("session_id", "number"),
    Index(None, "outcome", "requested_at"),
    Index(None, "requested_at"),
)
