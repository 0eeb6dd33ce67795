"""Reading a log: what the sessions in it came to, and the events themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, select, text

from . import queries
from .database_errors import telling_errors
from .engine import name_of, reading
from .errors import UnknownCall, UnknownEvent, UnknownSession
from .queries import CallQuery, Page, SessionQuery
from .records import StoredCall, StoredEvent, StoredSession
from .tables import events, provider_calls, sessions
from .tail import TailPlace, read_on

READ_AT_ONCE = 1_000
POLL_SECONDS = 0.25
LEADING_EVENTS = 16
"""How many events before a call's request may belong to it: those that led to it."""


class LogReader:
    """Answers from a log's database. Every method raises `LogUnavailable` when it cannot be read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = name_of(engine.url)

    def settle(self) -> None:
        """Wait until the database has everything that there is to read."""

    def sessions(self) -> list[StoredSession]:
        """All sessions, the one that started last at the end."""
        rows = self._rows(select(sessions).order_by(sessions.c.started_at, sessions.c.session_id))
        return [StoredSession._make(row) for row in rows]

    def find_sessions(
        self, query: SessionQuery | None = None, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredSession]:
        """A page of the sessions that a query matches.

        Raises:
            InvalidQuery: ``cursor`` is not the ``next`` of a page of this query.
        """
        statement = queries.session_statement(query or SessionQuery(), cursor, limit)
        return queries.session_page(self._rows(statement), limit)

    def session(self, session_id: str) -> StoredSession:
        """One session.

        Raises:
            UnknownSession: there is none with this id.
        """
        rows = self._rows(select(sessions).where(sessions.c.session_id == session_id))
        if not rows:
            raise UnknownSession(f"the log has no session {session_id!r}")
        return StoredSession._make(rows[0])

    def last_sequence(self, session_id: str) -> int:
        """Where a writer of a session goes on; 0 for a session the log does not have."""
        found = self._rows(select(sessions.c.last_sequence).where(sessions.c.session_id == session_id))
        return int(found[0][0]) if found else 0

    def find_calls(
        self, query: CallQuery | None = None, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredCall]:
        """A page of the provider calls that a query matches.

        Raises:
            InvalidQuery: ``cursor`` is not the ``next`` of a page of this query.
        """
        query = query or CallQuery()
        return queries.call_page(self._rows(queries.call_statement(query, cursor, limit)), query, limit)

    def calls(
        self,
        session_id: str | None = None,
        outcome: str | None = None,
        limit: int | None = None,
        *,
        newest_first: bool = False,
    ) -> list[StoredCall]:
        """Provider calls, of one session or outcome if given, in the order they were requested.

        Within one session that is the order of their numbers, whatever the clock did.
        """
        query = CallQuery(session_id, outcome, newest_first=newest_first)
        found: list[StoredCall] = []
        cursor = None
        while limit is None or len(found) < limit:
            size = READ_AT_ONCE if limit is None else min(READ_AT_ONCE, limit - len(found))
            page = self.find_calls(query, cursor=cursor, limit=size)
            found += page.rows
            cursor = page.next
            if cursor is None:
                break
        return found

    def call(self, call_id: str) -> StoredCall:
        """One provider call.

        Raises:
            UnknownCall: there is none with this id.
        """
        rows = self._rows(select(provider_calls).where(provider_calls.c.call_id == call_id))
        if not rows:
            raise UnknownCall(f"the log has no provider call {call_id!r}")
        return StoredCall._make(rows[0])

    def call_number(self, session_id: str, number: int) -> StoredCall | None:
        """The provider call with a number, which counts from 1 within its session."""
        call = provider_calls.c
        rows = self._rows(select(provider_calls).where(call.session_id == session_id, call.number == number))
        return StoredCall._make(rows[0]) if rows else None

    def call_named(self, session_id: str, given: str) -> StoredCall:
        """The provider call of a session with a number, or any with an id.

        Raises:
            UnknownCall: there is none.
        """
        numbered = None
        if given.isdecimal() and len(given) < 19:
            numbered = self.call_number(session_id, int(given))
        return self.call(given) if numbered is None else numbered

    def last_call(self, session_id: str, outcome: str | None = None) -> StoredCall | None:
        """The newest provider call of a session, with an outcome if given."""
        found = self.calls(session_id, outcome, 1, newest_first=True)
        return found[0] if found else None

    def timeline(
        self, session_id: str, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredEvent]:
        """A page of a session's events, the oldest first.

        Raises:
            InvalidQuery: ``cursor`` is not the ``next`` of a page of a timeline.
        """
        rows = self._rows(queries.timeline_statement(session_id, cursor, limit))
        return queries.timeline_page(rows, limit)

    def events(
        self, session_id: str, after: int = 0, until: int | None = None, call_id: str | None = None
    ) -> Iterator[StoredEvent]:
        """Events of a session with a sequence above ``after``, up to ``until``, in order."""
        query = select(events).where(events.c.session_id == session_id).order_by(events.c.sequence)
        if call_id is not None:
            query = query.where(events.c.call_id == call_id)
            found = self._rows(select(provider_calls).where(provider_calls.c.call_id == call_id))
            if found:
                call = StoredCall._make(found[0])
                after = max(after, call.sequence - 1 - LEADING_EVENTS)
                until = call.last_sequence if until is None else min(until, call.last_sequence)
        if until is not None:
            query = query.where(events.c.sequence <= until)
        while True:
            rows = self._rows(query.where(events.c.sequence > after).limit(READ_AT_ONCE))
            for row in rows:
                yield StoredEvent.make(row)
            if len(rows) < READ_AT_ONCE:
                return
            after = rows[-1].sequence

    def read_on(self, place: TailPlace, limit: int = READ_AT_ONCE) -> tuple[list[StoredEvent], TailPlace]:
        """The next events by position, without gaps, and where to go on; none if none is certain."""
        self.settle()
        with telling_errors(self._name), self._reading() as connection:
            found = read_on(connection, place, limit)
            # Ends the transaction, whose id the reader may have taken for its fence.
            connection.commit()
        return found

    def tail(
        self,
        after: int = 0,
        *,
        follow: bool = True,
        poll_seconds: float = POLL_SECONDS,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[StoredEvent]:
        """All events with a position above ``after``, by position, and, with ``follow``, those to come.

        Each comes once, and none is left out that becomes visible late: see
        `context_paging.service.log.tail`.
        """
        place = TailPlace(after)
        while not stop():
            found, place = self.read_on(place)
            yield from found
            if not found and not place.doubted:
                if not follow:
                    return
                time.sleep(poll_seconds)
            elif not found:
                time.sleep(min(poll_seconds, 0.01))

    def read_position(self, position: int) -> StoredEvent:
        """The event with a position.

        Raises:
            UnknownEvent: there is none.
        """
        rows = self._rows(select(events).where(events.c.position == position))
        if not rows:
            raise UnknownEvent(f"the log has no event at position {position}")
        return StoredEvent.make(rows[0])

    def last_position(self) -> int:
        """The position of the newest event; 0 in an empty log."""
        rows = self._rows(select(events.c.position).order_by(events.c.position.desc()).limit(1))
        return int(rows[0][0]) if rows else 0

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """All queries see one snapshot."""
        with reading(self._engine.connect()) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            yield connection

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        self.settle()
        with telling_errors(self._name), reading(self._engine.connect()) as connection:
            return connection.execute(query).all()
