"""The log: append events of live sessions, read what they came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from platformdirs import user_data_path, user_state_path
from sqlalchemy import Connection, Engine, select

from context_paging.domain.events import Event

from .codec import Encoder
from .commit import Committer
from .database_errors import telling_errors
from .engine import file_of, long_work, open_engine
from .errors import ContentErased, LogUnavailable, UnknownEvent, UnknownSession
from .keys import LogKey
from .options import Audit, Durability, LogOptions, Payloads
from .prepared import Append
from .reader import LogReader
from .rebuild import rebuild
from .records import Record
from .retention import erase_contents, retire_before, retire_session
from .tables import content_keys, event_contents, events, log_identity
from .verify import Verified, Verifier
from .writer import Writer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from .anchor import AnchorCheck

MEMORY = "sqlite://"


class EventLog(LogReader):
    """A durable log of events. Safe to share between threads, each with its own sessions."""

    def __init__(self, engine: Engine, options: LogOptions) -> None:
        super().__init__(engine)
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
            self._after_fork,
            durability=Durability(options.durability),
            audit=Audit(options.audit),
            spool=self._spool_folder(),
            sigterm=options.sigterm,
        )
        self._writer.recover()

    @classmethod
    def open(cls, location: str | Path | None = None, options: LogOptions | None = None) -> Self:
        """Open a log, make or migrate its tables, and bring to it what earlier writers left in its spool.

        ``location`` is a SQLAlchemy URL or the path of a SQLite file; without one the log is in memory.

        Raises:
            LogUnavailable: the database cannot be reached or written.
            ForeignLog: the database is not a log, or one of a newer version.
        """
        engine = open_engine(str(location or MEMORY))
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
        try:
            if self._keeps_content:
                append = self._with_contents(session_id, expected_sequence, records, label)
            else:
                append = Append(session_id, expected_sequence, label, records, self._encode)
        except LogUnavailable as error:
            # Without the key nothing can be written.
            self._writer.drop(session_id, len(records), error)
            return expected_sequence
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
    ) -> list[Verified]:
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
                return [result]
            ids = verifier.session_ids()
            results = []
            for done, each in enumerate(ids, 1):
                results.append(verifier.verify(each))
                progress(done, len(ids))
            return results

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
        with self._erasing() as connection:
            erased = erase_contents(connection, session_id, datetime.now(UTC))
        if self._cipher is not None:
            self._cipher.forget(session_id)
        return erased

    def retire(self, session_id: str) -> None:
        """Take a session out of the log; the head of its chain is kept.

        Raises:
            UnknownSession: there is none with this id.
        """
        with self._erasing() as connection:
            retire_session(connection, session_id, datetime.now(UTC))

    def retire_before(self, before: datetime, progress: Callable[[int], None] = lambda done: None) -> int:
        """Take the sessions out whose last event is older than ``before``; how many they were."""
        with self._erasing() as connection:
            retired = retire_before(connection, before, datetime.now(UTC), progress)
        return retired

    def rebuild(self, progress: Callable[[int, int], None] = lambda done, of: None) -> int:
        """Make the read models again from the events; labels stay. Returns the number of sessions.

        Raises:
            InvalidEvent: a stored event cannot be read; nothing has changed.
        """
        with self.changing() as connection:
            return rebuild(connection, progress)

    def _after_fork(self) -> None:
        # Connections are the parent's; a database in memory is copied with the process.
        if self._file is not None or self._engine.dialect.name != "sqlite":
            self._engine.dispose(close=False)

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

    @contextmanager
    def _erasing(self) -> Iterator[Connection]:
        """A write transaction whose deletions leave nothing in the files of a SQLite log."""
        with self.changing() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            yield connection
        self._empty_journal()

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
            yield long_work(connection)
