"""What an event amounts to in the state it meets: the dedup rules (architecture, "Lifecycle")."""

from __future__ import annotations

from typing import assert_never

from ..cut import resolves
from ..entries import EntryRef
from ..events import (
    AttemptCancelled,
    AuditInterrupted,
    BranchNavigated,
    BranchRefreshed,
    CompactionCancelled,
    CompactionRequested,
    CompactionSucceeded,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    HistoryUnavailable,
    ModelSelected,
    PagingToggled,
    RecoveryToolAnswered,
    RecoveryToolCalled,
    RecoveryToolRejected,
    SessionShutDown,
    SessionStarted,
    SettingsReadFailed,
    StatusPublished,
    StructureRepaired,
    TrimTargetWarned,
    TurnEnded,
)
from ..state import SessionState
from .table import Transition

AUTOMATIC_COMPACTIONS = frozenset({"threshold", "overflow"})
"""Reasons of compactions that nobody asked for."""


def transition_of(state: SessionState, event: Event) -> Transition | None:
    """The row of the table that applies, if any. ``state`` has the event's messages already."""
    match event:
        case SessionStarted() | SettingsReadFailed():
            return Transition.SESSION_STARTED
        case BranchNavigated():
            return Transition.BRANCH_NAVIGATED
        case ModelSelected():
            return Transition.MODEL_SELECTED
        case BranchRefreshed():
            return _of_refresh(state)
        case HistoryUnavailable():
            return Transition.HISTORY_UNAVAILABLE
        case CompactionSucceeded():
            seen = event.entry_id is not None and event.entry_id in state.seen
            return Transition.COMPACTION_SEEN if seen else Transition.COMPACTION_UNSEEN
        case CompactionRequested():
            if not state.enabled:
                return None
            automatic = event.reason in AUTOMATIC_COMPACTIONS
            return Transition.COMPACTION_REFUSED if automatic else Transition.COMPACTION_ATTEMPTED
        case AttemptCancelled():
            return Transition.ATTEMPT_CANCELLED
        case PagingToggled():
            changes = event.enabled != state.enabled
            return Transition.PAGING_CHANGED if changes else Transition.PAGING_UNCHANGED
        case ContextRequested():
            lost = state.cut is not None and not resolves(state.cut.frontier, state.branch.history)
            return Transition.FRONTIER_MISSING if lost else None
        case ContextSelected():
            return Transition.SELECTED if event.fallback is None else Transition.SELECTED_BY_FALLBACK
        case ContextAborted():
            return Transition.ABORTED
        case TurnEnded():
            return Transition.TURN_ENDED
        case TrimTargetWarned():
            return Transition.WARNED
        case StructureRepaired():
            return Transition.REPAIRED
        case (
            SessionShutDown()
            | ContextBypassed()
            | CompactionCancelled()
            | StatusPublished()
            | RecoveryToolCalled()
            | RecoveryToolAnswered()
            | RecoveryToolRejected()
            | AuditInterrupted()
        ):
            return None
        case _:
            assert_never(event)


def unseen_entries(state: SessionState) -> frozenset[str]:
    """Ids of the branch's compactions and edits that have not been dealt with."""
    return frozenset(entry.id for entry in _unseen(state))


def _unseen(state: SessionState) -> list[EntryRef]:
    return [entry for entry in state.branch.invalidating if entry.id not in state.seen]


def _of_refresh(state: SessionState) -> Transition | None:
    unseen = _unseen(state)
    if not unseen:
        return None
    # A failed response was never sent, so leaving it out changes nothing that was.
    return Transition.RETRY_EDIT if all(e.omits_failed for e in unseen) else Transition.INVALIDATING_ENTRY
