"""The live sessions of one worker: in memory, one request at a time for each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.stats import SessionStatistics

from ..live_session import Answers, LiveSession
from ..log import EventLog, SessionConflict
from ..session import Session
from ..telemetry import SILENT, Telemetry
from ..wire import HostEvent, SessionStart, ShutDown
from .problems import NotLive, TooManySessions

R = TypeVar("R")
THREADS = 4
"""Events that are worked on at once; more of them only wait for each other."""

CLOSED = 200
"""Of how many sessions that are not live any more the answers are kept."""


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """How much a worker keeps in memory.

    Attributes:
        sessions: so many live ones; the one idle longest is let go for another.
        idle_seconds: a session that nobody used for so long is let go.
        session_characters: of entries and messages in one session, as JSON, about.
    """

    sessions: int = 10_000
    idle_seconds: float = 4 * 3600.0
    session_characters: int = 512 * 2**20


@dataclass
class _Entry:
    live: LiveSession | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answers: Answers = field(default_factory=Answers)
    users: int = 0
    used_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What events led to: an answer each, up to the first one that was refused."""

    answers: list[dict[str, Any]]
    refused: ContextPagingError | None = None


class LiveSessions:
    """Feeds sessions. Everything but the sessions' own work happens in the event loop's thread.

    Attributes:
        let_go: how many sessions are not live any more.
    """

    def __init__(
        self,
        log: EventLog,
        limits: LiveLimits,
        telemetry: Telemetry = SILENT,
        estimator: TokenEstimator | None = None,
    ) -> None:
        self._log = log
        self._estimator = estimator
        self._limits = limits
        self._telemetry = telemetry
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._closed: OrderedDict[str, Answers] = OrderedDict()
        self._threads = CapacityLimiter(THREADS)
        self.let_go = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def work(self, function: Callable[..., R], *arguments: Any) -> R:
        """Do something for a session in one of its worker's threads, which no reader of the log takes."""
        return await to_thread.run_sync(function, *arguments, limiter=self._threads)

    async def take(
        self,
        session_id: str,
        events: Sequence[HostEvent],
        respond: Callable[[Taken], R],
        host: str = "",
        label: str | None = None,
    ) -> tuple[Taken, R]:
        """Do what events say, in order.

        What comes of them is made a response in the same thread, since it may be large.

        Raises:
            NotLive: the session is not live here, and the first event is not its start.
            TooManySessions: another session cannot become live.
        """
        if session_id not in self._entries and session_id in self._closed:
            told = _told_again(self._closed[session_id], events)
            if told is not None:
                return told, respond(told)
        async with self._using(session_id, starts=isinstance(events[0], SessionStart)) as entry:
            return await self.work(self._take, session_id, entry, events, respond, host, label)

    async def statistics(self, session_id: str) -> SessionStatistics:
        """The statistics of a live session.

        Raises:
            NotLive: it is not live here.
        """
        async with self._using(session_id, starts=False) as entry:
            assert entry.live is not None
            return await self.work(entry.live.session.statistics)

    def _take(
        self,
        session_id: str,
        entry: _Entry,
        events: Sequence[HostEvent],
        respond: Callable[[Taken], R],
        host: str,
        label: str | None,
    ) -> tuple[Taken, R]:
        taken = self._taken(session_id, entry, events, host, label)
        return taken, respond(taken)

    def _taken(
        self, session_id: str, entry: _Entry, events: Sequence[HostEvent], host: str, label: str | None
    ) -> Taken:
        answers: list[dict[str, Any]] = []
        for event in events:
            try:
                if entry.live is None:
                    if not isinstance(event, SessionStart):
                        raise not_live(session_id)
                    begun = self._begun(session_id, entry.answers, host, label)
                    answers.append(begun.begin(event))
                    entry.live = begun
                    continue
                answers.append(entry.live.take(event))
            except SessionConflict as error:
                # The session goes on elsewhere; here it has to start anew.
                entry.live = None
                return Taken(answers, error)
            except ContextPagingError as error:
                return Taken(answers, error)
            if isinstance(event, ShutDown):
                entry.live = None
        return Taken(answers)

    def _begun(self, session_id: str, answers: Answers, host: str, label: str | None) -> LiveSession:
        sequence = self._log.last_sequence(session_id)
        session = Session(
            session_id,
            sink=self._log,
            estimator=self._estimator,
            host=host,
            label=label,
            sequence=sequence,
            telemetry=self._telemetry,
        )
        return LiveSession(session, answers, self._limits.session_characters)

    @asynccontextmanager
    async def _using(self, session_id: str, *, starts: bool) -> AsyncIterator[_Entry]:
        entry = self._entries.get(session_id)
        if entry is None:
            if not starts:
                raise not_live(session_id)
            entry = self._made(session_id)
        entry.users += 1
        try:
            async with entry.lock:
                if entry.live is None and not starts:
                    raise not_live(session_id)
                yield entry
        finally:
            entry.users -= 1
            entry.used_at = monotonic()
            if entry.live is not None:
                self._entries.move_to_end(session_id)
            elif not entry.users:
                self._close(session_id)

    def let_idle_go(self, room: int = 0) -> None:
        """Let go what was idle too long, and what was idle longest until there is room for more."""
        long_ago = monotonic() - self._limits.idle_seconds
        surplus = len(self._entries) + room - self._limits.sessions
        idle = [known for known, entry in self._entries.items() if not entry.users]
        for number, known in enumerate(idle):
            if number >= surplus and self._entries[known].used_at > long_ago:
                break
            self._close(known)

    def _close(self, session_id: str) -> None:
        # What was answered stays known for a while: the host may not have heard.
        self._closed[session_id] = self._entries.pop(session_id).answers
        if len(self._closed) > CLOSED:
            self._closed.popitem(last=False)
        self.let_go += 1

    def _made(self, session_id: str) -> _Entry:
        self.let_idle_go(room=1)
        if len(self._entries) >= self._limits.sessions:
            raise TooManySessions(
                f"this worker has {self._limits.sessions:,} live sessions, all of them in use; try again"
            )
        answers = self._closed.pop(session_id, None) or Answers()
        entry = self._entries[session_id] = _Entry(answers=answers, used_at=monotonic())
        return entry


def _told_again(answers: Answers, events: Sequence[HostEvent]) -> Taken | None:
    """What events of a session that is closed were answered with, if all of them come again."""
    told: list[dict[str, Any]] = []
    for event in events:
        try:
            _, known = answers.find(event)
        except ContextPagingError as error:
            return Taken(told, error)
        if known is None:
            return None
        if not isinstance(known, dict):
            return Taken(told, known)
        told.append(known)
    return Taken(told)


def not_live(session_id: str) -> NotLive:
    """The error for an event of a session that has not started here."""
    return NotLive(
        f"session {session_id[:80]!r} is not live on this worker; send session_start, append its entries, "
        "and go on: its log continues, its cut begins empty"
    )
