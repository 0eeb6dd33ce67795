"""Hash chain, keys, encrypted contents, retention; hosts and models of calls; partitions on PostgreSQL."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

moment = sa.DateTime(timezone=True)

EVENT_COLUMNS = (
    "position, session_id, sequence, event_id, type, schema_version, recorded_at, call_id, payload"
)


def upgrade() -> None:
    """Add what the chain needs. Earlier events stay as they are, without hashes."""
    op.create_table(
        "log_identity",
        sa.Column("log_id", sa.String(), nullable=False),
        sa.Column("unsealed_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", name="pk_log_identity"),
    )
    op.create_table(
        "log_keys",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("first_used_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_log_keys"),
    )
    op.create_table(
        "event_contents",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("content_key_id", sa.String(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "sequence", name="pk_event_contents"),
    )
    op.create_table(
        "content_keys",
        sa.Column("content_key_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary()),
        sa.Column("destroyed_at", moment),
        sa.PrimaryKeyConstraint("content_key_id", name="pk_content_keys"),
    )
    op.create_index("ix_content_keys_session_id", "content_keys", ["session_id"])
    op.create_table(
        "retired_sessions",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_hash", sa.LargeBinary()),
        sa.Column("retired_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("session_id", name="pk_retired_sessions"),
    )
    op.drop_index("ix_sessions_started_at", "sessions")
    op.add_column("sessions", sa.Column("host", sa.String()))
    op.add_column("sessions", sa.Column("last_hash", sa.LargeBinary()))
    op.create_index("ix_sessions_started_at_session_id", "sessions", ["started_at", "session_id"])
    op.create_index(
        "ix_sessions_host_started_at_session_id", "sessions", ["host", "started_at", "session_id"]
    )
    _widen_calls()
    if op.get_context().dialect.name == "postgresql":
        _partition_events()
    else:
        _widen_events()


def downgrade() -> None:
    """Take it all away again: hashes, keys and encrypted contents are gone for good."""
    if op.get_context().dialect.name == "postgresql":
        _join_partitions()
    else:
        _narrow_events()
    for name in ("requested_at", "outcome_requested_at", "code_requested_at", "host_requested_at"):
        op.drop_index(f"ix_provider_calls_{name}_call_id", "provider_calls")
    op.drop_index("ix_provider_calls_model_requested_at_call_id", "provider_calls")
    for name in ("last_sequence", "host", "model"):
        op.drop_column("provider_calls", name)
    op.create_index("ix_provider_calls_outcome_requested_at", "provider_calls", ["outcome", "requested_at"])
    op.create_index("ix_provider_calls_requested_at", "provider_calls", ["requested_at"])
    op.drop_index("ix_sessions_host_started_at_session_id", "sessions")
    op.drop_index("ix_sessions_started_at_session_id", "sessions")
    op.drop_column("sessions", "last_hash")
    op.drop_column("sessions", "host")
    op.create_index("ix_sessions_started_at", "sessions", ["started_at"])
    for name in ("retired_sessions", "content_keys", "event_contents", "log_keys", "log_identity"):
        op.drop_table(name)


def _widen_calls() -> None:
    op.drop_index("ix_provider_calls_outcome_requested_at", "provider_calls")
    op.drop_index("ix_provider_calls_requested_at", "provider_calls")
    op.add_column(
        "provider_calls", sa.Column("last_sequence", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("provider_calls", sa.Column("host", sa.String()))
    op.add_column("provider_calls", sa.Column("model", sa.String()))
    op.execute(
        "UPDATE provider_calls SET last_sequence = coalesce((SELECT max(events.sequence) FROM events "
        "WHERE events.call_id = provider_calls.call_id AND events.session_id = provider_calls.session_id), "
        "sequence), "
        "model = (SELECT sessions.model FROM sessions WHERE sessions.session_id = provider_calls.session_id)"
    )
    if op.get_context().dialect.name == "postgresql":
        op.alter_column("provider_calls", "last_sequence", server_default=None)
    for names in (
        ["requested_at", "call_id"],
        ["outcome", "requested_at", "call_id"],
        ["code", "requested_at", "call_id"],
        ["host", "requested_at", "call_id"],
        ["model", "requested_at", "call_id"],
    ):
        op.create_index(f"ix_provider_calls_{'_'.join(names)}", "provider_calls", names)


def _event_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("recorded_at", moment, nullable=False),
        sa.Column("call_id", sa.String()),
        sa.Column("payload", sa.Text(), nullable=False),
    ]


def _new_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("period", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary()),
        sa.Column("key_id", sa.String()),
        sa.Column("previous_hash", sa.LargeBinary()),
        sa.Column("hash", sa.LargeBinary()),
        sa.Column("seal", sa.LargeBinary()),
    ]


def _put_aside() -> None:
    op.rename_table("events", "events_before")
    op.drop_index("ix_events_call_id", "events_before")


def _widen_events() -> None:
    _put_aside()
    op.create_table(
        "events",
        sa.Column("position", sa.Integer(), autoincrement=True),
        *_event_columns(),
        *_new_columns(),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("session_id", "sequence", "period", name="uq_events_session_id_sequence_period"),
        sa.UniqueConstraint("event_id", "period", name="uq_events_event_id_period"),
        sqlite_autoincrement=True,
    )
    op.execute(
        f"INSERT INTO events ({EVENT_COLUMNS}, period) SELECT {EVENT_COLUMNS}, "
        "(SELECT CAST(strftime('%Y%m', first.recorded_at) AS INTEGER) FROM events_before AS first "
        "WHERE first.session_id = events_before.session_id AND first.sequence = 1) "
        "FROM events_before ORDER BY position"
    )
    op.execute(
        "INSERT INTO log_identity SELECT lower(hex(randomblob(16))), "
        "(SELECT coalesce(max(position), 0) FROM events)"
    )
    op.drop_table("events_before")


def _narrow_events() -> None:
    op.rename_table("events", "events_after")
    op.create_table(
        "events",
        sa.Column("position", sa.Integer(), autoincrement=True),
        *_event_columns(),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("session_id", "sequence", name="uq_events_session_id_sequence"),
        sa.UniqueConstraint("event_id", name="uq_events_event_id"),
        sqlite_autoincrement=True,
    )
    op.execute(f"INSERT INTO events ({EVENT_COLUMNS}) SELECT {EVENT_COLUMNS} FROM events_after")
    op.drop_table("events_after")
    op.create_index("ix_events_call_id", "events", ["call_id"])


def _partition_events() -> None:
    _put_aside()
    for constraint in ("pk_events", "uq_events_session_id_sequence", "uq_events_event_id"):
        op.execute(f"ALTER TABLE events_before RENAME CONSTRAINT {constraint} TO before_{constraint}")
    op.create_table(
        "events",
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("nextval('events_position_seq')"),
        ),
        *_event_columns(),
        *_new_columns(),
        sa.PrimaryKeyConstraint("position", "period", name="pk_events"),
        sa.UniqueConstraint("session_id", "sequence", "period", name="uq_events_session_id_sequence_period"),
        sa.UniqueConstraint("event_id", "period", name="uq_events_event_id_period"),
        postgresql_partition_by="LIST (period)",
    )
    op.execute("ALTER SEQUENCE events_position_seq OWNED BY events.position")
    # What has no partition of its own; the log makes one for each month as it comes.
    op.execute("CREATE TABLE events_other PARTITION OF events DEFAULT")
    op.execute(
        f"INSERT INTO events ({EVENT_COLUMNS}, period) SELECT {EVENT_COLUMNS}, "
        "(SELECT CAST(to_char(first.recorded_at AT TIME ZONE 'UTC', 'YYYYMM') AS INTEGER) "
        "FROM events_before AS first "
        "WHERE first.session_id = events_before.session_id AND first.sequence = 1) "
        "FROM events_before ORDER BY position"
    )
    op.execute(
        "INSERT INTO log_identity SELECT replace(gen_random_uuid()::text, '-', ''), "
        "(SELECT coalesce(max(position), 0) FROM events)"
    )
    op.drop_table("events_before")


def _join_partitions() -> None:
    op.rename_table("events", "events_after")
    for constraint in (
        "pk_events",
        "uq_events_session_id_sequence_period",
        "uq_events_event_id_period",
    ):
        op.drop_constraint(constraint, "events_after")
    op.create_table(
        "events",
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("nextval('events_position_seq')"),
        ),
        *_event_columns(),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("session_id", "sequence", name="uq_events_session_id_sequence"),
        sa.UniqueConstraint("event_id", name="uq_events_event_id"),
    )
    op.execute("ALTER SEQUENCE events_position_seq OWNED BY events.position")
    op.execute(f"INSERT INTO events ({EVENT_COLUMNS}) SELECT {EVENT_COLUMNS} FROM events_after")
    op.drop_table("events_after")
    op.create_index("ix_events_call_id", "events", ["call_id"])
