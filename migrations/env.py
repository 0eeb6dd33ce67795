"""Alembic's environment: migrations run over the connection they are given, or are written as SQL."""

from alembic import context

from context_paging.migrations import BASE_TABLE
from context_paging.service.log.tables import metadata

attributes = context.config.attributes
if context.is_offline_mode():
    context.configure(
        dialect_name=attributes["dialect"],
        target_metadata=metadata,
        version_table=BASE_TABLE,
        literal_binds=True,
        transactional_ddl=True,
        output_buffer=attributes["output"],
    )
    with context.begin_transaction():
        if attributes["dialect"] == "postgresql":
            context.execute(f"SELECT pg_advisory_xact_lock({attributes['lock']})")
        context.run_migrations()
else:
    context.configure(
        connection=attributes["connection"],
        target_metadata=metadata,
        version_table=BASE_TABLE,
        compare_type=True,
        # Partitions come and go; their shape is that of the table they are of.
        include_name=lambda name, kind, _: kind != "table" or not str(name).startswith("events_"),
        render_as_batch=attributes["connection"].dialect.name == "sqlite",
    )
    context.run_migrations()
