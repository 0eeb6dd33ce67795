"""Limits of a request's body: its size, and how long a client may take to send it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from .problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DRAINED = 4
"""How many times the limit is read of a body that is too large, before it is refused."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.answer = problem(status, code, detail, {"Connection": "close"})


class BodyLimits:
    """ASGI middleware: refuses bodies above ``most`` bytes, and such as take longer than ``seconds``."""

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting what it brings."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        try:
            if declared.isdigit() and int(declared[:20]) > self._most:
                raise self._too_large()
            await self._app(scope, self._counted(receive), send)
        except _Refused as refused:
            if refused.answer.status_code == 413:
                await self._drain(receive)
            await refused.answer(scope, receive, send)

    async def _drain(self, receive: Receive) -> None:
        # A client that is still sending does not see an answer to a connection that is closed on it.
        left = DRAINED * self._most
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b"")) or 1
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return

    def _counted(self, receive: Receive) -> Receive:
        taken = 0
        complete = False
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def counted() -> Message:
            nonlocal taken, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise _Refused(
                    408, "REQUEST_TIMEOUT", "the body took too long to arrive; send it again"
                ) from None
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if taken > self._most:
                    raise self._too_large()
            return message

        return counted

    def _too_large(self) -> _Refused:
        return _Refused(
            413, "BODY_TOO_LARGE", f"a body may have {self._most:,} bytes; send fewer events at once"
        )
