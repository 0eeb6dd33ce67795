"""Taking things out of the log on purpose: contents by destroying keys, whole sessions by age or by id.

Sessions leave as a whole, so that no chain is ever cut. On PostgreSQL a month goes with its partition as
soon as all of its sessions go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, text, update

from .errors import UnknownSession
from .partitions import drop, existing
from .records import StoredSession, period_of
from .tables import content_keys, event_contents, events, provider_calls, retired_sessions, sessions

AT_ONCE = 500


def erase_contents(connection: Connection, session_id: str, moment: datetime) -> int:
    """Destroy a session's content keys; how many contents nobody can read any more.

    Raises:
        UnknownSession: there is none with this id.
    """
    _session(connection, session_id)
    return _erase(connection, [session_id], moment)


def retire_session(connection: Connection, session_id: str, moment: datetime) -> None:
    """Take one session out.

    Raises:
        UnknownSession: there is none with this id.
    """
    _retire(connection, [_session(connection, session_id)], moment)


def retire_before(
    connection: Connection, before: datetime, moment: datetime, progress: Callable[[int], None]
) -> int:
    """Take out the sessions whose last event is older than ``before``; how many they were."""
    if connection.dialect.name == "postgresql":
        # No session may begin or go on while it is looked at who has events in a month. Before any row is
        # locked: a writer may hold one and wait for another.
        connection.execute(text("LOCK TABLE sessions IN EXCLUSIVE MODE"))
    query = select(sessions).where(sessions.c.last_at < before).order_by(sessions.c.session_id)
    old = [StoredSession._make(row) for row in connection.execute(query)]
    going = {session.session_id for session in old}
    dropped = _drop_months(connection, old, going)
    for first in range(0, len(old), AT_ONCE):
        some = old[first : first + AT_ONCE]
        _retire(connection, some, moment, dropped)
        progress(len(some))
    return len(old)


def _drop_months(connection: Connection, old: Sequence[StoredSession], going: set[str]) -> set[int]:
    """Drop the partitions of months in which no other session began; those months."""
    months = existing(connection) & {period_of(session.started_at) for session in old}
    if not months:
        return set()
    staying = connection.execute(select(sessions.c.session_id, sessions.c.started_at))
    kept = {period_of(started_at) for session_id, started_at in staying if session_id not in going}
    for month in months - kept:
        drop(connection, month)
    return months - kept


def _session(connection: Connection, session_id: str) -> StoredSession:
    query = select(sessions).where(sessions.c.session_id == session_id).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        raise UnknownSession(f"the log has no session {session_id!r}")
    return StoredSession._make(row)


def _retire(
    connection: Connection, going: Sequence[StoredSession], moment: datetime, dropped: set[int] | None = None
) -> None:
    ids = [session.session_id for session in going]
    _erase(connection, ids, moment)
    rows = [
        {
            "session_id": session.session_id,
            "last_sequence": session.last_sequence,
            "last_hash": session.last_hash,
            "retired_at": moment,
        }
        for session in going
    ]
    connection.execute(delete(retired_sessions).where(retired_sessions.c.session_id.in_(ids)))
    connection.execute(insert(retired_sessions), rows)
    stored = [s.session_id for s in going if period_of(s.started_at) not in (dropped or set())]
    connection.execute(delete(events).where(events.c.session_id.in_(stored)))
    for table in (provider_calls, sessions, content_keys):
        connection.execute(delete(table).where(table.c.session_id.in_(ids)))


def _erase(connection: Connection, session_ids: Sequence[str], moment: datetime) -> int:
    connection.execute(
        update(content_keys)
        .where(content_keys.c.session_id.in_(session_ids), content_keys.c.destroyed_at.is_(None))
        .values(wrapped_key=None, destroyed_at=moment)
    )
    found = connection.execute(delete(event_contents).where(event_contents.c.session_id.in_(session_ids)))
    return found.rowcount
