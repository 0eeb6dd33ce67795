"""Rows of the read models: how a session's model is read from the database and written back."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, insert, select, update

from .read_models import SessionModel
from .records import StoredCall, StoredSession
from .tables import provider_calls, sessions

# Made once: building a statement costs more than running it.
_SESSION = select(sessions).where(sessions.c.session_id == bindparam("key"))
_CALL = select(provider_calls).where(provider_calls.c.call_id == bindparam("key"))
_INSERT_SESSION = insert(sessions)
_INSERT_CALL = insert(provider_calls)
_UPDATE_SESSION = update(sessions).where(sessions.c.session_id == bindparam("key"))
_UPDATE_CALL = update(provider_calls).where(provider_calls.c.call_id == bindparam("key"))


def load_session(connection: Connection, session_id: str) -> StoredSession | None:
    """A session's row, if there is one."""
    row = connection.execute(_SESSION, {"key": session_id}).first()
    return None if row is None else StoredSession._make(row)


def load_calls(connection: Connection, call_ids: Iterable[str]) -> dict[str, StoredCall]:
    """The rows of provider calls by id, as far as they exist."""
    rows = (connection.execute(_CALL, {"key": call_id}).first() for call_id in call_ids)
    return {row.call_id: StoredCall._make(row) for row in rows if row is not None}


def add_session(connection: Connection, session: StoredSession) -> None:
    """Write the row of a new session."""
    connection.execute(_INSERT_SESSION, session._asdict())


def change_session(connection: Connection, session: StoredSession) -> None:
    """Write the row of a session that has one."""
    values = session._asdict()
    connection.execute(_UPDATE_SESSION, {"key": values.pop("session_id"), **values})


def write_calls(connection: Connection, model: SessionModel, stored: Iterable[str] = ()) -> None:
    """Write the rows of the calls that changed; ``stored`` are the ids of those that have one."""
    present = model.changed.intersection(stored)
    added = [model.calls[call_id]._asdict() for call_id in model.calls if call_id in model.changed - present]
    if added:
        connection.execute(_INSERT_CALL, added)
    for call_id in present:
        values = model.calls[call_id]._asdict()
        connection.execute(_UPDATE_CALL, {"key": values.pop("call_id"), **values})
