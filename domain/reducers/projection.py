"""The projection reducer: the stored branch and the outgoing conversation."""

from __future__ import annotations

from dataclasses import replace

from ..conversation import Conversation
from ..events import BranchRefreshed, ContextRequested, Event, SessionStarted, SettingsReadFailed
from ..repair import OnInvalidStructure
from ..repaired_request import RepairedRequest
from ..state import SessionState
from .lifecycle import settings_after


def project(state: SessionState, event: Event) -> SessionState:
    """Fold what an event says about messages."""
    match event:
        case SessionStarted() | SettingsReadFailed():
            on_invalid = settings_after(state.settings, event).on_invalid_structure
            return _under(state, on_invalid)
        case BranchRefreshed():
            branch = state.branch.changed(event.kept, event.appended)
            stable = branch.stable_slots
            if state.stable_slots is not None:
                stable = min(stable, state.stable_slots)
            return replace(state, branch=branch, stable_slots=stable)
        case ContextRequested():
            stored = state.stored
            stable = state.branch.projection.length if state.stable_slots is None else state.stable_slots
            if state.request is None:
                conversation = state.conversation.followed_by(event.reused, event.appended, stored, stable)
                return replace(state, conversation=conversation, stable_slots=None)
            request = state.request.followed_by(event.reused, event.appended, stored, stable)
            conversation = state.conversation.continued(request.unchanged, request.changed(), stored)
            return replace(state, conversation=conversation, request=request, stable_slots=None)
        case _:
            return state


def _under(state: SessionState, on_invalid: OnInvalidStructure) -> SessionState:
    """The state with another way to deal with broken exchanges."""
    if on_invalid is state.branch.on_invalid:
        return state
    branch = state.branch.under(on_invalid)
    stored = branch.projection if branch.available else None
    # The messages of the last request are kept, so that the next one need not name them again.
    refs = [state.requested(position) for position in range(state.request_length)]
    if on_invalid is OnInvalidStructure.ABORT:
        conversation = Conversation().followed_by(0, refs, stored, 0)
        return replace(state, branch=branch, conversation=conversation, request=None, stable_slots=None)
    request = RepairedRequest.empty().followed_by(0, refs, stored, 0)
    conversation = Conversation().continued(0, request.changed(), stored)
    return replace(state, branch=branch, conversation=conversation, request=request, stable_slots=None)
