"""Questions to the read models, answered page by page.

A page's cursor is the place of its last row in the order, so that a page costs the same however far down it
is, and rows that come in between shift nothing.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select

from .column_types import storable
from .errors import InvalidQuery
from .records import StoredCall, StoredEvent, StoredSession
from .tables import events, provider_calls, sessions

R = TypeVar("R")
PAGE = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Rows in order, and the cursor of the page after them; ``None`` on the last page."""

    rows: list[R]
    next: str | None


@dataclass(frozen=True, slots=True)
class CallQuery:
    """Which provider calls; what is ``None`` matches all. Times are inclusive at the beginning only.

    Attributes:
        newest_first: by the time of the request, or by number within one session.
        prefix: how the session's id begins.
    """

    session_id: str | None = None
    outcome: str | None = None
    code: str | None = None
    host: str | None = None
    model: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    newest_first: bool = True
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Which sessions; what is ``None`` matches all. Times are those of the session's beginning.

    Attributes:
        prefix: how the session's id begins.
        aborted: only those with an aborted call, or only those without.
        search: a text in the session's id or label, whatever its case.
    """

    prefix: str | None = None
    host: str | None = None
    model: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    aborted: bool | None = None
    newest_first: bool = True
    search: str | None = None


def call_statement(query: CallQuery, cursor: str | None, limit: int) -> Select[Any]:
    """The rows of a page of calls, and one more if there is one.

    Raises:
        InvalidQuery: the cursor is not of such a query.
    """
    call = provider_calls.c
    conditions: list[ColumnElement[bool]] = [
        column == value
        for column, value in (
            (call.session_id, query.session_id),
            (call.outcome, query.outcome),
            (call.code, query.code),
            (call.host, query.host),
            (call.model, query.model),
        )
        if value is not None
    ]
    if query.prefix:
        conditions.append(_begins(call.session_id, query.prefix))
    if query.since is not None:
        conditions.append(call.requested_at >= query.since)
    if query.before is not None:
        conditions.append(call.requested_at < query.before)
    order = [call.requested_at, call.call_id] if query.session_id is None else [call.number]
    return _page(
        select(provider_calls).where(*conditions), order, cursor, limit, newest_first=query.newest_first
    )


def session_statement(query: SessionQuery, cursor: str | None, limit: int) -> Select[Any]:
    """The rows of a page of sessions, and one more if there is one.

    Raises:
        InvalidQuery: the cursor is not of such a query.
    """
    session = sessions.c
    conditions: list[ColumnElement[bool]] = []
    if query.prefix:
        conditions.append(_begins(session.session_id, query.prefix))
    if query.search:
        text = storable(query.search)
        conditions.append(
            or_(
                session.session_id.icontains(text, autoescape=True),
                session.label.icontains(text, autoescape=True),
            )
        )
    if query.host is not None:
        conditions.append(session.host == query.host)
    if query.model is not None:
        conditions.append(session.model == query.model)
    if query.since is not None:
        conditions.append(session.started_at >= query.since)
    if query.before is not None:
        conditions.append(session.started_at < query.before)
    if query.aborted is not None:
        conditions.append(session.aborted_calls > 0 if query.aborted else session.aborted_calls == 0)
    order = [session.started_at, session.session_id]
    return _page(select(sessions).where(*conditions), order, cursor, limit, newest_first=query.newest_first)


def timeline_statement(session_id: str, cursor: str | None, limit: int) -> Select[Any]:
    """The events of a page of a session's timeline, the oldest first, and one more if there is one.

    Raises:
        InvalidQuery: the cursor is not of such a query.
    """
    query = select(events).where(events.c.session_id == session_id)
    return _page(query, [events.c.sequence], cursor, limit, newest_first=False)


def call_page(rows: Sequence[Row[Any]], query: CallQuery, limit: int) -> Page[StoredCall]:
    """A page of the rows of `call_statement`."""
    calls = [StoredCall._make(row) for row in rows]
    if query.session_id is None:
        return _with_cursor(calls, limit, lambda call: [call.requested_at.isoformat(), call.call_id])
    return _with_cursor(calls, limit, lambda call: [call.number])


def session_page(rows: Sequence[Row[Any]], limit: int) -> Page[StoredSession]:
    """A page of the rows of `session_statement`."""
    found = [StoredSession._make(row) for row in rows]
    return _with_cursor(found, limit, lambda session: [session.started_at.isoformat(), session.session_id])


def timeline_page(rows: Sequence[Row[Any]], limit: int) -> Page[StoredEvent]:
    """A page of the rows of `timeline_statement`."""
    return _with_cursor([StoredEvent.make(row) for row in rows], limit, lambda event: [event.sequence])


def prefix_within(allowed: str, wanted: str | None) -> str | None:
    """The prefix that finds what begins with both; ``None`` if nothing does."""
    wanted = wanted or ""
    if wanted.startswith(allowed):
        return wanted
    return allowed if allowed.startswith(wanted) else None


def _begins(column: Any, prefix: str) -> ColumnElement[bool]:
    # Not LIKE, to which SQLite's small and capital letters are the same.
    text = storable(prefix)
    begins: ColumnElement[bool] = func.substr(column, 1, len(text)) == text
    return begins


def _page(
    query: Select[Any], order: list[Any], cursor: str | None, limit: int, *, newest_first: bool
) -> Select[Any]:
    if limit < 1:
        raise InvalidQuery(f"a page of {limit} rows says nothing; ask for one at least")
    if cursor is not None:
        query = query.where(_after(order, _place(cursor, order), newest_first=newest_first))
    return query.order_by(*(column.desc() if newest_first else column for column in order)).limit(limit + 1)


def _after(order: list[Any], place: list[Any], *, newest_first: bool) -> ColumnElement[bool]:
    first, at = order[0], place[0]
    beyond: ColumnElement[bool] = first < at if newest_first else first > at
    if len(order) == 1:
        return beyond
    # The first comparison says the same less exactly, in the form that every engine takes from an index.
    bound = first <= at if newest_first else first >= at
    second = order[1] < place[1] if newest_first else order[1] > place[1]
    within: ColumnElement[bool] = and_(bound, or_(beyond, second))
    return within


def _with_cursor(rows: list[R], limit: int, place: Any) -> Page[R]:
    if len(rows) <= limit:
        return Page(rows, None)
    return Page(rows[:limit], cursor_behind(*place(rows[limit - 1])))


def cursor_behind(*place: Any) -> str:
    """The cursor of the rows behind a place: a call's number or an event's sequence within one session."""
    text = json.dumps(place, separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _place(cursor: str, order: list[Any]) -> list[Any]:
    try:
        place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(place, list) or len(place) != len(order):
            raise ValueError("another number of columns")
        if len(order) == 1:
            number = int(place[0])
            if abs(number) >= 2**63:
                raise ValueError("a number out of range")
            return [number]
        moment = datetime.fromisoformat(place[0])
        if moment.tzinfo is None:
            raise ValueError("a time without a zone")
        return [moment.astimezone(UTC), str(place[1])]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidQuery(f"{cursor!r} is not the cursor of a page of this query: {error}") from None
