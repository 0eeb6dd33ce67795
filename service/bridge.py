"""The bridge for hosts in other languages: JSON lines on standard input, an answer a line on standard output.

A request is ``{"id": …, "session": "…", "event": {"type": …}}``; its answer has the same ``id`` and
``ok`` or ``error`` (`live_session`). The first one is ``{"id": …, "hello": {"version": 1, "host": "…"}}``.
Requests are answered in order. A line that is no request is answered with an error, and the next one is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, BinaryIO

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.recovery.tools import tool_definitions

from .live_session import LiveSession, error_answer
from .log import EventLog, SessionConflict
from .session import Session
from .telemetry import logger
from .wire import InvalidHostEvent, host_event, parsed

PROTOCOL_VERSION = 1
LINE_LIMIT = 256 * 2**20
"""Bytes of a line that is still read."""
_log = logger(__name__)


class InvalidRequest(ContextPagingError):
    """A line is no request: not JSON, too long, without a session or a hello, or of another version."""

    code = "INVALID_REQUEST"


class Bridge:
    """Live sessions of one host program, fed line by line.

    Args:
        log: where the sessions' events go; ``None`` logs nothing.
        estimator: how tokens are counted.
    """

    def __init__(
        self,
        log: EventLog | None,
        *,
        estimator: TokenEstimator | None = None,
        line_limit: int = LINE_LIMIT,
    ) -> None:
        self._event_log = log
        self._estimator = estimator
        self._line_limit = line_limit
        self._host: str | None = None
        self._sessions: dict[str, LiveSession] = {}

    def serve(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        """Answer every line until there are no more. Returns early if nobody reads the answers."""
        for line in self._lines(incoming):
            answer = self.answer(line)
            try:
                outgoing.write(json.dumps(answer).encode() + b"\n")
                outgoing.flush()
            except BrokenPipeError:
                return

    def answer(self, line: bytes | InvalidRequest) -> dict[str, Any]:
        """The answer to one line."""
        request_id = None
        try:
            if isinstance(line, InvalidRequest):
                raise line
            request = _request(line)
            request_id = request.get("id")
            return {"id": request_id, "ok": self._answer(request)}
        except ContextPagingError as error:
            return {"id": request_id, "error": error_answer(error)}
        except Exception as error:
            # Whatever is wrong here must not take the host's agent down.
            _log.exception("a request failed", error=type(error).__name__)
            told = {"code": "INTERNAL_ERROR", "message": "this is a bug of context-paging; its log has more"}
            return {"id": request_id, "error": told}

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "hello" in request:
            return self._hello(request["hello"])
        if self._host is None:
            raise InvalidRequest('say hello first: {"id": 0, "hello": {"version": 1, "host": "my-agent"}}')
        session_id = request.get("session")
        if not isinstance(session_id, str) or not session_id:
            raise InvalidRequest("a request needs the id of its session, as text")
        event = host_event(request.get("event"))
        live = self._sessions.get(session_id)
        if live is None:
            if event.type != "session_start":
                raise InvalidHostEvent(f"session {session_id!r} has not started; send session_start first")
            live = self._begin(session_id, request)
        try:
            answer = live.take(event)
        except SessionConflict:
            # Somebody else goes on with this session's log: it has to start anew.
            self._sessions.pop(session_id, None)
            raise
        self._sessions[session_id] = live
        if event.type == "shut_down":
            del self._sessions[session_id]
        return answer

    def _begin(self, session_id: str, request: Mapping[str, Any]) -> LiveSession:
        label, file = request.get("label"), request.get("session_file")
        return LiveSession(
            Session(
                session_id,
                sink=self._event_log,
                estimator=self._estimator,
                host=self._host or "",
                label=label if isinstance(label, str) else None,
                session_file=file if isinstance(file, str) else None,
                sequence=0 if self._event_log is None else self._event_log.last_sequence(session_id),
            )
        )

    def _hello(self, hello: Any) -> dict[str, Any]:
        given = hello if isinstance(hello, Mapping) else {}
        if given.get("version") != PROTOCOL_VERSION:
            raise InvalidRequest(
                f"this bridge speaks version {PROTOCOL_VERSION}, not {given.get('version')!r:.40}; "
                "update the host's side or this package"
            )
        host = given.get("host")
        if not isinstance(host, str) or not host:
            raise InvalidRequest("hello needs the name of the host, as text")
        self._host = host
        return {
            "version": PROTOCOL_VERSION,
            "context_paging": version("context-paging"),
            "tools": tool_definitions(),
        }

    def _lines(self, incoming: BinaryIO) -> Iterator[bytes | InvalidRequest]:
        while line := incoming.readline(self._line_limit):
            if len(line) == self._line_limit and not line.endswith(b"\n"):
                while (rest := incoming.readline(self._line_limit)) and not rest.endswith(b"\n"):
                    pass
                yield InvalidRequest(f"a line may have {self._line_limit:,} bytes; send less at once")
            elif line.strip():
                yield line


def _request(line: bytes) -> Mapping[str, Any]:
    try:
        request = parsed(line)
    except RecursionError:
        raise InvalidRequest("the line is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest(f"the line is not JSON: {str(error)[:120]}") from None
    if not isinstance(request, Mapping):
        raise InvalidRequest("a request is a JSON object")
    return request
