"""What can be observed of states, as plain values that compare."""

from __future__ import annotations

from context_paging.domain.branch import Branch
from context_paging.domain.conversation import Conversation
from context_paging.domain.repaired_request import RepairedRequest
from context_paging.domain.state import SessionState


def observed_branch(branch: Branch) -> object:
    """Entries, history and projection of a branch."""
    projection = branch.projection
    return (
        branch.length,
        [
            (item.id, item.kind, item.sequence, item.message, item.results, item.result_ids)
            for item in branch.history.items
        ],
        branch.history.error,
        [
            (projection.entry_id(slot), projection.message(slot), projection.is_edited(slot))
            for slot in range(projection.length)
        ],
        projection.last_measured(),
        [projection.tokens_after(slot) for slot in range(projection.length)],
        [entry.id for entry in branch.invalidating],
    )


def observed_conversation(conversation: Conversation) -> object:
    """Every step, as far as decisions look at it."""
    return (
        list(conversation.backwards()),
        conversation.input_tokens,
        conversation.kept_tokens,
        conversation.broken,
        conversation.exchange_complete,
        conversation.valid,
        list(conversation.unusual()),
        list(conversation.unstored()),
    )


def observed_request(request: RepairedRequest) -> object:
    """The host's messages and what goes on to selection."""
    return (
        [request.message(position) for position in range(request.length)],
        request.unchanged,
        [ref for ref, _ in request.changed()],
        observed_conversation(request.host),
        request.repairs,
    )


def observed(state: SessionState) -> object:
    """A whole state."""
    return (
        state.settings,
        state.override,
        state.seen,
        state.warned,
        state.cut,
        state.calibration.pending and state.calibration.pending.sent(),
        (state.calibration.anchor, state.calibration.overhead),
        state.latest_input,
        observed_branch(state.branch),
        observed_conversation(state.conversation),
        None if state.request is None else observed_request(state.request),
        len(state.repaired),
    )
