"""`decide`: which decision events a host event leads to. Pure, like everything it calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
    StructureRepaired,
    TrimTargetWarned,
)
from .messages import MessageRef
from .reducers import Transition, evolve, transition_of
from .repair import RepairKind
from .repaired_request import RequestRepair
from .selection import select
from .state import SessionState, repair_key

STATUS_TEXT = {True: "paging on", False: "paging off"}
"""What the status line shows (architecture, "Lifecycle")."""


def decide(state: SessionState, event: Event, estimator: TokenEstimator) -> tuple[Event, ...]:
    """The decision events that follow an event. ``state`` is the state after it."""
    match event:
        case SessionStarted() | SettingsReadFailed():
            # Another policy for broken exchanges is another reading of what is there already.
            request = state.request
            told = () if request is None else _request_repairs(state, request.repairs)
            repairs = _untold(state, (*_stored_repairs(state), *told))
            return (StatusPublished(text=STATUS_TEXT[state.enabled]), *repairs)
        case PagingToggled():
            return (StatusPublished(text=STATUS_TEXT[state.enabled]),)
        case BranchRefreshed():
            error = state.branch.history.error
            if error is not None:
                return (HistoryUnavailable(code=error),)
            return _untold(state, _stored_repairs(state)) if event.appended else ()
        case CompactionRequested():
            refused = transition_of(state, event) is Transition.COMPACTION_REFUSED
            return (CompactionCancelled(reason=event.reason),) if refused else ()
        case ContextRequested():
            outcome = select(state, event, estimator)
            if state.request is None:
                return (outcome,)
            return (*_untold(state, _request_repairs(state, state.request.new_repairs)), outcome)
        case _:
            return ()


def fold(
    state: SessionState, events: Iterable[Event], estimator: TokenEstimator
) -> tuple[SessionState, list[Event]]:
    """The state after events and the decisions they lead to, and all of these in order."""
    taken: list[Event] = []
    for event in events:
        state = evolve(state, event)
        taken.append(event)
        for decision in decide(state, event, estimator):
            state = evolve(state, decision)
            taken.append(decision)
    return state, taken


def trim_target_warning(state: SessionState) -> TrimTargetWarned | None:
    """The warning due before a context request: once for each pair of budget and target."""
    settings = state.settings
    pair = (settings.token_budget, settings.trim_to_tokens)
    if not state.enabled or not settings.leaves_no_headroom or pair in state.warned:
        return None
    return TrimTargetWarned(token_budget=pair[0], trim_to_tokens=pair[1])


def _untold(state: SessionState, repairs: Iterable[StructureRepaired]) -> tuple[StructureRepaired, ...]:
    new = {repair_key(repair): repair for repair in repairs}
    # What only a request carries has no name to know it by: it is told in each request that brings it anew.
    return tuple(r for key, r in new.items() if key not in state.repaired or not r.entry_ids)


def _stored_repairs(state: SessionState) -> Iterator[StructureRepaired]:
    for repair in state.branch.history.repairs:
        refs = [entry.message for entry in repair.entries if entry.message is not None]
        yield _repaired(repair.kind, [entry.id for entry in repair.entries], refs)


def _request_repairs(state: SessionState, repairs: Iterable[RequestRepair]) -> Iterator[StructureRepaired]:
    assert state.request is not None
    host = state.request.host
    # The branch may be another one by now; slots are those of the projection the request was matched with.
    stored = host.stored
    for repair in repairs:
        steps = [host.at(position) for position in repair.positions]
        entry_ids = [] if stored is None else [stored.entry_id(s.slot) for s in steps if s.slot >= 0]
        yield _repaired(repair.kind, entry_ids, [step.ref for step in steps])


def _repaired(kind: RepairKind, entry_ids: list[str], messages: Sequence[MessageRef]) -> StructureRepaired:
    call_ids = dict.fromkeys(
        call_id
        for ref in messages
        for call_id in (*(call.id for call in ref.calls), *(() if ref.call_id is None else (ref.call_id,)))
    )
    return StructureRepaired(
        kind=kind,
        entry_ids=tuple(entry_ids),
        call_ids=tuple(call_ids),
        unstored=len(messages) - len(entry_ids),
    )
