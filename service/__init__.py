"""The embed API: open `ContextPaging` once, and start its sessions.

Names are loaded when they are asked for, so that a program pays for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_paging.domain.errors import ContextPagingError
    from context_paging.domain.recovery.errors import RecoveryRefused
    from context_paging.domain.recovery.tools import tool_definitions

    from .log import Audit, Durability, EventLog, LogOptions, Payloads
    from .paging import ContextPaging, InvalidSetting, PagingSettings
    from .paging_aio import AsyncContextPaging, AsyncSession
    from .replies import ContextAbortedError, ContextReply, Reply, ToolReply
    from .session import Session, SessionBusy

_DOMAIN = "context_paging.domain"
_HOMES = {
    "AsyncContextPaging": "context_paging.service.paging_aio",
    "AsyncSession": "context_paging.service.paging_aio",
    "Audit": "context_paging.service.log",
    "ContextAbortedError": "context_paging.service.replies",
    "ContextPaging": "context_paging.service.paging",
    "ContextPagingError": f"{_DOMAIN}.errors",
    "ContextReply": "context_paging.service.replies",
    "Durability": "context_paging.service.log",
    "EventLog": "context_paging.service.log",
    "InvalidSetting": "context_paging.service.paging",
    "LogOptions": "context_paging.service.log",
    "PagingSettings": "context_paging.service.paging",
    "Payloads": "context_paging.service.log",
    "RecoveryRefused": f"{_DOMAIN}.recovery.errors",
    "Reply": "context_paging.service.replies",
    "Session": "context_paging.service.session",
    "SessionBusy": "context_paging.service.session",
    "ToolReply": "context_paging.service.replies",
    "tool_definitions": f"{_DOMAIN}.recovery.tools",
}

__all__ = [
    "AsyncContextPaging",
    "AsyncSession",
    "Audit",
    "ContextAbortedError",
    "ContextPaging",
    "ContextPagingError",
    "ContextReply",
    "Durability",
    "EventLog",
    "InvalidSetting",
    "LogOptions",
    "PagingSettings",
    "Payloads",
    "RecoveryRefused",
    "Reply",
    "Session",
    "SessionBusy",
    "ToolReply",
    "tool_definitions",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
