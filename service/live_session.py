"""Live sessions that other programs feed with host events, and the answers: JSON values.

An event with an id is answered once: when it comes again, it is answered again and not done again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict
from hashlib import sha256
from typing import Any, assert_never

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.events import ContextAborted
from context_paging.domain.recovery.errors import RecoveryRefused

from .replies import ContextReply, Reply, ToolReply
from .session import Session
from .wire import (
    Append,
    BeforeCompaction,
    Cancelled,
    Command,
    Compacted,
    Context,
    HostEvent,
    InvalidHostEvent,
    Navigate,
    SelectModel,
    SessionStart,
    ShutDown,
    ToolCall,
    TurnEnd,
    kept_characters,
)

REMEMBERED_ANSWERS = 2_048
"""How many answers a live session keeps for events that come again."""


class UnknownPrefix(ContextPagingError):
    """A context request builds on more messages than the session's last one had: send all of them."""

    code = "UNKNOWN_PREFIX"


class EventIdReused(ContextPagingError):
    """An event has the id of another one that the session took."""

    code = "EVENT_ID_REUSED"


Answered = dict[str, Any] | RecoveryRefused


def digest_of(event: HostEvent) -> bytes:
    """What tells an event from another one with its id; empty if it has none.

    Raises:
        InvalidHostEvent: it is nested too deeply.
    """
    if event.event_id is None:
        return b""
    try:
        return sha256(repr(event).encode("utf-8", "surrogatepass")).digest()
    except RecursionError:
        raise InvalidHostEvent("the event is nested too deeply") from None


class Answers:
    """The newest answers to a session's events with ids."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, Answered]] = OrderedDict()

    def find(self, event: HostEvent) -> tuple[bytes, Answered | None]:
        """The digest of an event, and what it was answered with, if it comes again.

        Raises:
            EventIdReused: another event had its id.
            InvalidHostEvent: it is nested too deeply.
        """
        digest = digest_of(event)
        known = self._known.get(event.event_id) if event.event_id is not None else None
        if known is not None and known[0] != digest:
            raise EventIdReused(
                f"the session took another event with the id {event.event_id!r}; give every event its own"
            )
        return digest, None if known is None else known[1]

    def remember(self, event: HostEvent, digest: bytes, answered: Answered) -> None:
        """Keep an answer, if its event has an id."""
        if event.event_id is None:
            return
        self._known[event.event_id] = digest, answered
        self._known.move_to_end(event.event_id)
        if len(self._known) > REMEMBERED_ANSWERS:
            self._known.popitem(last=False)


class SessionTooLarge(ContextPagingError):
    """A live session would hold more than it may in memory."""

    code = "SESSION_TOO_LARGE"


class LiveSession:
    """A session that is fed host events.

    ``answers`` are those of its earlier lives. ``most`` is how many characters of entries and messages it may
    hold, about; without it nothing is counted.
    """

    def __init__(self, session: Session, answers: Answers | None = None, most: int | None = None) -> None:
        self.session = session
        self.answers = Answers() if answers is None else answers
        self._most = most
        self._outgoing: list[Any] = []
        self._stored_characters = self._outgoing_characters = 0

    def take(self, event: HostEvent) -> dict[str, Any]:
        """Do what an event says, and answer with JSON values.

        An answer's ``sequence`` is that of the session's last event in the log.

        Raises:
            EventIdReused: another event had its id.
            ContextPagingError: what is wrong with the event; nothing has changed but the entries before the
                wrong one of an ``append``.
        """
        digest, known = self.answers.find(event)
        if isinstance(known, RecoveryRefused):
            raise known
        return self._do(event, digest) if known is None else known

    def begin(self, event: SessionStart) -> dict[str, Any]:
        """Take the event that makes the session live, whether it was answered in an earlier life or not."""
        return self._do(event, digest_of(event))

    def _do(self, event: HostEvent, digest: bytes) -> dict[str, Any]:
        try:
            answer = {**self._take(event), "sequence": self.session.sequence}
        except RecoveryRefused as refused:
            # It is in the log, as an answer is.
            self.answers.remember(event, digest, refused)
            raise
        self.answers.remember(event, digest, answer)
        return answer

    def _take(self, event: HostEvent) -> dict[str, Any]:
        if self._most is None:
            return self._done(event)
        stored, outgoing = self._stored_characters, self._outgoing_characters
        kept = kept_characters(event)
        if not isinstance(event, Context):
            stored += kept
        elif event.messages is not None:
            outgoing = kept + (outgoing if event.unchanged else 0)
        if stored + outgoing > self._most:
            raise SessionTooLarge(
                f"the session would hold more than {self._most:,} characters of entries and messages; "
                "shut it down and start it anew with the entries of its branch"
            )
        answer = self._done(event)
        self._stored_characters, self._outgoing_characters = stored, outgoing
        return answer

    def _done(self, event: HostEvent) -> dict[str, Any]:
        session = self.session
        match event:
            case SessionStart():
                return _told(self._start(event))
            case Append():
                session.append(event.entries)
                return {}
            case Context():
                return self._context(event)
            case TurnEnd():
                return _told(session.turn_end(event.entry_id, response=event.response))
            case Navigate():
                return _told(session.navigate(event.leaf_id))
            case SelectModel():
                return _told(session.select_model(event.model, event.context_window))
            case BeforeCompaction():
                reply = session.before_compaction(event.reason)
                return {**_told(reply), "cancel": reply.cancelled}
            case Compacted():
                return _told(session.compacted(event.entry_id))
            case Cancelled():
                return _told(session.attempt_cancelled(event.attempt))
            case Command():
                told = _told(session.command(event.arguments))
                statistics = event.arguments.strip() == "stats"
                return {**told, "statistics": asdict(session.statistics())} if statistics else told
            case ToolCall():
                return _tool_answer(session.tool(event.name, event.parameters))
            case ShutDown():
                return _told(session.shut_down())
            case _:
                assert_never(event)

    def _start(self, event: SessionStart) -> Reply:
        if event.error is not None:
            return self.session.start_without_settings(event.reason, event.error)
        return self.session.start(
            event.reason,
            global_settings=event.global_settings,
            project_settings=event.project_settings,
            project_trusted=event.project_trusted,
        )

    def _context(self, event: Context) -> dict[str, Any]:
        outgoing = None
        if event.messages is not None:
            if event.unchanged > len(self._outgoing):
                raise UnknownPrefix(
                    f"the last request of this session had {len(self._outgoing)} messages, so that "
                    f"{event.unchanged} cannot be unchanged; send all messages with unchanged 0"
                )
            outgoing = [*self._outgoing[: event.unchanged], *event.messages]
        reply = self.session.context(
            outgoing,
            system_prompt=event.system_prompt,
            tools=event.tools,
            context_window=event.context_window,
            usage_tokens=event.usage_tokens,
        )
        if outgoing is not None:
            self._outgoing = outgoing
        return {**_told(reply), **_context_answer(reply)}


def error_answer(error: ContextPagingError) -> dict[str, Any]:
    """An error as JSON values: its code, and what to do."""
    return {"code": error.told_code, "message": str(error)}


def _told(reply: Reply) -> dict[str, Any]:
    notifications = [{"level": note.level, "text": note.text} for note in reply.notifications]
    return {"notifications": notifications, "status": reply.status}


def _context_answer(reply: ContextReply) -> dict[str, Any]:
    outcome = reply.outcome
    answer: dict[str, Any] = {"call_id": reply.call_id}
    if outcome is None:
        return {**answer, "outcome": "inactive", "send": _sent(reply)}
    answer["estimated_tokens"] = outcome.estimated_tokens
    answer["budget_tokens"] = outcome.budget_tokens
    if isinstance(outcome, ContextAborted):
        return {**answer, "outcome": "aborted", "code": outcome.code.value, "message": outcome.message}
    return {**answer, "outcome": outcome.mode.value, "send": _sent(reply)}


def _sent(reply: ContextReply) -> list[dict[str, Any]]:
    """What to send, in order: runs of the host's messages from ``first`` to ``last``, and whole messages."""
    return [
        {"first": part[0], "last": part[1]} if isinstance(part, tuple) else {"message": part}
        for part in reply.sent
    ]


def _tool_answer(reply: ToolReply) -> dict[str, Any]:
    return {**_told(reply), "text": reply.text, "result": dict(reply.result)}
