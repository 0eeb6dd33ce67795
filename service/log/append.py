"""One append: events and read models, in one transaction of the caller."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select

from context_paging.domain.events import SCHEMA_VERSION

from .codec import encode
from .errors import SessionConflict
from .model_rows import add_session, change_session, load_calls, load_session, write_calls
from .read_models import NewEvent, SessionModel, earlier_calls
from .records import Record
from .tables import events

# Made once: building a statement costs more than running it.
_INSERT_EVENTS = insert(events)
_SEQUENCE = select(events.c.sequence).where(
    events.c.event_id == bindparam("event"), events.c.session_id == bindparam("session")
)
_IDS = (
    select(events.c.event_id)
    .where(
        events.c.session_id == bindparam("session"),
        events.c.sequence >= bindparam("first"),
        events.c.sequence <= bindparam("last"),
    )
    .order_by(events.c.sequence)
)


def rows_of(session_id: str, expected: int, records: Sequence[Record]) -> list[dict[str, object]]:
    """Rows of the events table for records that follow the sequence ``expected``.

    Raises:
        InvalidEvent: an event cannot be stored.
    """
    return [
        {
            "session_id": session_id,
            "sequence": sequence,
            "event_id": record.event_id,
            "type": record.event.type,
            "schema_version": SCHEMA_VERSION,
            "recorded_at": record.recorded_at,
            "call_id": record.call_id,
            "payload": encode(record.event),
        }
        for sequence, record in enumerate(records, expected + 1)
    ]


def append(
    connection: Connection,
    session_id: str,
    expected: int,
    records: Sequence[Record],
    rows: Sequence[dict[str, object]],
    label: str | None,
) -> int:
    """Write rows and what they change in the read models; the last sequence.

    Raises:
        IntegrityError: an event with this sequence or id, or a call with this id, is there already.
        SessionConflict: the session does not reach to ``expected``.
    """
    # Events first: the insertion waits for a rebuild, so that the read models are those of after it.
    connection.execute(_INSERT_EVENTS, rows)
    session = load_session(connection, session_id)
    found = 0 if session is None else session.last_sequence
    if found != expected:
        raise SessionConflict(session_id, expected, found)
    new = [
        NewEvent(record.event, sequence, record.recorded_at, record.call_id)
        for sequence, record in enumerate(records, expected + 1)
    ]
    stored = load_calls(connection, earlier_calls(new))
    model = SessionModel(session, dict(stored))
    model.fold(session_id, label, new)
    if model.session is not None:
        (add_session if session is None else change_session)(connection, model.session)
    write_calls(connection, model, stored)
    return expected + len(records)


def repeated(connection: Connection, session_id: str, expected: int, records: Sequence[Record]) -> int:
    """The last sequence of records that the session took before.

    Raises:
        SessionConflict: it did not take them.
    """
    first = connection.scalar(_SEQUENCE, {"event": records[0].event_id, "session": session_id})
    if first is not None:
        last: int = first + len(records) - 1
        stored = connection.scalars(_IDS, {"session": session_id, "first": first, "last": last})
        if list(stored) == [record.event_id for record in records]:
            return last
    session = load_session(connection, session_id)
    raise SessionConflict(session_id, expected, 0 if session is None else session.last_sequence)
