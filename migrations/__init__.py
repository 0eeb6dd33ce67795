"""The schema of the log, as Alembic migrations."""

HEAD = "0002"
"""The newest revision; known without loading Alembic, so that opening a current log is fast."""
MIGRATION_LOCK = 0x636F6E74657874
"""Key of the advisory lock that a migration holds on PostgreSQL."""
BASE_TABLE = "context_paging_schema"
"""Where a database keeps its revision."""
