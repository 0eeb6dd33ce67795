"""The log's tables. ``events`` is the log; ``sessions`` and ``provider_calls`` are read models made of it."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from .column_types import HostText, TokenCount, UtcDateTime

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only in a column of the type INTEGER.
_position = BigInteger().with_variant(Integer(), "sqlite")

events = Table(
    "events",
    metadata,
    Column("position", _position, primary_key=True, autoincrement=True),
    Column("session_id", HostText, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("event_id", HostText, nullable=False),
    Column("type", String, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("call_id", HostText),
    Column("payload", Text, nullable=False),
    UniqueConstraint("session_id", "sequence"),
    UniqueConstraint("event_id"),
    Index(None, "call_id"),
    sqlite_autoincrement=True,
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", HostText, primary_key=True),
    Column("label", HostText),
    Column("started_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("aborted_calls", BigInteger, nullable=False),
    Column("cuts", BigInteger, nullable=False),
    Column("model", HostText),
    Index(None, "started_at"),
)

provider_calls = Table(
    "provider_calls",
    metadata,
    Column("call_id", HostText, primary_key=True),
    Column("session_id", HostText, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("outcome", String, nullable=False),
    Column("rule", String),
    Column("code", String),
    Column("fallback", String),
    Column("estimated_tokens", TokenCount),
    Column("budget_tokens", TokenCount),
    Column("target_tokens", TokenCount),
    Column("resident_tokens", TokenCount),
    Column("context_window", TokenCount),
    Column("evicted_units", Integer, nullable=False),
    Column("advanced", Boolean, nullable=False),
    Column("response_tokens", TokenCount),
    UniqueConstraint("session_id", "number"),
    Index(None, "outcome", "requested_at"),
    Index(None, "requested_at"),
)
