"""Events, and read models of sessions and provider calls."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

moment = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the three tables."""
    op.create_table(
        "events",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("recorded_at", moment, nullable=False),
        sa.Column("call_id", sa.String()),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("session_id", "sequence", name="uq_events_session_id_sequence"),
        sa.UniqueConstraint("event_id", name="uq_events_event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_call_id", "events", ["call_id"])
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("label", sa.String()),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("last_at", moment, nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("aborted_calls", sa.BigInteger(), nullable=False),
        sa.Column("cuts", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String()),
        sa.PrimaryKeyConstraint("session_id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_started_at", "sessions", ["started_at"])
    op.create_table(
        "provider_calls",
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("requested_at", moment, nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("rule", sa.String()),
        sa.Column("code", sa.String()),
        sa.Column("fallback", sa.String()),
        sa.Column("estimated_tokens", sa.Float()),
        sa.Column("budget_tokens", sa.Float()),
        sa.Column("target_tokens", sa.Float()),
        sa.Column("resident_tokens", sa.Float()),
        sa.Column("context_window", sa.Float()),
        sa.Column("evicted_units", sa.Integer(), nullable=False),
        sa.Column("advanced", sa.Boolean(), nullable=False),
        sa.Column("response_tokens", sa.Float()),
        sa.PrimaryKeyConstraint("call_id", name="pk_provider_calls"),
        sa.UniqueConstraint("session_id", "number", name="uq_provider_calls_session_id_number"),
    )
    op.create_index("ix_provider_calls_outcome_requested_at", "provider_calls", ["outcome", "requested_at"])
    op.create_index("ix_provider_calls_requested_at", "provider_calls", ["requested_at"])


def downgrade() -> None:
    """Drop the three tables."""
    op.drop_table("provider_calls")
    op.drop_table("sessions")
    op.drop_table("events")
