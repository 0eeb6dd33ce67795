"""The live conversations of a host that serves many: each is opened when it is first heard of."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import Any, Generic

from context_paging.domain.recovery.public_view import RECOVERY_TOOLS
from context_paging.domain.recovery.tools import tool_definitions

from ..paging import ContextPaging, PagingSettings
from .conversation import HostConversation
from .conversion import Converter, H

MOST_LIVE = 1_000
"""How many conversations are kept in memory unless the host says otherwise."""


class Conversations(Generic[H]):
    """Conversations by their ids.

    When there are too many, the one that was not heard of for longest is let go: should it go on, it does so
    without a cut.

    Args:
        host: names the host in the log.
        most: how many are kept in memory.
        recovery_tools: whether the model is offered the tools that read what left the window.
    """

    def __init__(
        self,
        paging: ContextPaging,
        converter: Converter[H],
        *,
        host: str,
        settings: PagingSettings | None = None,
        recovery_tools: bool = True,
        most: int = MOST_LIVE,
    ) -> None:
        self._paging = paging
        self._converter = converter
        self._host = host
        self._settings = settings
        self._most = most
        self._live: OrderedDict[str, HostConversation[H]] = OrderedDict()
        self._lock = Lock()
        self.recovery_tools: list[dict[str, Any]] = tool_definitions() if recovery_tools else []

    def of(self, session_id: str) -> HostConversation[H]:
        """The conversation with an id.

        Raises:
            LogUnavailable: it cannot be opened, because the log does not take its start.
        """
        with self._lock:
            found = self._live.get(session_id)
            if found is None:
                start = partial(self._paging.session, session_id, settings=self._settings, host=self._host)
                found = self._live[session_id] = HostConversation(start, self._converter)
            self._live.move_to_end(session_id)
            let_go = self._live.popitem(last=False)[1] if len(self._live) > self._most else None
        if let_go is not None:
            let_go.close()
        return found

    def answers(self, tool: str) -> bool:
        """Whether a tool is one of those that read what left the window."""
        return bool(self.recovery_tools) and tool in RECOVERY_TOOLS

    def close(self) -> None:
        """The host is done with all of them."""
        with self._lock:
            live, self._live = self._live, OrderedDict()
        for conversation in live.values():
            conversation.close()
