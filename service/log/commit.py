"""Commits: appends and what they change in the read models, many sessions in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from .chain import GENESIS, hash_columns
from .errors import SessionConflict
from .keys import LogKey
from .partitions import Partitions
from .prepared import Append
from .read_models import NewEvent, SessionModel, earlier_calls
from .records import StoredCall, StoredSession, period_of
from .statements import CHANGING_SESSION_COLUMNS, Statements, WriteConnections

REMEMBERED_SESSIONS = 10_000


class _Stale(Exception):
    """What is remembered of a session is not what the database holds."""


@dataclass(slots=True)
class _Live:
    """A session while a transaction changes it."""

    stored: StoredSession | None
    model: SessionModel
    present: dict[str, StoredCall]
    replaced: bool = False


@dataclass(slots=True)
class _Batch:
    """Everything one transaction writes."""

    live: dict[str, _Live] = field(default_factory=dict)
    results: list[int | SessionConflict] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    contents: list[tuple[Any, ...]] = field(default_factory=list)
    keys: list[tuple[str, str, bytes]] = field(default_factory=list)


class Committer:
    """Writes appends to the database. Safe to share between threads.

    What a session came to is remembered, so that an append need not read it; an update that finds another
    sequence in the database shows that somebody else wrote, and reads it again.
    """

    def __init__(self, engine: Engine, key: LogKey, *, keeps_connection: bool) -> None:
        self._key = key
        self._statements = Statements(engine.dialect)
        self._connections = WriteConnections(engine, keeps=keeps_connection)
        self._partitions = Partitions(engine)
        self._remembered: dict[str, tuple[StoredSession, dict[str, StoredCall]]] = {}
        self._key_is_known = False
        # SQLite's own waiting for another writer is a sleep; threads of one process can do better.
        self._turn: Any = threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()

    def close(self) -> None:
        """Give connections back."""
        self._connections.close()

    def forget(self) -> None:
        """Read every session again before it is written next."""
        self._remembered.clear()

    def commit(self, appends: Sequence[Append]) -> list[int | SessionConflict]:
        """Write appends; for each its last sequence, or the conflict that kept it out.

        An append is written whole or not at all, whatever becomes of the others. One that the log already has
        is a no-op.

        Raises:
            DBAPIError: the database does not take them; nothing was written.
            InvalidEvent: an event cannot be read; nothing was written.
        """
        try:
            return self._commit(appends)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            # The connection had ended, perhaps long ago. Ids tell what was written before it did.
            return self._commit(appends)

    def _commit(self, appends: Sequence[Append]) -> list[int | SessionConflict]:
        # Before the transaction: making a partition waits for all that use the table.
        for append in appends:
            if append.expected == 0:
                self._partitions.ensure(period_of(append.prepared[0].recorded_at))
        for remember in (True, False):
            try:
                with self._turn, self._connections.transaction() as cursor:
                    batch = self._write(cursor, appends, remember=remember)
            except _Stale:
                continue
            except IntegrityError:
                # An id is taken, or a session began elsewhere at this moment.
                if len(appends) > 1:
                    return [result for append in appends for result in self._commit([append])]
                if remember:
                    continue
                with self._turn, self._connections.transaction() as cursor:
                    return [self._repeated(cursor, appends[0])]
            self._remember(batch)
            return batch.results
        raise AssertionError("a session that was read and locked cannot be stale")

    def _write(self, cursor: Any, appends: Sequence[Append], *, remember: bool) -> _Batch:
        batch = _Batch()
        # In one order everywhere, so that no two transactions wait for each other.
        for session_id in sorted({append.session_id for append in appends}):
            batch.live[session_id] = self._load(cursor, session_id, remember=remember)
        for append in appends:
            self._fold(cursor, append, batch, remember=remember)
        self._write_sessions(cursor, batch)
        run = self._statements
        if batch.events:
            if not self._key_is_known:
                run.insert_log_key.run(
                    cursor, {"key_id": self._key.id, "first_used_at": batch.events[0][_RECORDED_AT]}
                )
            run.insert_events.run_many(cursor, batch.events)
        for key_id, session_id, wrapped in batch.keys:
            values = {"content_key_id": key_id, "session_id": session_id, "wrapped_key": wrapped}
            run.insert_content_key.run(cursor, values)
        if batch.contents:
            run.insert_contents.run_many(cursor, batch.contents)
        self._write_calls(cursor, batch)
        return batch

    def _load(self, cursor: Any, session_id: str, *, remember: bool) -> _Live:
        known = self._remembered.get(session_id) if remember else None
        if known is not None:
            stored, calls = known
            return _Live(stored, SessionModel(stored, calls.copy()), calls)
        rows = self._statements.select_session.rows(cursor, {"key": session_id})
        found = StoredSession(*rows[0]) if rows else None
        live = _Live(found, SessionModel(found), {})
        before = self._remembered.get(session_id)
        if before is not None and found is not None and found.last_sequence == before[0].last_sequence:
            # Retired, and begun anew to the same length.
            live.replaced = found.last_hash != before[0].last_hash
        return live

    def _fold(self, cursor: Any, append: Append, batch: _Batch, *, remember: bool) -> None:
        live = batch.live[append.session_id]
        model = live.model
        at = 0 if model.session is None else model.session.last_sequence
        if at != append.expected or live.replaced:
            if remember and append.session_id in self._remembered:
                raise _Stale
            batch.results.append(self._repeated(cursor, append, at))
            return
        for call_id in earlier_calls(append.events, append.prepared):
            if call_id not in model.calls:
                for row in self._statements.select_call.rows(cursor, {"key": call_id}):
                    call = StoredCall(*row)
                    # Another session's call is none of this one's business.
                    if call.session_id == append.session_id:
                        model.calls[call_id] = live.present[call_id] = call
        model.fold(append.session_id, append.label, self._chained(append, live, batch))
        if append.content_key is not None:
            batch.keys.append((append.content_key.id, append.session_id, append.content_key.wrapped))
        batch.results.append(append.last)

    def _chained(self, append: Append, live: _Live, batch: _Batch) -> list[NewEvent]:
        session = live.model.session
        previous = (session.last_hash if session else None) or GENESIS
        started_at = session.started_at if session else append.prepared[0].recorded_at
        period = period_of(started_at)
        key, session_id = self._key, append.session_id
        folded = []
        sequence = append.expected
        for prepared, event in zip(append.prepared, append.events, strict=True):
            sequence += 1
            content_hash = prepared.content_hash
            record_hash = hash_columns(
                session_id,
                sequence,
                prepared.event_id,
                prepared.type,
                prepared.schema_version,
                prepared.recorded_at,
                prepared.call_id,
                prepared.payload,
                content_hash,
                key.id,
                previous,
            )
            batch.events.append(
                (
                    session_id,
                    sequence,
                    prepared.event_id,
                    prepared.type,
                    prepared.schema_version,
                    prepared.recorded_at,
                    prepared.call_id,
                    prepared.payload,
                    period,
                    content_hash,
                    key.id,
                    previous,
                    record_hash,
                    key.seal(record_hash),
                )
            )
            if prepared.content is not None and append.content_key is not None:
                batch.contents.append((session_id, sequence, append.content_key.id, prepared.content))
            folded.append(NewEvent(event, sequence, prepared.recorded_at, prepared.call_id, record_hash))
            previous = record_hash
        return folded

    def _write_sessions(self, cursor: Any, batch: _Batch) -> None:
        for session_id, live in batch.live.items():
            session = live.model.session
            if session is None or session is live.stored:
                continue
            if live.stored is None:
                self._statements.insert_session.run(cursor, session._asdict())
                continue
            changed = self._statements.update_session.run_row(
                cursor, (*_CHANGING(session), session_id, live.stored.last_sequence, live.stored.last_hash)
            )
            if changed.rowcount != 1:
                raise _Stale
            if session.host != live.stored.host:
                self._statements.update_host.run(cursor, {"key": session_id, "host": session.host})

    def _write_calls(self, cursor: Any, batch: _Batch) -> None:
        added = []
        for live in batch.live.values():
            for call_id in live.model.calls:
                if call_id in live.model.changed:
                    call = live.model.calls[call_id]
                    before = live.present.get(call_id)
                    if before is not None:
                        answered = before._replace(
                            response_tokens=call.response_tokens, last_sequence=call.last_sequence
                        )
                        run = self._statements
                        change = run.answer_call if answered == call else run.update_call
                        change.run(cursor, {"key": call_id, **call._asdict()})
                    else:
                        added.append(call)
        if added:
            self._statements.insert_calls.run_many(cursor, added)

    def _repeated(self, cursor: Any, append: Append, at: int | None = None) -> int | SessionConflict:
        run, session = self._statements, append.session_id
        event = append.prepared[0].event_id
        rows = run.select_sequence.rows(cursor, {"event": event, "key": session})
        if rows:
            first = rows[0][0]
            last: int = first + len(append.prepared) - 1
            stored = run.select_event_ids.rows(cursor, {"key": session, "first": first, "last": last})
            if [event_id for (event_id,) in stored] == [event.event_id for event in append.prepared]:
                return last
        if at is None:
            found = run.select_session.rows(cursor, {"key": session})
            at = StoredSession(*found[0]).last_sequence if found else 0
        return SessionConflict(session, append.expected, at)

    def _remember(self, batch: _Batch) -> None:
        self._key_is_known = self._key_is_known or bool(batch.events)
        if len(self._remembered) > REMEMBERED_SESSIONS:
            self._remembered.clear()
        for session_id, live in batch.live.items():
            if live.model.session is not None:
                # A response belongs to the newest call: of the others nothing more is to come.
                calls = live.model.calls
                newest = dict([next(reversed(calls.items()))]) if calls else calls
                self._remembered[session_id] = (live.model.session, newest)


_RECORDED_AT = 5
_CHANGING = attrgetter(*CHANGING_SESSION_COLUMNS)
