"""The log: append events of live sessions, read what they came to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Row, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from context_paging.domain.events import SCHEMA_VERSION, TurnEnded

from .codec import encode
from .engine import open_engine, reading, telling_errors
from .errors import SessionConflict, UnknownCall, UnknownSession
from .read_models import NewEvent, SessionModel
from .records import Record, StoredCall, StoredEvent, StoredSession
from .tables import events, provider_calls, sessions

MEMORY = "sqlite://"
READ_AT_ONCE = 1_000


class EventLog:
    """A durable log of events. Safe to share between threads, each with its own sessions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = engine.url.render_as_string(hide_password=True)

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

        ``expected_sequence`` is the last sequence the writer knows, 0 for a new session. Repeating an append
        that was acknowledged changes nothing. ``label`` names a new session for people.

        Returns:
            The sequence of the last record.

        Raises:
            SessionConflict: another writer appended to the session.
            LogUnavailable: the database does not take the records.
        """
        if not records:
            return expected_sequence
        payloads = [encode(record.event) for record in records]
        with telling_errors(self._name):
            try:
                with self._engine.begin() as connection:
                    return _append(connection, session_id, expected_sequence, records, payloads, label)
            except IntegrityError:
                # A writer on another connection was faster, or this very append was acknowledged before.
                with reading(self._engine.connect()) as connection:
                    return _repeated(connection, session_id, expected_sequence, records)

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
        """Provider calls, of one session or outcome if given, in the order they were requested."""
        query = select(provider_calls)
        if session_id is not None:
            query = query.where(provider_calls.c.session_id == session_id)
        if outcome is not None:
            query = query.where(provider_calls.c.outcome == outcome)
        order = (provider_calls.c.requested_at, provider_calls.c.session_id, provider_calls.c.number)
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
                yield _stored_event(row)
            if len(rows) < READ_AT_ONCE:
                return
            after = rows[-1].sequence

    def rebuild(self) -> int:
        """Make the read models again from the events; labels stay. Returns the number of sessions.

        Raises:
            InvalidEvent: a stored event cannot be read; nothing has changed.
        """
        labels = {session.session_id: session.label for session in self.sessions()}
        with telling_errors(self._name), self._engine.begin() as connection:
            connection.execute(delete(provider_calls))
            connection.execute(delete(sessions))
            ids = connection.scalars(select(events.c.session_id).distinct()).all()
            for session_id in ids:
                model = SessionModel()
                query = select(events).where(events.c.session_id == session_id).order_by(events.c.sequence)
                stored = (_stored_event(row) for row in connection.execute(query))
                new = (NewEvent(s.event, s.sequence, s.recorded_at, s.call_id) for s in stored)
                model.fold(session_id, labels.get(session_id), new)
                _write_models(connection, model, known=set(), is_new=True)
        return len(ids)

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with telling_errors(self._name), reading(self._engine.connect()) as connection:
            return connection.execute(query).all()


def _stored_event(row: Row[Any]) -> StoredEvent:
    return StoredEvent(
        position=row.position,
        session_id=row.session_id,
        sequence=row.sequence,
        event_id=row.event_id,
        type=row.type,
        schema_version=row.schema_version,
        recorded_at=row.recorded_at,
        call_id=row.call_id,
        payload=row.payload,
    )


def _append(
    connection: Connection,
    session_id: str,
    expected: int,
    records: Sequence[Record],
    payloads: Sequence[str],
    label: str | None,
) -> int:
    row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).first()
    model = SessionModel(None if row is None else StoredSession._make(row))
    found = 0 if model.session is None else model.session.last_sequence
    if found != expected:
        return _repeated(connection, session_id, expected, records)
    rows = [
        {
            "session_id": session_id,
            "sequence": expected + number,
            "event_id": record.event_id,
            "type": record.event.type,
            "schema_version": SCHEMA_VERSION,
            "recorded_at": record.recorded_at,
            "call_id": record.call_id,
            "payload": payload,
        }
        for number, (record, payload) in enumerate(zip(records, payloads, strict=True), 1)
    ]
    connection.execute(insert(events), rows)
    answered = {r.call_id for r in records if isinstance(r.event, TurnEnded) and r.call_id is not None}
    known = _calls(connection, answered) if answered else {}
    model.calls.update(known)
    model.fold(
        session_id,
        label,
        [
            NewEvent(record.event, expected + number, record.recorded_at, record.call_id)
            for number, record in enumerate(records, 1)
        ],
    )
    _write_models(connection, model, known=set(known), is_new=row is None)
    return expected + len(records)


def _calls(connection: Connection, call_ids: Iterable[str]) -> dict[str, StoredCall]:
    query = select(provider_calls).where(provider_calls.c.call_id.in_(list(call_ids)))
    return {row.call_id: StoredCall._make(row) for row in connection.execute(query)}


def _write_models(connection: Connection, model: SessionModel, *, known: set[str], is_new: bool) -> None:
    session = model.session
    if session is None:
        return
    if is_new:
        connection.execute(insert(sessions), session._asdict())
    else:
        connection.execute(
            update(sessions).where(sessions.c.session_id == session.session_id).values(session._asdict())
        )
    added = [model.calls[call_id]._asdict() for call_id in sorted(model.changed - known)]
    if added:
        connection.execute(insert(provider_calls), added)
    for call_id in model.changed & known:
        values = model.calls[call_id]._asdict()
        connection.execute(update(provider_calls).where(provider_calls.c.call_id == call_id).values(values))


def _repeated(connection: Connection, session_id: str, expected: int, records: Sequence[Record]) -> int:
    """The sequence of an append that was acknowledged before; otherwise a conflict."""
    last = expected + len(records)
    query = (
        select(events.c.event_id)
        .where(events.c.session_id == session_id, events.c.sequence > expected, events.c.sequence <= last)
        .order_by(events.c.sequence)
    )
    if list(connection.scalars(query)) == [record.event_id for record in records]:
        return last
    newest = select(sessions.c.last_sequence).where(sessions.c.session_id == session_id)
    raise SessionConflict(session_id, expected, connection.scalar(newest) or 0)
