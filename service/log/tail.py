"""Reading the log as it grows, by position, without gaps.

On SQLite one writer commits at a time, so positions become visible in order. On PostgreSQL they do not: a
position is drawn before its transaction commits, and transactions overtake each other. A gap below a visible
position is then either lost for ever, to a transaction that was rolled back or to retention, or still to
come.

The two are told apart with transaction ids. A writer draws positions only after it has written elsewhere in
its transaction, thus after it has an id, and positions come from one sequence without cache. So whoever can
still fill a gap below a visible position has an id below any that is given out from now on. The reader takes
such an id for itself, the fence, and holds back what is beyond the gap until a snapshot's ``xmin``, the
oldest transaction in progress, has passed the fence: all candidates have ended then, and what that snapshot
does not show in the gap will never be there. (A snapshot's ``xmax`` would not do as a fence: it is one more
than the newest *ended* transaction, and a writer in progress may be beyond it.)
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, text

from .records import StoredEvent
from .tables import events


@dataclass(frozen=True, slots=True)
class TailPlace:
    """Where a reader is.

    Attributes:
        position: the last position it has seen; all it needs to go on later.
        settled: gaps below this position are known to stay.
        doubted: the position beyond a gap that may still be filled.
        fence: gaps below ``doubted`` are settled when no transaction up to this id is in progress.
    """

    position: int = 0
    settled: int = 0
    doubted: int = 0
    fence: int = 0


def read_on(connection: Connection, place: TailPlace, limit: int) -> tuple[list[StoredEvent], TailPlace]:
    """The events after a place that are certain to be the next ones, and the place behind them.

    The connection must be in a transaction in which all queries see one snapshot.
    """
    query = select(events).where(events.c.position > place.position).order_by(events.c.position).limit(limit)
    if connection.dialect.name != "postgresql":
        found = [StoredEvent.make(row) for row in connection.execute(query)]
        return found, _moved(place, found)
    oldest = connection.scalar(text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))
    settled = place.settled
    if place.doubted and oldest is not None and oldest > place.fence:
        settled = max(settled, place.doubted)
    certain: list[StoredEvent] = []
    position, doubted, fence = place.position, 0, 0
    for row in connection.execute(query):
        event = StoredEvent.make(row)
        if event.position != position + 1 and event.position > settled:
            doubted = event.position
            break
        certain.append(event)
        position = event.position
    if doubted and doubted == place.doubted:
        fence = place.fence
    elif doubted:
        fence = connection.scalar(text("SELECT pg_current_xact_id()::text::bigint")) or 0
    return certain, TailPlace(position, settled, doubted, fence)


def _moved(place: TailPlace, found: list[StoredEvent]) -> TailPlace:
    return TailPlace(found[-1].position) if found else place
