"""The log for programs on an event loop.

One implementation serves both worlds: every call of `EventLog` that may wait runs on a thread of the loop's
executor. With the durabilities ``group`` and ``spool`` an append seldom waits at all. A driver that speaks
to the loop itself would need a second implementation of everything below, and for SQLite would use threads
just the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from . import queries
from .options import LogOptions
from .queries import CallQuery, Page, SessionQuery
from .reader import POLL_SECONDS, READ_AT_ONCE
from .records import Record, StoredCall, StoredEvent, StoredSession
from .store import EventLog
from .tail import TailPlace
from .verify import Verified

P = ParamSpec("P")
R = TypeVar("R")


class AsyncEventLog:
    """`EventLog` with awaitable methods; they do and raise the same.

    Attributes:
        log: the log itself. Sessions on the loop may use it as their sink when it has the durability
            ``group``.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log

    @classmethod
    async def open(cls, location: str | None = None, options: LogOptions | None = None) -> Self:
        """See `EventLog.open`."""
        return cls(await asyncio.to_thread(EventLog.open, location, options))

    async def close(self) -> None:
        """See `EventLog.close`."""
        await asyncio.to_thread(self.log.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        """See `EventLog.append`. Cancelling the wait does not take the append back."""
        return await _shielded(self.log.append, session_id, expected_sequence, records, label=label)

    async def flush(self) -> None:
        """See `EventLog.flush`."""
        await _shielded(self.log.flush)

    async def find_sessions(
        self, query: SessionQuery | None = None, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredSession]:
        """See `EventLog.find_sessions`."""
        return await asyncio.to_thread(self.log.find_sessions, query, cursor=cursor, limit=limit)

    async def session(self, session_id: str) -> StoredSession:
        """See `EventLog.session`."""
        return await asyncio.to_thread(self.log.session, session_id)

    async def last_sequence(self, session_id: str) -> int:
        """See `EventLog.last_sequence`."""
        return await asyncio.to_thread(self.log.last_sequence, session_id)

    async def find_calls(
        self, query: CallQuery | None = None, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredCall]:
        """See `EventLog.find_calls`."""
        return await asyncio.to_thread(self.log.find_calls, query, cursor=cursor, limit=limit)

    async def call(self, call_id: str) -> StoredCall:
        """See `EventLog.call`."""
        return await asyncio.to_thread(self.log.call, call_id)

    async def timeline(
        self, session_id: str, *, cursor: str | None = None, limit: int = queries.PAGE
    ) -> Page[StoredEvent]:
        """See `EventLog.timeline`."""
        return await asyncio.to_thread(self.log.timeline, session_id, cursor=cursor, limit=limit)

    async def events(
        self, session_id: str, after: int = 0, until: int | None = None, call_id: str | None = None
    ) -> AsyncIterator[StoredEvent]:
        """See `EventLog.events`."""
        found = self.log.events(session_id, after, until, call_id)
        while True:
            page = await asyncio.to_thread(_some, found)
            for event in page:
                yield event
            if len(page) < READ_AT_ONCE:
                return

    async def tail(
        self, after: int = 0, *, follow: bool = True, poll_seconds: float = POLL_SECONDS
    ) -> AsyncIterator[StoredEvent]:
        """See `EventLog.tail`; cancel it to end it."""
        place = TailPlace(after)
        while True:
            found, place = await asyncio.to_thread(self.log.read_on, place)
            for event in found:
                yield event
            if not found and not place.doubted and not follow:
                return
            if not found:
                await asyncio.sleep(min(poll_seconds, 0.01) if place.doubted else poll_seconds)

    async def content(self, session_id: str, sequence: int) -> Any:
        """See `EventLog.content`."""
        return await asyncio.to_thread(self.log.content, session_id, sequence)

    async def verify(self, session_id: str | None = None) -> list[Verified]:
        """See `EventLog.verify`."""
        return await asyncio.to_thread(lambda: list(self.log.verify(session_id)))

    async def erase(self, session_id: str) -> int:
        """See `EventLog.erase`."""
        return await _shielded(self.log.erase, session_id)

    async def retire(self, session_id: str) -> None:
        """See `EventLog.retire`."""
        await _shielded(self.log.retire, session_id)

    async def retire_before(self, before: datetime) -> int:
        """See `EventLog.retire_before`."""
        return await _shielded(self.log.retire_before, before)

    async def rebuild(self) -> int:
        """See `EventLog.rebuild`."""
        return await _shielded(self.log.rebuild)


async def _shielded(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    # What changes the log goes on when its caller is cancelled: a thread cannot be stopped half way.
    return await asyncio.shield(asyncio.to_thread(work, *args, **kwargs))


def _some(found: Any) -> list[StoredEvent]:
    page: list[StoredEvent] = []
    for event in found:
        page.append(event)
        if len(page) == READ_AT_ONCE:
            break
    return page
