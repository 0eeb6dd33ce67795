"""The log: append events of live sessions, read what they came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, Row, Select, select
from sqlalchemy.exc import IntegrityError

from .append import append, repeated, rows_of
from .database_errors import telling_errors
from .engine import name_of, open_engine, reading
from .errors import UnknownCall, UnknownSession
from .rebuild import rebuild
from .records import Record, StoredCall, StoredEvent, StoredSession
from .tables import events, provider_calls, sessions

MEMORY = "sqlite://"
READ_AT_ONCE = 1_000


class EventLog:
    """A durable log of events. Safe to share between threads, each with its own sessions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = name_of(engine.url)

    @classmethod
    def open(cls, location: str | None = None) -> Self:
        """Open a log, and make or migrate its tables.

        ``location`` is a SQLAlchemy URL or the path of a SQLite file; without one the log is in memory.

        Raises:
            LogUnavailable: the database cannot be reached or written.
            ForeignLog: the database is not a log, or one of a newer version.
        """
        return cls(open_engine(location or MEMORY))

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        """Append records to a session in one transaction, with the read models; all or nothing.

        ``expected_sequence`` is the last sequence the writer knows, 0 for a new session. Records the session
        already took, all of them and in this order, are a no-op. ``label`` names a new session for people.

        Returns:
            The sequence of the last record.

        Raises:
            SessionConflict: another writer appended to the session, or an event or call id is taken.
            InvalidEvent: an event holds what cannot be stored.
            LogUnavailable: the database does not take the records.
        """
        if not records:
            return expected_sequence
        rows = rows_of(session_id, expected_sequence, records)
        with telling_errors(self._name):
            try:
                with self._engine.begin() as connection:
                    return append(connection, session_id, expected_sequence, records, rows, label)
            except IntegrityError:
                # A writer on another connection was faster, or these very records are there already.
                with reading(self._engine.connect()) as connection:
                    return repeated(connection, session_id, expected_sequence, records)

    def sessions(self) -> list[StoredSession]:
        """All sessions, the one that started last at the end."""
        rows = self._rows(select(sessions).order_by(sessions.c.started_at, sessions.c.session_id))
        return [StoredSession._make(row) for row in rows]

    def session(self, session_id: str) -> StoredSession:
        """One session.

        Raises:
            UnknownSession: there is none with this id.
        """
        rows = self._rows(select(sessions).where(sessions.c.session_id == session_id))
        if not rows:
            raise UnknownSession(f"the log has no session {session_id!r}")
        return StoredSession._make(rows[0])

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
        query = select(provider_calls)
        if session_id is not None:
            query = query.where(provider_calls.c.session_id == session_id)
        if outcome is not None:
            query = query.where(provider_calls.c.outcome == outcome)
        by_number = (provider_calls.c.number,)
        by_time = (provider_calls.c.requested_at, provider_calls.c.session_id, provider_calls.c.number)
        order = by_time if session_id is None else by_number
        query = query.order_by(*((column.desc() for column in order) if newest_first else order))
        rows = self._rows(query if limit is None else query.limit(limit))
        return [StoredCall._make(row) for row in rows]

    def call(self, call_id: str) -> StoredCall:
        """One provider call.

        Raises:
            UnknownCall: there is none with this id.
        """
        rows = self._rows(select(provider_calls).where(provider_calls.c.call_id == call_id))
        if not rows:
            raise UnknownCall(f"the log has no provider call {call_id!r}")
        return StoredCall._make(rows[0])

    def last_call(self, session_id: str, outcome: str | None = None) -> StoredCall | None:
        """The newest provider call of a session, with an outcome if given."""
        found = self.calls(session_id, outcome, 1, newest_first=True)
        return found[0] if found else None

    def events(
        self, session_id: str, after: int = 0, until: int | None = None, call_id: str | None = None
    ) -> Iterator[StoredEvent]:
        """Events of a session with a sequence above ``after``, up to ``until``, in order."""
        query = select(events).where(events.c.session_id == session_id).order_by(events.c.sequence)
        if until is not None:
            query = query.where(events.c.sequence <= until)
        if call_id is not None:
            query = query.where(events.c.call_id == call_id)
        while True:
            rows = self._rows(query.where(events.c.sequence > after).limit(READ_AT_ONCE))
            for row in rows:
                yield StoredEvent.make(row)
            if len(rows) < READ_AT_ONCE:
                return
            after = rows[-1].sequence

    def rebuild(self) -> int:
        """Make the read models again from the events; labels stay. Returns the number of sessions.

        Raises:
            InvalidEvent: a stored event cannot be read; nothing has changed.
        """
        with telling_errors(self._name), self._engine.begin() as connection:
            return rebuild(connection)

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with telling_errors(self._name), reading(self._engine.connect()) as connection:
            return connection.execute(query).all()
