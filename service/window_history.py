"""The window over time: what each call of a session sent, and what happened to its cut, from the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from context_paging.domain.events import (
    AuditInterrupted,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
)
from context_paging.domain.hindsight import followed
from context_paging.domain.state import SessionState
from context_paging.domain.what_if import IncompleteLog

from .log.records import StoredEvent


@dataclass(frozen=True, slots=True)
class CallPoint:
    """A provider call; sizes in tokens, ``None`` where they are not known.

    Attributes:
        history_tokens: of everything the host would have sent.
        sent_tokens: of what went out.
    """

    number: int
    at: datetime
    outcome: str
    code: str | None = None
    history_tokens: float | None = None
    sent_tokens: float | None = None
    budget_tokens: float | None = None
    advanced: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """The cut was given up before the call with this number, for a reason of the reset table."""

    before_call: int
    sequence: int
    why: str


@dataclass
class WindowHistory:
    """Folds a session's events, from the first one on; more may be taken as they come.

    Attributes:
        began_at: when the session began, as the log says.
        sequence: of the last event taken.
        incomplete: events are missing, so that resets and histories are not told from there on.
    """

    began_at: datetime | None = None
    points: list[CallPoint] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    sequence: int = 0
    incomplete: bool = False
    _state: SessionState = field(default_factory=SessionState)
    _history: float | None = None

    def take(self, stored: StoredEvent) -> None:
        """Fold the next event."""
        self.sequence = stored.sequence
        event = stored.event
        match event:
            case AuditInterrupted():
                self.incomplete = True
            case ContextSelected():
                known = event.context_tokens
                self._add(
                    stored,
                    event.mode.value,
                    history_tokens=self._history if known is None else known,
                    sent_tokens=event.estimated_tokens,
                    budget_tokens=event.budget_tokens,
                    advanced=event.advanced,
                )
            case ContextAborted():
                self._add(
                    stored,
                    "aborted",
                    code=event.code.value,
                    history_tokens=self._history,
                    budget_tokens=event.budget_tokens or None,
                )
            case ContextBypassed():
                self._add(stored, "inactive")
            case _:
                pass
        if not self.incomplete:
            self._follow(stored)
        if isinstance(event, ContextRequested):
            self._history = self._whole_request(event)

    def _add(
        self,
        stored: StoredEvent,
        outcome: str,
        *,
        code: str | None = None,
        history_tokens: float | None = None,
        sent_tokens: float | None = None,
        budget_tokens: float | None = None,
        advanced: bool = False,
    ) -> None:
        number = len(self.points) + 1
        self.points.append(
            CallPoint(
                number,
                stored.recorded_at,
                outcome,
                code,
                history_tokens,
                sent_tokens,
                budget_tokens,
                advanced,
            )
        )

    def _follow(self, stored: StoredEvent) -> None:
        try:
            self._state, transition = followed(self._state, stored.event)
        except IncompleteLog:
            self.incomplete = True
            return
        if transition is not None and self._state.frontier is None:
            self.resets.append(Reset(len(self.points) + 1, stored.sequence, transition.value))

    def _whole_request(self, request: ContextRequested) -> float | None:
        if self.incomplete:
            return None
        repaired = self._state.request
        whole = self._state.conversation if repaired is None else repaired.host
        return request.resident_tokens + whole.input_tokens
