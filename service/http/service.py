"""What all routes of a worker share, and how they get at it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPBearer

from ..log import EventLog
from .access import Access
from .live import LiveSessions
from .tokens import Scope, Token


@dataclass
class Service:
    """One worker. ``stopping`` is set when it takes no more requests."""

    log: EventLog
    live: LiveSessions
    access: Access
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


_bearer = HTTPBearer(auto_error=False, description="A token that `context-paging token add` made.")


def service_of(request: Request) -> Service:
    """The worker that answers a request."""
    service: Service = request.app.state.service
    return service


async def this_worker(request: Request) -> Service:
    """The same as a dependency: one that is no coroutine would wait for a thread."""
    return service_of(request)


async def may_write(request: Request, _: Annotated[object, Security(_bearer)]) -> Token:
    """A token that may feed sessions."""
    return service_of(request).access.allowed(request, Scope.WRITE)


async def may_read(request: Request, _: Annotated[object, Security(_bearer)]) -> Token:
    """A token that may read the log."""
    return service_of(request).access.allowed(request, Scope.READ)


async def may_administrate(request: Request, _: Annotated[object, Security(_bearer)]) -> Token:
    """A token that may do what operators do."""
    return service_of(request).access.allowed(request, Scope.ADMIN)


Worker = Annotated[Service, Depends(this_worker)]
Writer = Annotated[Token, Depends(may_write)]
Reader = Annotated[Token, Depends(may_read)]
Administrator = Annotated[Token, Depends(may_administrate)]
SessionId = Annotated[
    str, Path(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$", description="Names the session.")
]
