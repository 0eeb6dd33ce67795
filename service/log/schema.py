"""The schema of a log's database: which one it is, and moving it by hand."""

from __future__ import annotations

from context_paging.migrations import HEAD

from .database_errors import telling_errors
from .engine import bare_engine, migrating, name_of, reading, revision_of
from .errors import SchemaMismatch


def current(location: str) -> str | None:
    """The revision of a database; nothing for one without a log.

    Raises:
        LogUnavailable: it cannot be reached.
    """
    engine = bare_engine(location)
    try:
        with telling_errors(name_of(engine.url)), reading(engine.connect()) as connection:
            return revision_of(connection)
    finally:
        engine.dispose()


def check(location: str) -> None:
    """See that a database has the schema this installation works with, table by table.

    Raises:
        LogUnavailable: it cannot be reached.
        SchemaMismatch: it has another one.
    """
    from alembic.util import CommandError

    from context_paging.migrations.upgrade import check as compare

    engine = bare_engine(location)
    try:
        with telling_errors(name_of(engine.url)), reading(engine.connect()) as connection:
            revision = revision_of(connection)
            if revision != HEAD:
                raise SchemaMismatch(
                    f"{name_of(engine.url)} has schema {revision or 'none'}; this installation works with "
                    f"{HEAD}; `context-paging db upgrade` brings it there"
                )
            try:
                compare(connection)
            except CommandError as error:
                raise SchemaMismatch(f"{name_of(engine.url)} was changed by hand: {error}") from None
    finally:
        engine.dispose()


def move(location: str, revision: str, *, down: bool = False) -> str | None:
    """Bring a database to a revision; the one it has then.

    Raises:
        LogUnavailable: it cannot be reached or written; nothing has changed.
        ForeignLog: it is no log, or a newer one.
        SchemaMismatch: there is no such revision in that direction.
    """
    from alembic.util import CommandError

    from context_paging.migrations.upgrade import downgrade, upgrade

    engine = bare_engine(location)
    try:
        with telling_errors(name_of(engine.url)), migrating(engine) as connection:
            try:
                (downgrade if down else upgrade)(connection, revision)
            except (CommandError, AssertionError, ValueError) as error:
                raise SchemaMismatch(f"the schema cannot be moved to {revision!r}: {error}") from None
            return revision_of(connection)
    finally:
        engine.dispose()
