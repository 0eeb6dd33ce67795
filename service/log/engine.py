"""Database engines: where a log is, how it is connected to, and that its schema is current."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from context_paging.migrations import BASE_TABLE, HEAD, MIGRATION_LOCK

from .database_errors import telling_errors
from .errors import ForeignLog, LogUnavailable

BUSY_SECONDS = 10
"""How long a writer waits for another one."""
CONNECT_SECONDS = 10
"""How long connecting to a server may take."""
STATEMENT_SECONDS = 60
"""How long a server works on one statement before it gives up."""
IDLE_SECONDS = 60
"""How long a server lets a transaction wait for its client, which holds locks."""


_LIVENESS = {
    "tcp_user_timeout": CONNECT_SECONDS * 1000,
    "keepalives_idle": CONNECT_SECONDS,
    "keepalives_interval": 2,
    "keepalives_count": 5,
}


def open_engine(location: str) -> Engine:
    """An engine for a SQLAlchemy URL or the path of a SQLite file, with the current schema.

    Raises:
        LogUnavailable: the database cannot be reached.
        ForeignLog: it holds something else, or a newer log.
    """
    engine = bare_engine(location)
    with telling_errors(name_of(engine.url)):
        try:
            _ensure_schema(engine)
        except (ValueError, OverflowError) as error:
            engine.dispose()
            raise LogUnavailable(f"the log {name_of(engine.url)} cannot be opened: {error}") from None
        except BaseException:
            engine.dispose()
            raise
    return engine


def bare_engine(location: str) -> Engine:
    """An engine for a SQLAlchemy URL or the path of a SQLite file, whatever is there.

    Raises:
        LogUnavailable: there is no such kind of database.
    """
    url = _url(location)
    try:
        return _sqlite_engine(url) if url.get_backend_name() == "sqlite" else _server_engine(url)
    except ValueError as error:
        raise _unusable(url.drivername + "://", str(error)) from None


def name_of(url: URL) -> str:
    """What messages call a log: its URL without the password."""
    return url.render_as_string(hide_password=True)


def file_of(engine: Engine) -> Path | None:
    """The file of a SQLite log; nothing for one in memory or on a server."""
    if engine.dialect.name != "sqlite":
        return None
    with reading(engine.connect()) as connection:
        for _, name, path in connection.execute(text("PRAGMA database_list")):
            if name == "main" and path:
                return Path(path)
    return None


def long_work(connection: Connection) -> Connection:
    """A connection for work that takes as long as it takes."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
    return connection


def reading(connection: Connection) -> Connection:
    """A connection that takes no write lock."""
    return connection.execution_options(context_paging_reading=True)


def _url(location: str) -> URL:
    if "://" not in location:
        try:
            path = Path(location).expanduser()
            os.fsencode(path)
            is_folder = path.parent.is_dir()
        except (RuntimeError, ValueError) as error:
            raise LogUnavailable(f"{location!r} cannot be the path of a log: {error}") from None
        if not is_folder:
            raise LogUnavailable(f"the folder {path.parent} of the log does not exist; make it first")
        return URL.create("sqlite", database=str(path))
    try:
        url = make_url(location)
        dialect = url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        raise _unusable(location, str(error)) from None
    if dialect.name not in ("sqlite", "postgresql") or dialect.is_async:
        raise _unusable(location, "a log is kept in SQLite or PostgreSQL, with a synchronous driver")
    return url


def _unusable(location: str, reason: str) -> LogUnavailable:
    # Only the scheme: what follows may hold a password.
    return LogUnavailable(
        f"{location.partition('://')[0]}://… is not a database URL this installation can use: {reason}. "
        "Give a path, sqlite:///path, or postgresql+psycopg://… with the postgres extra."
    )


def _server_engine(url: URL) -> Engine:
    arguments: dict[str, Any] = {}
    if url.get_driver_name() == "psycopg":
        # What the URL says goes first.
        arguments["connect_timeout"] = url.query.get("connect_timeout", CONNECT_SECONDS)
        # A server that went without a word is noticed, too.
        for name, value in _LIVENESS.items():
            arguments[name] = url.query.get(name, value)
        arguments["options"] = (
            f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout={BUSY_SECONDS}s "
            f"-c idle_in_transaction_session_timeout={IDLE_SECONDS}s {url.query.get('options', '')} "
            # No other zone can tell every moment that UTC can.
            "-c TimeZone=UTC"
        )
    try:
        # A connection that a restart of the server has ended is found before it is used.
        return create_engine(
            url, connect_args=arguments, pool_pre_ping=True, pool_timeout=BUSY_SECONDS, pool_use_lifo=True
        )
    except ImportError as error:
        raise _unusable(url.drivername + "://", str(error)) from None


def _sqlite_engine(url: URL) -> Engine:
    in_memory = url.database in (None, "", ":memory:")
    engine = (
        # One connection is the database: threads take turns with it.
        create_engine(
            url,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            connect_args={"check_same_thread": False},
        )
        if in_memory
        else create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        # The driver must not begin transactions by itself: a writer has to take its lock at the beginning.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        _write_ahead(connection)
        # A commit waits for the disk, so that it survives a power cut; provider calls need not wait for it.
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get("context_paging_reading")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _write_ahead(connection: Any) -> None:
    # Switching the mode does not wait for other processes that do the same.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            # The mode stays with the file, and a file that is not a log is none of our business.
            if not tables or BASE_TABLE in tables:
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _ensure_schema(engine: Engine) -> None:
    with reading(engine.connect()) as connection:
        if revision_of(connection) == HEAD:
            return
    with migrating(engine) as connection:
        if revision_of(connection) == HEAD:
            return
        from context_paging.migrations.upgrade import upgrade

        upgrade(connection)


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A transaction to migrate in: one process migrates, the others wait.

    Raises:
        ForeignLog: the database holds something else, or a newer log.
    """
    with engine.begin() as connection:
        # SQLite's transaction already is such a lock.
        if engine.dialect.name == "postgresql":
            long_work(connection).execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        revision = revision_of(connection)
        if revision is None and set(inspect(connection).get_table_names()) - {BASE_TABLE}:
            raise ForeignLog(
                f"{name_of(engine.url)} holds tables of something else; give the log a database of its own"
            )
        from context_paging.migrations.upgrade import known_revisions

        if revision is not None and revision not in known_revisions():
            raise ForeignLog(
                f"{name_of(engine.url)} was written by a newer version of context-paging "
                f"(schema {revision}); upgrade this installation"
            )
        yield connection


def revision_of(connection: Connection) -> str | None:
    """The schema's revision; nothing for a database without one."""
    if not inspect(connection).has_table(BASE_TABLE):
        return None
    revision: str | None = connection.execute(text(f"SELECT version_num FROM {BASE_TABLE}")).scalar()
    return revision
