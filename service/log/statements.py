"""SQL that runs at every append: compiled once, and run on the driver's own cursor.

SQLAlchemy writes the statements and says how each value is passed to the database. Its execution, which costs
several times what SQLite needs to write a row, is left out here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Dialect,
    Engine,
    LargeBinary,
    Select,
    Table,
    bindparam,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import ClauseElement

from .column_types import HostText, UtcDateTime, stored_text
from .tables import content_keys, event_contents, events, log_keys, provider_calls, sessions

_NAMED = re.compile(r"%\((\w+)\)s")
_VALUES = re.compile(r"(?<=VALUES )\(.*\)")
ROWS_AT_ONCE = 50


class Statement:
    """A statement for one dialect; values are given by name or in the order of `names`."""

    def __init__(self, clause: ClauseElement, dialect: Dialect) -> None:
        compiled: Any = clause.compile(dialect=dialect)
        if dialect.positional:
            self.text = str(compiled)
            self.names: Sequence[str] = tuple(compiled.positiontup)
        else:
            self.names = tuple(_NAMED.findall(str(compiled)))
            self.text = _NAMED.sub("%s", str(compiled))
        processors = [_processor(compiled.binds[name].type, dialect) for name in self.names]
        self._processors = [(place, made) for place, made in enumerate(processors) if made is not None]
        self._many = cache(self._text_for)
        self._dialect = dialect
        self._columns = list(clause.selected_columns) if isinstance(clause, Select) else []
        self._results: list[Callable[[Any], Any] | None] | None = None

    def run(self, cursor: Any, values: Mapping[str, Any]) -> Any:
        """Run it for one set of values; the cursor."""
        return self.run_row(cursor, [values[name] for name in self.names])

    def run_row(self, cursor: Any, row: Sequence[Any]) -> Any:
        """Run it for values in the order of `names`; the cursor."""
        return cursor.execute(self.text, self.bound(row))

    def rows(self, cursor: Any, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a query; its rows, as SQLAlchemy would return them."""
        self.run(cursor, values)
        if self._results is None:
            # Only the driver knows what it makes of a type.
            self._results = [
                column.type.dialect_impl(self._dialect).result_processor(self._dialect, described[1])
                for column, described in zip(self._columns, cursor.description, strict=True)
            ]
        return [
            tuple(
                value if process is None else process(value)
                for value, process in zip(row, self._results, strict=True)
            )
            for row in cursor.fetchall()
        ]

    def run_many(self, cursor: Any, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, many of them with each call of the driver."""
        for first in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[first : first + ROWS_AT_ONCE]
            values = [value for row in some for value in self.bound(row)]
            cursor.execute(self._many(len(some)), values)

    def bound(self, row: Iterable[Any]) -> list[Any]:
        """Values in order, as the driver takes them."""
        values = list(row)
        for place, process in self._processors:
            values[place] = process(values[place])
        return values

    def _text_for(self, rows: int) -> str:
        return _VALUES.sub(lambda match: ", ".join([match[0]] * rows), self.text)


CHANGING_SESSION_COLUMNS = (
    "last_at",
    "last_sequence",
    "events",
    "calls",
    "aborted_calls",
    "cuts",
    "model",
    "last_hash",
)
"""What an append changes in a session's row, in the order of `update_session`: none is in an index."""

# Columns that are in no index: a response changes only these.
_UNANSWERED = {column.name for column in provider_calls.c} - {"response_tokens", "last_sequence"}


class Statements:
    """The statements of an append, for one dialect. What changes often is set without touching an index."""

    def __init__(self, dialect: Dialect) -> None:
        def made(clause: ClauseElement) -> Statement:
            return Statement(clause, dialect)

        session_key = bindparam("key", type_=sessions.c.session_id.type)
        call_key = bindparam("key", type_=provider_calls.c.call_id.type)
        self.insert_events = made(insert(events).values(_columns(events.c, {"position"})))
        self.insert_session = made(insert(sessions).values(_columns(sessions.c)))
        self.insert_calls = made(insert(provider_calls).values(_columns(provider_calls.c)))
        self.insert_contents = made(insert(event_contents).values(_columns(event_contents.c)))
        self.insert_content_key = made(_insert_unless_there(content_keys, dialect, {"destroyed_at"}))
        self.insert_log_key = made(_insert_unless_there(log_keys, dialect))
        # Only if nobody else appended since the session was read.
        self.update_session = made(
            update(sessions)
            .where(
                sessions.c.session_id == session_key,
                sessions.c.last_sequence == bindparam("before", type_=BigInteger()),
                # A session that was retired and begun anew may have the same length.
                sessions.c.last_hash.is_not_distinct_from(bindparam("head", type_=LargeBinary())),
            )
            .values(_columns(sessions.c, {c.name for c in sessions.c} - set(CHANGING_SESSION_COLUMNS)))
        )
        self.update_host = made(
            update(sessions)
            .where(sessions.c.session_id == session_key)
            .values(_columns(sessions.c, without={c.name for c in sessions.c} - {"host"}))
        )
        self.update_call = made(
            update(provider_calls)
            .where(provider_calls.c.call_id == call_key)
            .values(_columns(provider_calls.c, {"call_id"}))
        )
        self.answer_call = made(
            update(provider_calls)
            .where(provider_calls.c.call_id == call_key)
            .values(_columns(provider_calls.c, _UNANSWERED))
        )
        # PostgreSQL locks the row, and waits for a rebuild that holds the table; SQLite has one writer
        # anyway.
        self.select_session = made(
            select(sessions).where(sessions.c.session_id == session_key).with_for_update()
        )
        self.select_call = made(select(provider_calls).where(provider_calls.c.call_id == call_key))
        event_key = bindparam("event", type_=events.c.event_id.type)
        of_session = events.c.session_id == session_key
        self.select_sequence = made(
            select(events.c.sequence).where(events.c.event_id == event_key, of_session)
        )
        self.select_event_ids = made(
            select(events.c.event_id)
            .where(of_session, events.c.sequence.between(bindparam("first"), bindparam("last")))
            .order_by(events.c.sequence)
        )


class WriteConnections:
    """Connections of the driver for write transactions.

    A SQLite file has one writer at a time, which ``keeps`` its connection; a server has a pool.
    """

    def __init__(self, engine: Engine, *, keeps: bool) -> None:
        self._engine = engine
        self._keeps = keeps
        self._kept: Any = None

    def transaction(self) -> WriteTransaction:
        """A write transaction, as a context that gives its cursor."""
        return WriteTransaction(self._engine, self._connection, keeps=self._keeps)

    def close(self) -> None:
        """Close what is kept."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _connection(self) -> Any:
        if not self._keeps:
            return self._engine.raw_connection()
        if self._kept is None:
            self._kept = self._engine.raw_connection()
            self._kept.detach()
        return self._kept


class WriteTransaction:
    """A write transaction on the driver's connection.

    Raises:
        DBAPIError: the driver's error, of the kind SQLAlchemy makes of it.
    """

    def __init__(self, engine: Engine, connect: Callable[[], Any], *, keeps: bool) -> None:
        self._dialect = engine.dialect
        self._driver: Any = engine.dialect.loaded_dbapi
        self._connect = connect
        self._keeps = keeps
        self._connection: Any = None

    def __enter__(self) -> Any:
        try:
            self._connection = self._connect()
            cursor = self._connection.cursor()
            if self._dialect.name == "sqlite":
                cursor.execute("BEGIN IMMEDIATE")
        except self._driver.Error as error:
            raise self._ended(error) from error
        return cursor

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            try:
                self._connection.commit()
            except self._driver.Error as failure:
                raise self._ended(failure) from failure
            self._give_back()
        elif isinstance(error, self._driver.Error):
            raise self._ended(error) from error
        else:
            with suppress(self._driver.Error):
                self._connection.rollback()
            self._give_back()

    def _ended(self, error: Any) -> BaseException:
        connection = self._connection
        lost = connection is not None and self._dialect.is_disconnect(
            error, connection.driver_connection, None
        )
        if lost:
            connection.invalidate()
        elif connection is not None:
            with suppress(self._driver.Error):
                connection.rollback()
        self._give_back()
        wrapped: BaseException = DBAPIError.instance(
            None, None, error, self._driver.Error, connection_invalidated=lost, dialect=self._dialect
        )
        return wrapped

    def _give_back(self) -> None:
        if self._connection is not None and not self._keeps:
            self._connection.close()


def _processor(kind: Any, dialect: Dialect) -> Callable[[Any], Any] | None:
    if isinstance(kind, LargeBinary):
        # Both drivers take bytes as they are.
        return None
    if isinstance(kind, HostText):
        return stored_text
    found: Callable[[Any], Any] | None = kind.dialect_impl(dialect).bind_processor(dialect)
    if found is not None and isinstance(kind, UtcDateTime):
        # Events of one append have one moment, and SQLite wants it as text.
        return lru_cache(maxsize=64)(found)
    return found


def _columns(columns: Any, without: Iterable[str] = ()) -> dict[str, Any]:
    return {
        column.name: bindparam(column.name, type_=column.type)
        for column in columns
        if column.name not in set(without)
    }


def _insert_unless_there(table: Table, dialect: Dialect, without: Iterable[str] = ()) -> ClauseElement:
    values = _columns(table.c, without)
    if dialect.name == "postgresql":
        return postgresql.insert(table).values(values).on_conflict_do_nothing()
    return sqlite.insert(table).values(values).on_conflict_do_nothing()
