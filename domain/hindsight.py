"""Hindsight: what a session's logged events say of a provider call: the window unit by unit, the cut's life.

Decisions are events too, so that folding all of them gives the very states that were decided from; nothing is
decided again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from .calibration import Costs, costs_of
from .cut import Frontier, resolves
from .events import (
    AuditInterrupted,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    Rule,
)
from .reducers import Transition, evolve, transition_of
from .reducers.projection import project
from .runs import Run, positions_of
from .selection.eviction import unread_exchange
from .selection.frontier import window_behind
from .selection.window import Unit, Window, whole_window
from .state import SessionState
from .what_if import IncompleteLog, Outcome

_UNGROUPED = (Rule.INVALID_LIMITS, Rule.STRUCTURE, Rule.RESIDENT_OVER_BUDGET)
"""Rules that fire before a request is grouped into units."""


class Fate(StrEnum):
    """What became of a part of the conversation."""

    KEPT = "kept"
    EVICTED = "evicted"
    PARTLY_EVICTED = "partly evicted"
    PROTECTED = "protected"
    REFERENCED = "sent as references"
    REQUEST = "always sent"
    NOT_REACHED = "not decided"


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A unit of the conversation, or what goes out whatever is evicted.

    Attributes:
        kind: ``prefix``, ``completedTurn`` or ``partialTurn`` for units; ``request`` and ``trailing``.
        first, last: positions of its messages in the request, of which there are ``messages``.
        tokens: estimate of all of it, without calibration.
        sent: how many of its messages went out, or were left when the call was aborted.
        sent_tokens: estimate of those messages, references in place of what they replaced.
        history_id: of its newest stored item.
    """

    kind: str
    fate: Fate
    first: int
    last: int
    messages: int
    sent: int
    tokens: float
    sent_tokens: float
    history_id: str | None = None
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CutChange:
    """An event that set, moved or reset the cut. ``index`` counts the session's events from 0."""

    index: int
    event: Event
    transition: Transition
    before: Frontier | None
    after: Frontier | None


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What the events up to a provider call say.

    Attributes:
        window: the call's conversation, oldest first; empty where it was not grouped, or paging was off.
        life: what happened to the cut since the session began, oldest first.
    """

    window: tuple[WindowPart, ...]
    life: tuple[CutChange, ...]


def look_back(events: Iterable[Event]) -> Hindsight:
    """Fold a session's events, from its first one to those of a provider call.

    Raises:
        IncompleteLog: events are missing.
    """
    state, request, decided_from = SessionState(), None, SessionState()
    outcome: Outcome | None = None
    life: list[CutChange] = []
    for index, event in enumerate(events):
        if isinstance(event, AuditInterrupted):
            raise IncompleteLog(f"{event.events} events are missing from the log ({event.reason})")
        after, transition = followed(state, event)
        if transition is not None:
            life.append(CutChange(index, event, transition, state.frontier, after.frontier))
        state = after
        if isinstance(event, ContextRequested):
            request, decided_from = event, state
        elif isinstance(event, ContextSelected | ContextAborted | ContextBypassed):
            outcome = event
    if request is None or outcome is None or isinstance(outcome, ContextBypassed):
        return Hindsight((), tuple(life))
    return Hindsight(_window_parts(decided_from, request, outcome), tuple(life))


def followed(state: SessionState, event: Event) -> tuple[SessionState, Transition | None]:
    """The state after a logged event, and the transition that changed the frontier, if it did.

    Raises:
        IncompleteLog: events before it are missing.
    """
    try:
        after = evolve(state, event)
    except IndexError:
        raise IncompleteLog("a request builds on one that is not in the log") from None
    if after.frontier == state.frontier:
        return after, None
    return after, transition_of(project(state, event), event)


def _window_parts(
    state: SessionState, request: ContextRequested, outcome: ContextSelected | ContextAborted
) -> tuple[WindowPart, ...]:
    if outcome.rule in _UNGROUPED:
        return ()
    anchor, history = state.calibration.anchor, state.branch.history
    costs = costs_of(state.conversation, state.stored, anchor, request.usage_tokens, request.resident_tokens)
    window = whole_window(state.conversation)
    unread = unread_exchange(state.conversation, window, history)
    sent = _sent_positions(state, window, outcome)
    referenced = (
        {item.index: item.tokens for item in outcome.replaced}
        if isinstance(outcome, ContextSelected)
        else dict[int, int]()
    )
    looked_at = outcome.rule is not Rule.REQUEST_OVER_BUDGET
    parts = []
    for unit in window.units:
        fate = _fate(unit, sent, referenced, protected=unit is unread) if looked_at else Fate.NOT_REACHED
        parts.append(_part(state, unit.kind.value, fate, unit.runs, sent, referenced, costs))
    for kind, runs in (("request", window.envelope), ("trailing", window.trailing)):
        if runs:
            parts.append(_part(state, kind, Fate.REQUEST, runs, sent, referenced, costs))
    return tuple(sorted(parts, key=lambda part: part.first))


def _sent_positions(
    state: SessionState, window: Window, outcome: ContextSelected | ContextAborted
) -> frozenset[int]:
    if isinstance(outcome, ContextSelected):
        return frozenset(positions_of(outcome.kept))
    # An abort names no messages: what was left when it gave up.
    if outcome.rule is Rule.REQUEST_OVER_BUDGET:
        return frozenset(positions_of((*window.envelope, *window.trailing)))
    history, cut = state.branch.history, state.cut
    behind = None
    if outcome.fallback is None and cut is not None and resolves(cut.frontier, history):
        behind = window_behind(state.conversation, state.branch.projection, history, cut.frontier)
    return frozenset(positions_of((behind or window).sent(outcome.evicted_units)))


def _fate(unit: Unit, sent: frozenset[int], referenced: dict[int, int], *, protected: bool) -> Fate:
    positions = list(unit.positions)
    if any(position in referenced for position in positions):
        return Fate.REFERENCED
    kept = sum(position in sent for position in positions)
    if kept == len(positions):
        return Fate.PROTECTED if protected else Fate.KEPT
    return Fate.PARTLY_EVICTED if kept else Fate.EVICTED


def _part(
    state: SessionState,
    kind: str,
    fate: Fate,
    runs: tuple[Run, ...],
    sent: frozenset[int],
    referenced: dict[int, int],
    costs: Costs,
) -> WindowPart:
    conversation, positions = state.conversation, list(positions_of(runs))
    tokens = {position: costs.of(position, conversation) for position in positions}
    refs = [conversation.ref(position) for position in positions]
    known_ids = map(state.branch.history.recovery_id, reversed(refs))
    return WindowPart(
        kind,
        fate,
        positions[0],
        positions[-1],
        len(positions),
        sum(position in sent for position in positions),
        sum(tokens.values()),
        sum(referenced.get(position, tokens[position]) for position in positions if position in sent),
        next((known for known in known_ids if known), None),
        # What always goes out is no unit of eviction.
        () if fate is Fate.REQUEST else tuple(dict.fromkeys(call.name for ref in refs for call in ref.calls)),
    )
