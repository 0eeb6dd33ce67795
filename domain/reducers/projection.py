"""The projection reducer: the stored branch and the outgoing conversation."""

from __future__ import annotations

from dataclasses import replace

from ..events import BranchRefreshed, ContextRequested, Event
from ..state import SessionState


def project(state: SessionState, event: Event) -> SessionState:
    """Fold what an event says about messages."""
    match event:
        case BranchRefreshed():
            branch = state.branch.changed(event.kept, event.appended)
            stable = branch.stable_slots
            if state.stable_slots is not None:
                stable = min(stable, state.stable_slots)
            return replace(state, branch=branch, stable_slots=stable)
        case ContextRequested():
            stored = state.stored
            stable = state.branch.projection.length if state.stable_slots is None else state.stable_slots
            conversation = state.conversation.followed_by(event.reused, event.appended, stored, stable)
            return replace(state, conversation=conversation, stable_slots=None)
        case _:
            return state
