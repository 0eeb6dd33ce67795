"""`decide`: which decision events a host event leads to. Pure, like everything it calls."""

from __future__ import annotations

from .estimation import TokenEstimator
from .events import (
    BranchRefreshed,
    CompactionCancelled,
    CompactionRequested,
    ContextRequested,
    Event,
    HistoryUnavailable,
    PagingToggled,
    SessionStarted,
    SettingsReadFailed,
    StatusPublished,
    TrimTargetWarned,
)
from .reducers import Transition, transition_of
from .selection import select
from .state import SessionState

STATUS_TEXT = {True: "paging on", False: "paging off"}
"""What the status line shows (architecture, "Lifecycle")."""


def decide(state: SessionState, event: Event, estimator: TokenEstimator) -> tuple[Event, ...]:
    """The decision events that follow an event. ``state`` is the state after it."""
    match event:
        case SessionStarted() | SettingsReadFailed() | PagingToggled():
            return (StatusPublished(text=STATUS_TEXT[state.enabled]),)
        case BranchRefreshed():
            error = state.branch.history.error
            return () if error is None else (HistoryUnavailable(code=error),)
        case CompactionRequested():
            refused = transition_of(state, event) is Transition.COMPACTION_REFUSED
            return (CompactionCancelled(reason=event.reason),) if refused else ()
        case ContextRequested():
            return (select(state, event, estimator),)
        case _:
            return ()


def trim_target_warning(state: SessionState) -> TrimTargetWarned | None:
    """The warning due before a context request: once for each pair of budget and target."""
    settings = state.settings
    pair = (settings.token_budget, settings.trim_to_tokens)
    if not state.enabled or not settings.leaves_no_headroom or pair in state.warned:
        return None
    return TrimTargetWarned(token_budget=pair[0], trim_to_tokens=pair[1])
