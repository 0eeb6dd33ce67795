"""Alembic's environment: migrations run over the connection they are given."""

from alembic import context
from sqlalchemy import Connection

from context_paging.migrations import BASE_TABLE
from context_paging.service.log.tables import metadata

connection: Connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=BASE_TABLE,
    compare_type=True,
    render_as_batch=connection.dialect.name == "sqlite",
)
context.run_migrations()
