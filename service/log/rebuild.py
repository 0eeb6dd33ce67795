"""Making the read models again from the events, in one transaction of the caller."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, text

from .model_rows import add_session, write_calls
from .read_models import NewEvent, SessionModel
from .records import StoredEvent
from .tables import events, provider_calls, sessions


def rebuild(connection: Connection) -> int:
    """Replace all rows of the read models; the number of sessions.

    A label is not in the events: it is taken over from the row it is in.

    Raises:
        InvalidEvent: a stored event cannot be read.
    """
    if connection.dialect.name == "postgresql":
        # Appends that have begun end first, others wait; SQLite has one writer at a time anyway.
        connection.execute(text(f"LOCK TABLE {events.name} IN SHARE ROW EXCLUSIVE MODE"))
    labels: dict[str, str | None] = {
        row.session_id: row.label
        for row in connection.execute(select(sessions.c.session_id, sessions.c.label))
    }
    connection.execute(delete(provider_calls))
    connection.execute(delete(sessions))
    session_ids = connection.scalars(select(events.c.session_id).distinct()).all()
    for session_id in session_ids:
        query = select(events).where(events.c.session_id == session_id).order_by(events.c.sequence)
        stored = (StoredEvent.make(row) for row in connection.execute(query))
        model = SessionModel()
        model.fold(
            session_id,
            labels.get(session_id),
            (NewEvent(s.event, s.sequence, s.recorded_at, s.call_id) for s in stored),
        )
        if model.session is not None:
            add_session(connection, model.session)
        write_calls(connection, model)
    return len(session_ids)
