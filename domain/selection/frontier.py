"""Applying a remembered frontier to a new request (architecture, "Stable cut state")."""

from __future__ import annotations

from ..conversation import NO_SLOT, Conversation, Step
from ..cut import CutKey, Frontier, FrontierKind, cut_key, matches
from ..history import History
from ..projection import Projection
from .window import Unit, Window, envelope_of, trailing_of, window_of


def window_behind(
    conversation: Conversation, stored: Projection, history: History, frontier: Frontier
) -> Window | None:
    """The window behind a frontier, or none where exactly one message of the request does not match it."""
    anchor = _anchor(conversation, stored, history, frontier)
    if anchor is None:
        return None
    match frontier.kind:
        case FrontierKind.PREFIX:
            return window_of(
                conversation, _steps_behind(conversation, _end_of_exchange(conversation, anchor))
            )
        case FrontierKind.COMPLETED_TURN:
            return window_of(conversation, _steps_behind(conversation, _end_of_turn(conversation, anchor)))
        case FrontierKind.PARTIAL_TURN:
            return _behind_partial_turn(conversation, history, frontier, anchor)


def _anchor(
    conversation: Conversation, stored: Projection, history: History, frontier: Frontier
) -> Step | None:
    key, found = frontier.last_evicted, None
    for step in _may_match(conversation, stored, key):
        if _in_region(conversation, step, frontier.kind) and matches(step.ref, key, history):
            if found is not None:
                return None
            found = step
    return found


def _may_match(conversation: Conversation, stored: Projection, key: CutKey) -> list[Step]:
    # A stored message that nobody edited can match a key only if it is the keyed entry itself: any other
    # with the same content would make the key ambiguous. So the entry's own slot and the few messages that
    # are outgoing-only or edited are all there is to look at.
    found: dict[int, Step] = {}
    slot = stored.slot_of(key.history_id)
    if slot is not None:
        for step in conversation.backwards():
            if step.slot == slot:
                found[step.index] = step
            if NO_SLOT != step.slot <= slot:
                break
    unusual = None if conversation.last is None else conversation.last.unusual
    while unusual is not None:
        found[unusual.index] = unusual
        unusual = None if unusual.previous is None else unusual.previous.unusual
    return list(found.values())


def _in_region(conversation: Conversation, step: Step, kind: FrontierKind) -> bool:
    active = conversation.active_request
    if step.dropped:
        return False
    if kind is FrontierKind.PREFIX:
        return step.request is None
    if kind is FrontierKind.COMPLETED_TURN:
        return step.request is not None and step.request is not active
    if step.request is None or step.ref.role != "assistant":
        return False
    return step.request is not active or not step.outgoing_only


def _behind_partial_turn(
    conversation: Conversation, history: History, frontier: Frontier, anchor: Step
) -> Window | None:
    request, last = anchor.request, conversation.last
    assert request is not None
    assert last is not None
    user_id = frontier.user_history_id
    if user_id is not None:
        key = cut_key(request.ref, history)
        if key is None or key.history_id != user_id:
            return None
    behind = _steps_behind(conversation, _end_of_exchange(conversation, anchor))
    if request is last.request:
        return window_of(conversation, behind)
    end = _end_of_turn(conversation, anchor)
    envelope = envelope_of(conversation, request, anchor.envelope_end)
    trailing = trailing_of(end, request)
    apart = {step.index for step in (*envelope, *trailing)}
    rest = [step for step in behind if step.index <= end.index and step.index not in apart]
    remainder = Unit(FrontierKind.COMPLETED_TURN, (*envelope, *rest, *trailing), end, request.index)
    return window_of(conversation, [step for step in behind if step.index > end.index], remainder)


def _end_of_exchange(conversation: Conversation, anchor: Step) -> Step:
    end = anchor
    for step in _steps_behind(conversation, anchor):
        if step.exchange is None or step.exchange is not anchor.exchange:
            break
        end = step
    return end


def _end_of_turn(conversation: Conversation, anchor: Step) -> Step:
    end = anchor
    for step in conversation.backwards():
        if step.request is anchor.request:
            return step
        if step.index <= anchor.index:
            break
    return end


def _steps_behind(conversation: Conversation, anchor: Step) -> list[Step]:
    steps = []
    for step in conversation.backwards():
        if step.index <= anchor.index:
            break
        if not step.dropped:
            steps.append(step)
    steps.reverse()
    return steps
