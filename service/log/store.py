"""The log: append events of live sessions, read what they came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from platformdirs import user_data_path, user_state_path
from sqlalchemy import Connection, Engine, Row, Select, select, text

from context_paging.domain.events import Event

from . import queries
from .codec import Encoder
from .commit import Committer
from .database_errors import telling_errors
from .engine import file_of, long_work, name_of, open_engine, reading
from .errors import ContentErased, UnknownCall, UnknownEvent, UnknownSession
from .keys import LogKey
from .options import Audit, Durability, LogOptions, Payloads
from .prepared import Append
from .queries import CallQuery, Page, SessionQuery
from .rebuild import rebuild
from .records import Record, StoredCall, StoredEvent, StoredSession
from .retention import erase_contents, retire_before, retire_session
from .tables import content_keys, event_contents, events, log_identity, provider_calls, sessions
from .tail import TailPlace, read_on
from .verify import Verified, Verifier
from .writer import Writer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from .anchor import AnchorCheck

MEMORY = "sqlite://"
READ_AT_ONCE = 1_000
POLL_SECONDS = 0.25


class EventLog:
    """A durable log of events. Safe to share between threads, each with its own sessions."""

    def __init__(self, engine: Engine, options: LogOptions) -> None:
        self._engine = engine
        self._name = name_of(engine.url)
        self._options = options
        self._keeps_content = Payloads(options.payloads) is Payloads.FULL
        with telling_errors(self._name), self._reading() as connection:
            self._id: str = connection.execute(select(log_identity.c.log_id)).scalar_one()
        self._file = file_of(engine)
        self._key: LogKey | None = None
        self._encoder: Encoder | None = None
        self._cipher: Any = None
        self._writer = Writer(
            self._name,
            self._id,
            lambda: Committer(engine, self._the_key(), keeps_connection=self._file is not None),
            self._encode,
            durability=Durability(options.durability),
            audit=Audit(options.audit),
            spool=self._spool_folder(),
            sigterm=options.sigterm,
        )
        self._writer.recover()

    @classmethod
    def open(cls, location: str | None = None, options: LogOptions | None = None) -> Self:
        """Open a log, make or migrate its tables, and bring to it what earlier writers left in its spool.

        ``location`` is a SQLAlchemy URL or the path of a SQLite file; without one the log is in memory.

        Raises:
            LogUnavailable: the database cannot be reached or written.
            ForeignLog: the database is not a log, or one of a newer version.
        """
        engine = open_engine(location or MEMORY)
        try:
            return cls(engine, options or LogOptions())
        except BaseException:
            engine.dispose()
            raise

    @property
    def id(self) -> str:
        """Names the log, wherever it is moved."""
        return self._id

    @property
    def name(self) -> str:
        """Where the log is, without a password."""
        return self._name

    @property
    def engine(self) -> Engine:
        """The database."""
        return self._engine

    @property
    def spool(self) -> Path | None:
        """The folder of appends the database does not have yet."""
        return self._spool_folder()

    @property
    def keeps_content(self) -> bool:
        """Whether the log stores what hosts pass with events."""
        return self._keeps_content

    def close(self) -> None:
        """Bring everything to the database, if it is there, and give the connections back."""
        self._writer.close()
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
        """Append records to a session, with what they change in the read models; all or nothing.

        ``expected_sequence`` is the last sequence the writer knows, 0 for a new session. Records the session
        already took, all of them and in this order, are a no-op. ``label`` names a new session for people.
        When this returns is a matter of the log's `Durability`.

        Returns:
            The sequence of the session's last record. It is less than the records would make it when events
            could not be logged and audit is best-effort, more when that is told by an event of its own.

        Raises:
            SessionConflict: another writer appended to the session, or an event or call id is taken. With the
                durability ``group`` it may be told at the session's next append; what was kept out is then in
                the spool, among the rejected appends.
            InvalidEvent: an event holds what cannot be stored.
            LogUnavailable: nothing can be made durable, and audit is required.
        """
        if not records:
            return expected_sequence
        if self._keeps_content:
            append = self._with_contents(session_id, expected_sequence, records, label)
        else:
            append = Append(session_id, expected_sequence, label, records, self._encode)
        return self._writer.append(append)

    def settle(self) -> None:
        """Wait until the database has everything that was appended, or is known to be away."""
        self._writer.settle()

    def forget(self) -> None:
        """Read sessions again before they are written: somebody else changed them."""
        self._writer.forget()

    def flush(self) -> None:
        """Wait until the database has everything that was appended.

        Raises:
            LogUnavailable: the database is away; the spool has what is missing.
            SessionConflict: another writer was faster in a session of this log's.
        """
        self._writer.flush()

    def sessions(self) -> list[StoredSession]:
        """All sessions, the one that started last at the end."""
        rows = self._rows(select(sessions).order_by(sessions.c.started_at, sessions.c.session_id))
        return [StoredSession._make(row) for row in rows]

    def find_sessions(
        self, query: SessionQuery | None = None, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredSession]:
        """A page of the sessions that a query matches.

        Raises:
            InvalidCursor: ``cursor`` is not the ``next`` of a page of this query.
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
            InvalidCursor: ``cursor`` is not the ``next`` of a page of this query.
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

    def last_call(self, session_id: str, outcome: str | None = None) -> StoredCall | None:
        """The newest provider call of a session, with an outcome if given."""
        found = self.calls(session_id, outcome, 1, newest_first=True)
        return found[0] if found else None

    def timeline(
        self, session_id: str, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredEvent]:
        """A page of a session's events, the oldest first.

        Raises:
            InvalidCursor: ``cursor`` is not the ``next`` of a page of a timeline.
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
                after = max(after, call.sequence - 1)
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
        self._writer.settle()
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

    def content(self, session_id: str, sequence: int) -> Any:
        """What the host passed with an event, as JSON; ``None`` if nothing was kept.

        Raises:
            UnknownEvent: there is no such event.
            ContentErased: it was kept, and erased.
            InvalidKey: it was encrypted with the key of another key file.
        """
        event = events.c
        rows = self._rows(
            select(event.event_id, event.content_hash).where(
                event.session_id == session_id, event.sequence == sequence
            )
        )
        if not rows:
            raise UnknownEvent(f"the log has no event {sequence} of session {session_id!r}")
        if rows[0].content_hash is None:
            return None
        from .contents import decrypt

        stored = self._rows(
            select(event_contents.c.ciphertext, content_keys.c.content_key_id, content_keys.c.wrapped_key)
            .join(content_keys, content_keys.c.content_key_id == event_contents.c.content_key_id)
            .where(event_contents.c.session_id == session_id, event_contents.c.sequence == sequence)
        )
        if not stored or stored[0].wrapped_key is None:
            raise ContentErased(f"the contents of session {session_id!r} were erased")
        (row,) = stored
        return decrypt(
            self._the_key(), session_id, rows[0].event_id, row.content_key_id, row.wrapped_key, row.ciphertext
        )

    def verify(
        self,
        session_id: str | None = None,
        *,
        keys: Iterable[LogKey] = (),
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Iterator[Verified]:
        """Check the chains of all sessions, or of one. ``progress`` is told how many of how many are done.

        Raises:
            UnknownSession: there is none with this id.
        """
        self._writer.settle()
        with telling_errors(self._name), self._reading() as connection:
            verifier = Verifier(long_work(connection), [*self._present_key(), *keys])
            if session_id is not None:
                result = verifier.verify(session_id)
                if not result.records and result.finding is None:
                    raise UnknownSession(f"the log has no session {session_id!r}")
                yield result
                return
            ids = verifier.session_ids()
            for done, each in enumerate(ids, 1):
                yield verifier.verify(each)
                progress(done, len(ids))

    def anchor(self, private_key: Ed25519PrivateKey) -> dict[str, Any]:
        """A signed anchor over the heads of all chains, as a JSON object."""
        from .anchor import make_anchor

        self._writer.settle()
        with telling_errors(self._name), self._reading() as connection:
            return make_anchor(connection, private_key, datetime.now(UTC))

    def check_anchor(self, anchor: Any, public_key: Ed25519PublicKey | None = None) -> AnchorCheck:
        """Compare the log with an anchor made earlier.

        Raises:
            InvalidAnchor: it is no anchor of this log, or not one signed with the key.
        """
        from .anchor import check_anchor

        self._writer.settle()
        with telling_errors(self._name), self._reading() as connection:
            return check_anchor(connection, anchor, public_key)

    def erase(self, session_id: str) -> int:
        """Destroy the keys of a session's contents; how many contents nobody can read any more.

        The chain stays valid. Copies of the database made earlier still hold the keys, wrapped by the key
        file.

        Raises:
            UnknownSession: there is none with this id.
        """
        with self.changing() as connection:
            erased = erase_contents(connection, session_id, datetime.now(UTC))
        self._empty_journal()
        return erased

    def retire(self, session_id: str) -> None:
        """Take a session out of the log; the head of its chain is kept.

        Raises:
            UnknownSession: there is none with this id.
        """
        with self.changing() as connection:
            retire_session(connection, session_id, datetime.now(UTC))
        self._empty_journal()

    def retire_before(self, before: datetime, progress: Callable[[int], None] = lambda done: None) -> int:
        """Take the sessions out whose last event is older than ``before``; how many they were."""
        with self.changing() as connection:
            retired = retire_before(connection, before, datetime.now(UTC), progress)
        self._empty_journal()
        return retired

    def rebuild(self, progress: Callable[[int, int], None] = lambda done, of: None) -> int:
        """Make the read models again from the events; labels stay. Returns the number of sessions.

        Raises:
            InvalidEvent: a stored event cannot be read; nothing has changed.
        """
        with self.changing() as connection:
            return rebuild(connection, progress)

    def _the_key(self) -> LogKey:
        if self._key is None:
            path = self._key_path()
            self._key = LogKey.generate() if path is None else LogKey.load_or_make(path)
            if self.keeps_content:
                from .contents import ContentCipher

                self._cipher = ContentCipher(self._key)
        return self._key

    def _present_key(self) -> list[LogKey]:
        path = self._key_path()
        if self._key is None and (path is None or not path.exists()):
            return []
        return [self._the_key()]

    def _key_path(self) -> Path | None:
        if self._options.key_file is not None:
            return Path(self._options.key_file).expanduser()
        if self._engine.dialect.name != "sqlite":
            return user_data_path("context-paging", appauthor=False) / "keys" / f"{self._id}.key"
        return None if self._file is None else self._file.with_name(self._file.name + ".key")

    def _spool_folder(self) -> Path | None:
        given = self._options.spool
        if given is False:
            return None
        if isinstance(given, str | Path):
            return Path(given).expanduser()
        if self._engine.dialect.name != "sqlite":
            return user_state_path("context-paging", appauthor=False) / "spool" / self._id
        return None if self._file is None else self._file.with_name(self._file.name + ".spool")

    def _with_contents(
        self, session_id: str, expected: int, records: Sequence[Record], label: str | None
    ) -> Append:
        self._the_key()
        plain = Append(session_id, expected, label, records, self._encode).prepared
        prepared = [
            event._replace(content=self._cipher.encrypt(session_id, record.event_id, record.content))
            if record.content is not None
            else event
            for event, record in zip(plain, records, strict=True)
        ]
        key = self._cipher.key_of(session_id)
        return Append(session_id, expected, label, records, self._encode, prepared, key)

    def _encode(self, event: Event) -> str:
        if self._encoder is None:
            self._encoder = Encoder(self._the_key().fingerprint)
        return self._encoder(event)

    def _empty_journal(self) -> None:
        # Pages from before the erasure must not stay in the write-ahead journal.
        if self._engine.dialect.name == "sqlite":
            with telling_errors(self._name):
                connection = self._engine.raw_connection()
                try:
                    connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    connection.close()

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A write transaction on the database.

        Raises:
            LogUnavailable: the database does not take it; nothing has changed.
        """
        self._writer.settle()
        with telling_errors(self._name), self._engine.begin() as connection:
            if connection.dialect.name == "sqlite":
                # What is deleted is gone from the file, too.
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            yield long_work(connection)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """All queries see one snapshot."""
        with reading(self._engine.connect()) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            yield connection

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        self._writer.settle()
        with telling_errors(self._name), reading(self._engine.connect()) as connection:
            return connection.execute(query).all()
