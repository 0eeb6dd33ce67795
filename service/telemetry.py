"""What the service tells its operator: messages, and what sessions do. Ids and sizes, never content."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog
from structlog.stdlib import BoundLogger

if TYPE_CHECKING:
    from .replies import ContextReply, ToolReply


R = TypeVar("R")
FIELDS = "context_paging"
"""The attribute of a log record that holds the fields of a structured message."""
_render = structlog.processors.KeyValueRenderer(key_order=["event"])


class Telemetry(Protocol):
    """Is told what a session does. Each method spans the work, and gives what to call with the reply."""

    def context(self, session_id: str) -> AbstractContextManager[Callable[[ContextReply], None]]:
        """A context request."""
        ...

    def tool(self, session_id: str, name: str) -> AbstractContextManager[Callable[[ToolReply], None]]:
        """A call of a recovery tool; a refused one ends with its error."""
        ...


class _Silent:
    def context(self, session_id: str) -> AbstractContextManager[Callable[[ContextReply], None]]:
        return _NOTHING

    def tool(self, session_id: str, name: str) -> AbstractContextManager[Callable[[ToolReply], None]]:
        return _NOTHING


_NOTHING = nullcontext[Callable[[object], None]](lambda _: None)
SILENT: Telemetry = _Silent()
"""Tells nobody."""


class Several:
    """Tells several."""

    def __init__(self, *told: Telemetry) -> None:
        self._told = told

    @contextmanager
    def context(self, session_id: str) -> Iterator[Callable[[ContextReply], None]]:
        """A context request."""
        with ExitStack() as stack:
            yield _all([stack.enter_context(each.context(session_id)) for each in self._told])

    @contextmanager
    def tool(self, session_id: str, name: str) -> Iterator[Callable[[ToolReply], None]]:
        """A call of a recovery tool."""
        with ExitStack() as stack:
            yield _all([stack.enter_context(each.tool(session_id, name)) for each in self._told])


def _all(told: list[Callable[[R], None]]) -> Callable[[R], None]:
    def tell(reply: R) -> None:
        for each in told:
            each(reply)

    return tell


def logger(name: str) -> BoundLogger:
    """A structured logger over the standard one of the same name.

    Nothing is configured: an embedding program decides what becomes of the messages. Their text has all
    fields; a formatter finds them in the record's `FIELDS`, too.
    """
    wrapped: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _as_record],
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=False,
    )
    return wrapped


def _as_record(
    wrapped: Any, method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    exception = {"exc_info": event.pop("exc_info")} if "exc_info" in event else {}
    fields = dict(event)
    text = _render(wrapped, method, event)
    return (text,), {"extra": {FIELDS: fields}, **exception}
