"""Applying a remembered frontier to a new request (architecture, "Stable cut state")."""

from __future__ import annotations

from ..conversation import Conversation
from ..cut import CutKey, Frontier, FrontierKind, cut_key, matches
from ..history import History
from ..projection import Projection
from ..steps import NO_STEP, Step
from .window import Window, rest_of_turn, window_of


def window_behind(
    conversation: Conversation, stored: Projection, history: History, frontier: Frontier
) -> Window | None:
    """The window behind a frontier, or none where exactly one message of the request does not match it."""
    anchor = _anchor(conversation, stored, history, frontier)
    if anchor is None:
        return None
    match frontier.kind:
        case FrontierKind.PREFIX:
            return window_of(conversation, _end_of_exchange(conversation, anchor) + 1)
        case FrontierKind.COMPLETED_TURN:
            return window_of(conversation, _end_of_turn(conversation, anchor) + 1)
        case FrontierKind.PARTIAL_TURN:
            return _behind_partial_turn(conversation, history, frontier, anchor)


def _anchor(
    conversation: Conversation, stored: Projection, history: History, frontier: Frontier
) -> Step | None:
    key, found = frontier.last_evicted, None
    for step in _may_match(conversation, stored, history, key):
        if _in_region(conversation, step, frontier.kind) and matches(step.ref, key, history):
            if found is not None:
                return None
            found = step
    return found


def _may_match(conversation: Conversation, stored: Projection, history: History, key: CutKey) -> list[Step]:
    # A stored message that nobody edited can match a key only if it is the keyed entry itself: any other
    # with the same content would make the key ambiguous. So the entry's own slot and the few messages that
    # are outgoing-only, edited or out of order are all there is to look at.
    found: dict[int, Step] = {}
    item = history.item(key.history_id)
    slot = None if item is None else stored.slot_holding(key.history_id, item.message)
    step = None if slot is None else conversation.with_slot(slot)
    if step is not None:
        found[step.index] = step
    found.update((step.index, step) for step in conversation.unusual())
    return list(found.values())


def _in_region(conversation: Conversation, step: Step, kind: FrontierKind) -> bool:
    last = conversation.last
    active = NO_STEP if last is None else last.request
    if step.dropped:
        return False
    if kind is FrontierKind.PREFIX:
        return step.request == NO_STEP
    if kind is FrontierKind.COMPLETED_TURN:
        return step.request not in (NO_STEP, active)
    if step.request == NO_STEP or step.ref.role != "assistant":
        return False
    return step.request != active or not step.outgoing_only


def _behind_partial_turn(
    conversation: Conversation, history: History, frontier: Frontier, anchor: Step
) -> Window | None:
    request = conversation.at(anchor.request)
    user_id = frontier.user_history_id
    if user_id is not None:
        key = cut_key(request.ref, history)
        if key is None or key.history_id != user_id:
            return None
    start = _end_of_exchange(conversation, anchor) + 1
    last = conversation.last
    if last is not None and request.index == last.request:
        return window_of(conversation, start)
    end = _end_of_turn(conversation, anchor)
    return window_of(conversation, end + 1, rest_of_turn(conversation, anchor, start, end))


def _end_of_exchange(conversation: Conversation, anchor: Step) -> int:
    end = anchor.index
    for index in range(anchor.index + 1, conversation.length):
        step = conversation.at(index)
        if step.dropped:
            continue
        if step.exchange == NO_STEP or step.exchange != anchor.exchange:
            break
        end = index
    return end


def _end_of_turn(conversation: Conversation, anchor: Step) -> int:
    end = anchor.index
    for index in range(anchor.index + 1, conversation.length):
        if conversation.request_of(index) != anchor.request:
            break
        end = index
    return end
