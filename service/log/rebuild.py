"""Making the read models again from the events, in one transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, delete, insert, select, text

from .read_models import NewEvent, SessionModel
from .records import StoredEvent
from .tables import events, provider_calls, sessions

AT_ONCE = 500


def rebuild(connection: Connection, progress: Callable[[int, int], None] = lambda done, of: None) -> int:
    """Replace all rows of the read models; the number of sessions.

    A label is not in the events: it is taken over from the row it is in. ``progress`` is told how many
    sessions of how many are done.

    Raises:
        InvalidEvent: a stored event cannot be read.
    """
    if connection.dialect.name == "postgresql":
        # An append reads and locks its session's row first: it ends before this begins, or waits.
        connection.execute(text(f"LOCK TABLE {sessions.name} IN EXCLUSIVE MODE"))
    labels: dict[str, str | None] = {
        row.session_id: row.label
        for row in connection.execute(select(sessions.c.session_id, sessions.c.label))
    }
    connection.execute(delete(provider_calls))
    connection.execute(delete(sessions))
    session_ids = connection.scalars(select(events.c.session_id).distinct()).all()
    for done, session_id in enumerate(session_ids, 1):
        query = select(events).where(events.c.session_id == session_id).order_by(events.c.sequence)
        model = SessionModel()
        rows = connection.execute(query.execution_options(yield_per=AT_ONCE))
        for partition in rows.partitions():
            stored = [StoredEvent.make(row) for row in partition]
            new = [NewEvent(s.event, s.sequence, s.recorded_at, s.call_id, s.hash) for s in stored]
            model.fold(session_id, labels.get(session_id), new)
        if model.session is not None:
            connection.execute(insert(sessions), model.session._asdict())
        calls = [model.calls[call_id]._asdict() for call_id in model.calls if call_id in model.changed]
        for first in range(0, len(calls), AT_ONCE):
            connection.execute(insert(provider_calls), calls[first : first + AT_ONCE])
        progress(done, len(session_ids))
    return len(session_ids)
