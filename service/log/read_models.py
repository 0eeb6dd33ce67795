"""Read models: what events say about sessions and provider calls. Pure, so that they can be rebuilt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from context_paging.domain.events import (
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    ModelSelected,
    SessionStarted,
    TurnEnded,
)

from .records import StoredCall, StoredSession

LONGEST_NAME = 200
INACTIVE = "inactive"
ABORTED = "aborted"
_OF_SESSIONS = (ModelSelected, SessionStarted)
_BEGINNINGS = (ContextRequested, ContextBypassed)


class NewEvent(NamedTuple):
    """An event with its place in the session, and its hash if it has one."""

    event: Event
    sequence: int
    recorded_at: datetime
    call_id: str | None
    hash: bytes | None


class OfCall(Protocol):
    """Whatever belongs to a provider call, or to none."""

    @property
    def call_id(self) -> str | None: ...


def earlier_calls(events: Iterable[Event], rows: Iterable[OfCall]) -> set[str]:
    """Ids of the calls that events belong to, and that began before these events."""
    begun: set[str] = set()
    named: set[str] = set()
    for event, row in zip(events, rows, strict=True):
        call_id = row.call_id
        if call_id is not None:
            named.add(call_id)
            if isinstance(event, _BEGINNINGS):
                begun.add(call_id)
    return named - begun


@dataclass(slots=True)
class SessionModel:
    """The read models of one session while events are folded into them.

    Attributes:
        session: ``None`` before the first event.
        calls: calls that events changed, or that may be changed, by id.
        changed: ids of the calls that changed.
    """

    session: StoredSession | None = None
    calls: dict[str, StoredCall] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def fold(self, session_id: str, label: str | None, events: Sequence[NewEvent]) -> None:
        """Take in events, in order."""
        if not events:
            return
        first, last = events[0], events[-1]
        session = self.session or StoredSession(
            session_id, label, first.recorded_at, first.recorded_at, 0, 0, 0, 0, 0, None, None, None
        )
        for new in events:
            if new.call_id is not None or isinstance(new.event, _OF_SESSIONS):
                session = self._with_event(session, new)
        self.session = session._replace(
            # A clock that was set back does not make a session older than it is: it would be retired.
            last_at=max(session.last_at, *(new.recorded_at for new in events)),
            last_sequence=last.sequence,
            events=session.events + len(events),
            last_hash=last.hash,
        )

    def _with_event(self, session: StoredSession, new: NewEvent) -> StoredSession:
        event, call_id = new.event, new.call_id
        if isinstance(event, SessionStarted):
            return session._replace(host=_name(event.host))
        if isinstance(event, ModelSelected):
            return session._replace(model=_name(event.model))
        if isinstance(event, _BEGINNINGS) and call_id is not None:
            session = session._replace(calls=session.calls + 1)
            window = event.context_window if isinstance(event, ContextRequested) else None
            self._set(_new_call(session, new, call_id)._replace(context_window=window))
            return session
        call = self.calls.get(call_id or "")
        if call is None:
            return session
        call = call._replace(last_sequence=new.sequence)
        match event:
            case ContextSelected():
                session = session._replace(cuts=session.cuts + event.advanced)
                call = _decided(call, event)
            case ContextAborted():
                session = session._replace(aborted_calls=session.aborted_calls + 1)
                call = _decided(call, event)
            case TurnEnded():
                call = call._replace(response_tokens=event.response.reported_tokens)
            case _:
                pass
        self._set(call)
        return session

    def _set(self, call: StoredCall) -> None:
        self.calls[call.call_id] = call
        self.changed.add(call.call_id)


def _name(text: str | None) -> str | None:
    # Enough to find it by; an index holds no more than some kilobytes, and the event has all of it.
    return None if text is None else text[:LONGEST_NAME]


def _new_call(session: StoredSession, new: NewEvent, call_id: str) -> StoredCall:
    return StoredCall(
        call_id=call_id,
        session_id=session.session_id,
        number=session.calls,
        sequence=new.sequence,
        requested_at=new.recorded_at,
        outcome=INACTIVE,
        rule=None,
        code=None,
        fallback=None,
        estimated_tokens=None,
        budget_tokens=None,
        target_tokens=None,
        resident_tokens=None,
        context_window=None,
        evicted_units=0,
        advanced=False,
        response_tokens=None,
        last_sequence=new.sequence,
        host=session.host,
        model=session.model,
    )


def _decided(call: StoredCall, event: ContextSelected | ContextAborted) -> StoredCall:
    call = call._replace(
        rule=event.rule.value,
        fallback=None if event.fallback is None else event.fallback.value,
        estimated_tokens=event.estimated_tokens,
        budget_tokens=event.budget_tokens,
        target_tokens=event.target_tokens,
        resident_tokens=event.resident_tokens,
        evicted_units=event.evicted_units,
    )
    if isinstance(event, ContextAborted):
        return call._replace(outcome=ABORTED, code=event.code.value)
    return call._replace(outcome=event.mode.value, advanced=event.advanced)
