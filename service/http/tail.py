"""The tail: events of the log as they come, as server-sent events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from ..log import EventLog, LogUnavailable
from ..log.reader import POLL_SECONDS
from ..log.tail import TailPlace
from .audit import Position, Text
from .models import EventRecord
from .problems import PROBLEMS
from .service import Reader, Worker
from .tokens import Token

AT_ONCE = 200
AWAY_SECONDS = 1.0
DOUBT_SECONDS = 0.01
STREAMS = 200
"""How many streams a worker has at once."""
STREAMS_OF_A_TOKEN = 50
routes = APIRouter(prefix="/v1", tags=["log"], responses=PROBLEMS)


class Pulse:
    """Wakes streams when the log has grown: one question to the database for all that wait."""

    def __init__(self, log: EventLog, stopping: asyncio.Event) -> None:
        self._log = log
        self._stopping = stopping
        self._position = 0
        self._grown = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self.streams = 0
        self.by_token: Counter[str] = Counter()

    async def beyond(self, position: int) -> None:
        """Wait until the log may have something behind a position, or the worker stops."""
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        if self._position <= position:
            await self._grown.wait()

    async def _watch(self) -> None:
        while self.streams and not self._stopping.is_set():
            with suppress(LogUnavailable):
                position = await run_in_threadpool(self._log.last_position)
                if position != self._position:
                    self._position = position
                    self._wake()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), POLL_SECONDS)
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


@contextmanager
def _counted(pulse: Pulse, token: Token) -> Iterator[None]:
    pulse.streams += 1
    pulse.by_token[token.name] += 1
    try:
        yield
    finally:
        pulse.streams -= 1
        pulse.by_token[token.name] -= 1


async def may_stream(request: Request, token: Reader) -> Pulse:
    """What a further stream waits for.

    Raises:
        HTTPException: 429, the token has as many as it may have; 503, the worker has.
    """
    pulse: Pulse = request.app.state.pulse
    if pulse.streams >= STREAMS:
        raise HTTPException(503, f"this worker has {STREAMS} streams already; close some")
    if pulse.by_token[token.name] >= STREAMS_OF_A_TOKEN:
        raise HTTPException(429, f"this token has {STREAMS_OF_A_TOKEN} streams already; close some")
    return pulse


@routes.get("/tail", response_class=EventSourceResponse)
async def tail(
    service: Worker,
    token: Reader,
    pulse: Annotated[Pulse, Depends(may_stream)],
    after: Annotated[
        Position | None, Query(description="Begin behind this position; else with what comes.")
    ] = None,
    session: Text = None,
    follow: bool = True,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Events of all sessions, or of one, by position, each once and without gaps, as server-sent events.

    The id of each is its position: a browser that reconnects goes on behind it.
    """
    begin = after
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdecimal():
        begin = min(int(last_event_id), 2**63 - 1)
    start = None if begin is None else TailPlace(begin)
    with _counted(pulse, token):
        while not service.stopping.is_set() and service.access.holds(token):
            try:
                if start is None:
                    start = TailPlace(await run_in_threadpool(service.log.last_position))
                found, place = await run_in_threadpool(service.log.read_on, start, AT_ONCE)
            except LogUnavailable:
                if not follow:
                    # A stream that ends well would look complete.
                    raise
                # A reader that is told so would not come back by itself.
                await asyncio.sleep(AWAY_SECONDS)
                continue
            start = place
            for event in found:
                if event.session_id.startswith(token.prefix) and session in (None, event.session_id):
                    yield ServerSentEvent(
                        data=EventRecord.of(event), event="appended", id=str(event.position)
                    )
            if not found and place.doubted:
                await asyncio.sleep(DOUBT_SECONDS)
            elif not found:
                if not follow:
                    return
                await pulse.beyond(place.position)
