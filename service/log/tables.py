"""The log's tables. ``events`` is the log; ``sessions`` and ``provider_calls`` are read models made of it.

On PostgreSQL ``events`` is partitioned by ``period``, the month in which the session began: a session is
never split, its chain stays whole, and the constraints hold for a session as if there were no partitions.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
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
    Column("period", Integer, nullable=False),
    Column("content_hash", LargeBinary),
    Column("key_id", String),
    Column("previous_hash", LargeBinary),
    Column("hash", LargeBinary),
    Column("seal", LargeBinary),
    UniqueConstraint("session_id", "sequence", "period"),
    UniqueConstraint("event_id", "period"),
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
    Column("host", HostText),
    Column("last_hash", LargeBinary),
    Index(None, "started_at", "session_id"),
    Index(None, "host", "started_at", "session_id"),
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
    Column("last_sequence", BigInteger, nullable=False),
    Column("host", HostText),
    Column("model", HostText),
    UniqueConstraint("session_id", "number"),
    Index(None, "requested_at", "call_id"),
    Index(None, "outcome", "requested_at", "call_id"),
    Index(None, "code", "requested_at", "call_id"),
    Index(None, "host", "requested_at", "call_id"),
    Index(None, "model", "requested_at", "call_id"),
)

log_identity = Table(
    "log_identity",
    metadata,
    Column("log_id", String, primary_key=True),
    # The last position that was written before records were hashed and sealed.
    Column("unsealed_until", BigInteger, nullable=False),
)
"""One row: which log this is."""

log_keys = Table(
    "log_keys",
    metadata,
    Column("key_id", String, primary_key=True),
    Column("first_used_at", UtcDateTime, nullable=False),
)
"""Ids of the keys that sealed records; the keys themselves are in files."""

event_contents = Table(
    "event_contents",
    metadata,
    Column("session_id", HostText, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("content_key_id", String, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
)
"""What hosts passed with an event, encrypted; only with ``payloads = full``."""

content_keys = Table(
    "content_keys",
    metadata,
    Column("content_key_id", String, primary_key=True),
    Column("session_id", HostText, nullable=False),
    Column("wrapped_key", LargeBinary),
    Column("destroyed_at", UtcDateTime),
    Index(None, "session_id"),
)
"""Keys of contents, wrapped by the log's key. An erased session's are empty."""

retired_sessions = Table(
    "retired_sessions",
    metadata,
    Column("session_id", HostText, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
    Column("last_hash", LargeBinary),
    Column("retired_at", UtcDateTime, nullable=False),
)
"""Sessions that retention took out, with the head of their chains."""
