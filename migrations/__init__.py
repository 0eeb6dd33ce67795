"""The schema of the log, as Alembic migrations."""

HEAD = "0002"
"""The newest revision; known without loading Alembic, so that opening a current log is fast."""
BASE_TABLE = "context_paging_schema"
"""Where a database keeps its revision."""
