"""Read models: what events say about sessions and provider calls. Pure, so that they can be rebuilt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from context_paging.domain.events import (
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    ModelSelected,
    TurnEnded,
)

from .records import StoredCall, StoredSession

INACTIVE = "inactive"
ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event with its place in the session."""

    event: Event
    sequence: int
    recorded_at: datetime
    call_id: str | None


def earlier_calls(events: Iterable[NewEvent]) -> set[str]:
    """Ids of the calls that events decide or answer, and that began before these events."""
    begun: set[str] = set()
    earlier: set[str] = set()
    for new in events:
        if new.call_id is None or new.call_id in begun:
            continue
        if isinstance(new.event, ContextRequested | ContextBypassed):
            begun.add(new.call_id)
        elif isinstance(new.event, ContextSelected | ContextAborted | TurnEnded):
            earlier.add(new.call_id)
    return earlier


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

    def fold(self, session_id: str, label: str | None, events: Iterable[NewEvent]) -> None:
        """Take in events, in order."""
        for new in events:
            session = self.session or StoredSession(
                session_id, label, new.recorded_at, new.recorded_at, 0, 0, 0, 0, 0, None
            )
            session = session._replace(
                last_at=new.recorded_at, last_sequence=new.sequence, events=session.events + 1
            )
            self.session = self._with_call(session, new)

    def _with_call(self, session: StoredSession, new: NewEvent) -> StoredSession:
        event = new.event
        match event:
            case ModelSelected():
                return session._replace(model=event.model)
            case ContextRequested() | ContextBypassed() if new.call_id is not None:
                session = session._replace(calls=session.calls + 1)
                window = event.context_window if isinstance(event, ContextRequested) else None
                call = _new_call(session, new, new.call_id)._replace(context_window=window)
                self._set(call)
            case ContextSelected() | ContextAborted() if new.call_id in self.calls:
                self._set(_decided(self.calls[new.call_id or ""], event))
                if isinstance(event, ContextAborted):
                    return session._replace(aborted_calls=session.aborted_calls + 1)
                return session._replace(cuts=session.cuts + event.advanced)
            case TurnEnded() if new.call_id in self.calls:
                call = self.calls[new.call_id or ""]
                self._set(call._replace(response_tokens=event.response.reported_tokens))
            case _:
                pass
        return session

    def _set(self, call: StoredCall) -> None:
        self.calls[call.call_id] = call
        self.changed.add(call.call_id)


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
