"""Context paging for programs on an event loop: the same sessions, with awaitable methods.

Each call runs on a thread of the loop's executor, so that neither a selection nor a slow log holds it up.
Calls of one session wait for each other, in the order they were made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from context_paging.domain.entries import Entry
from context_paging.domain.messages import Message
from context_paging.domain.stats import SessionStatistics

from .paging import ContextPaging, PagingSettings
from .replies import ContextReply, Reply, ToolReply
from .session import Session, SessionBusy

P = ParamSpec("P")
R = TypeVar("R")


class AsyncSession:
    """`Session` with awaitable methods; they do and raise the same.

    Attributes:
        session: the session itself. It must not be called while one of these methods is awaited.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def id(self) -> str:
        """Names the session."""
        return self.session.id

    async def append(self, entries: Iterable[Entry]) -> None:
        """See `Session.append`."""
        await self._call(self.session.append, entries)

    async def context(
        self,
        messages: Sequence[Message] | None = None,
        *,
        system_prompt: str = "",
        tools: Iterable[Mapping[str, Any]] = (),
        context_window: float | None = None,
        usage_tokens: float | Literal["stored"] | None = None,
    ) -> ContextReply:
        """See `Session.context`."""
        return await self._call(
            self.session.context,
            messages,
            system_prompt=system_prompt,
            tools=tools,
            context_window=context_window,
            usage_tokens=usage_tokens,
        )

    async def turn_end(self, entry_id: str | None = None, *, response: Message | None = None) -> Reply:
        """See `Session.turn_end`."""
        return await self._call(self.session.turn_end, entry_id, response=response)

    async def navigate(self, leaf_id: str | None) -> Reply:
        """See `Session.navigate`."""
        return await self._call(self.session.navigate, leaf_id)

    async def select_model(self, model: str | None = None, context_window: float | None = None) -> Reply:
        """See `Session.select_model`."""
        return await self._call(self.session.select_model, model, context_window)

    async def before_compaction(self, reason: str) -> Reply:
        """See `Session.before_compaction`."""
        return await self._call(self.session.before_compaction, reason)

    async def compacted(self, entry_id: str | None) -> Reply:
        """See `Session.compacted`."""
        return await self._call(self.session.compacted, entry_id)

    async def attempt_cancelled(self, attempt: Literal["branch", "fork", "switch", "compaction"]) -> Reply:
        """See `Session.attempt_cancelled`."""
        return await self._call(self.session.attempt_cancelled, attempt)

    async def command(self, arguments: str) -> Reply:
        """See `Session.command`."""
        return await self._call(self.session.command, arguments)

    async def tool(self, name: str, parameters: Any) -> ToolReply:
        """See `Session.tool`."""
        return await self._call(self.session.tool, name, parameters)

    async def statistics(self) -> SessionStatistics:
        """See `Session.statistics`."""
        return await self._call(self.session.statistics)

    async def shut_down(self) -> Reply:
        """See `Session.shut_down`."""
        return await self._call(self.session.shut_down)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shut_down()

    async def _call(self, method: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._turn.locked() and self._loop is not None and not self._loop.is_closed():
                raise SessionBusy(
                    f"session {self.id!r} is being called on another event loop; "
                    "give each loop a session of its own"
                )
            # Another loop may go on with a session that nobody waits for, as after a second `asyncio.run`.
            self._loop, self._turn = loop, asyncio.Lock()
        # A thread cannot be stopped half way: the next call waits for it even if this one is cancelled.
        turn = self._turn
        await turn.acquire()
        running = asyncio.ensure_future(asyncio.to_thread(method, *args, **kwargs))
        running.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(running)


class AsyncContextPaging:
    """`ContextPaging` with awaitable methods; they do and raise the same.

    Attributes:
        paging: the sessions' home. The adapters of `context_paging.service.hosts` take it, also on a loop.
    """

    def __init__(self, paging: ContextPaging) -> None:
        self.paging = paging

    @classmethod
    async def open(cls, location: str | Path | None = None, **options: Any) -> Self:
        """See `ContextPaging.open`."""
        return cls(await asyncio.to_thread(ContextPaging.open, location, **options))

    async def session(
        self,
        session_id: str,
        *,
        reason: str | None = None,
        settings: PagingSettings | Mapping[str, Any] | None = None,
        host: str = "python",
        label: str | None = None,
        session_file: str | PathLike[str] | None = None,
    ) -> AsyncSession:
        """See `ContextPaging.session`."""
        session = await asyncio.to_thread(
            self.paging.session,
            session_id,
            reason=reason,
            settings=settings,
            host=host,
            label=label,
            session_file=session_file,
        )
        return AsyncSession(session)

    async def close(self) -> None:
        """See `ContextPaging.close`."""
        await asyncio.to_thread(self.paging.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
