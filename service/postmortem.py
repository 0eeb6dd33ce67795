"""Explaining a provider call from the log alone: one model for the command line, JSON and the web page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from context_paging.domain.cut import Frontier, FrontierKind
from context_paging.domain.estimation import TokenEstimator
from context_paging.domain.events import (
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    Rule,
    UnitSize,
)
from context_paging.domain.hindsight import Hindsight, WindowPart, look_back
from context_paging.domain.reducers import Transition
from context_paging.domain.what_if import IncompleteLog, Savings, savings

from .log.errors import UnknownCall
from .log.records import StoredCall, StoredEvent
from .what_if import logged_estimator

if TYPE_CHECKING:
    from .log import EventLog

EVENTS_BEFORE = 8
"""How many events before the call a postmortem shows."""

PART_NAMES = {
    "resident": "resident input",
    "request": "active request",
    "units": "units of history",
    "notice": "notice",
    "calibration": "calibration",
}
"""What the parts of an estimate are called."""
SENTENCES: dict[Rule, str] = {
    Rule.FITS: "Everything fits the budget, so everything goes out.",
    Rule.CUT_HOLDS: "What is behind the remembered cut fits the budget, so the cut stays where it was.",
    Rule.ADVANCE: "The request was above the budget, so the cut advanced towards the target.",
    Rule.ADVANCE_SNAPPED: "The cut advanced, then moved back to the last unit that a key names.",
    Rule.STATELESS: "No stable cut can be remembered, so the oldest units were left out for this call alone.",
    Rule.UNREAD_RESULTS_OVER_BUDGET: "The newest tool results are unread and above the budget, but fit the "
    "model's window: they go out in full for this one call.",
    Rule.UNREAD_RESULTS_OVER_WINDOW: "The newest tool results are unread and above the model's window: "
    "references to them go out instead.",
    Rule.INVALID_LIMITS: "A limit is not a valid number of tokens.",
    Rule.STRUCTURE: "The outgoing messages do not pair every tool call with exactly one result.",
    Rule.RESIDENT_OVER_BUDGET: "The system prompt and the tool definitions alone are above the budget.",
    Rule.REQUEST_OVER_BUDGET: "Resident input and the active request alone are above the budget, and neither "
    "may be left out.",
    Rule.RETAINED_OVER_BUDGET: "Everything that may be left out was, and what remains is above the budget.",
    Rule.REFERENCES_OVER_WINDOW: "Even with references in place of the newest tool results, the request is "
    "above the model's window.",
}
"""Each rule in one sentence."""


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """One summand of an estimate: ``tokens``, added to what is ``start`` already."""

    name: str
    tokens: float
    start: float


@dataclass(frozen=True, slots=True)
class FrontierChange:
    """What an event did to the frontier: it was ``set``, ``moved`` or ``reset``, for a reason of the table.

    ``number`` is that of the provider call the event belongs to.
    """

    stored: StoredEvent
    number: int | None
    what: str
    transition: Transition
    after: Frontier | None


@dataclass(frozen=True, slots=True)
class Postmortem:
    """What happened at a provider call.

    Attributes:
        request: the context request; ``None`` while paging was off.
        before: the events that led up to the call, oldest first.
        during: the events of the call itself.
        window: the conversation at the call, unit by unit, oldest first.
        life: what happened to the frontier since the session began, up to the call.
        saved: what would have let an aborted call through.
        incomplete: why window, life and savings cannot be told.
        calls: how many provider calls the session has.
    """

    call: StoredCall
    sentence: str
    outcome: ContextSelected | ContextAborted | ContextBypassed
    request: ContextRequested | None
    before: tuple[StoredEvent, ...]
    during: tuple[StoredEvent, ...]
    window: tuple[WindowPart, ...]
    life: tuple[FrontierChange, ...]
    saved: Savings
    incomplete: str | None
    calls: int

    @property
    def frontier_before(self) -> Frontier | None:
        """The frontier the call started from."""
        return None if isinstance(self.outcome, ContextBypassed) else self.outcome.frontier_before

    @property
    def frontier_after(self) -> Frontier | None:
        """The frontier the call left behind. An abort leaves it where it was."""
        match self.outcome:
            case ContextSelected():
                return None if self.outcome.cut is None else self.outcome.cut.frontier
            case ContextAborted():
                return self.outcome.frontier_before
            case ContextBypassed():
                return None
            case _:
                assert_never(self.outcome)

    @property
    def largest(self) -> tuple[UnitSize, ...]:
        """The largest units that could still have left the window."""
        return () if isinstance(self.outcome, ContextBypassed) else self.outcome.largest

    @property
    def waterfall(self) -> tuple[WaterfallRow, ...]:
        """What the estimate is made of, in the order it is added up."""
        if isinstance(self.outcome, ContextBypassed) or self.outcome.parts is None:
            return ()
        rows, reached = [], 0.0
        parts = self.outcome.parts
        for name in ("resident", "request", "units", "notice", "calibration"):
            tokens: float = getattr(parts, name)
            rows.append(WaterfallRow(PART_NAMES[name], tokens, reached))
            reached += tokens
        return tuple(rows)


def explain(log: EventLog, call: StoredCall, estimator: TokenEstimator | None = None) -> Postmortem:
    """The postmortem of a call. Reads its session from the beginning.

    Raises:
        InvalidEvent: a stored event cannot be read.
        UnknownCall: nothing was decided about it.
    """
    found = list(log.events(call.session_id, 0, call.last_sequence))
    during = tuple(stored for stored in found if stored.call_id == call.call_id)
    first = during[0].sequence
    before = tuple(stored for stored in found if stored.sequence < first)[-EVENTS_BEFORE:]
    events: list[Event] = [stored.event for stored in during]
    outcomes = [e for e in events if isinstance(e, ContextSelected | ContextAborted | ContextBypassed)]
    if not outcomes:
        raise UnknownCall(f"the log does not tell what was decided about call {call.call_id!r}")
    outcome = outcomes[0]
    hindsight, saved, incomplete = Hindsight((), ()), Savings(), None
    until = next(n for n, stored in enumerate(found, 1) if stored.event is outcome)
    try:
        known = [stored.event for stored in found[:until]]
        hindsight = look_back(known)
        if isinstance(outcome, ContextAborted):
            saved = savings(known, estimator or logged_estimator(log, call.session_id))
    except IncompleteLog as error:
        incomplete = str(error)
    return Postmortem(
        call,
        "Paging was off: everything went out as it was."
        if isinstance(outcome, ContextBypassed)
        else SENTENCES[outcome.rule],
        outcome,
        next((event for event in events if isinstance(event, ContextRequested)), None),
        before,
        during,
        hindsight.window,
        _life(hindsight, found),
        saved,
        incomplete,
        log.session(call.session_id).calls,
    )


def _life(hindsight: Hindsight, found: Sequence[StoredEvent]) -> tuple[FrontierChange, ...]:
    numbers: dict[str | None, int] = {None: 0}
    for stored in found:
        if isinstance(stored.event, ContextSelected | ContextAborted | ContextBypassed):
            numbers.setdefault(stored.call_id, len(numbers))
    return tuple(
        FrontierChange(
            found[change.index],
            numbers.get(found[change.index].call_id) or None,
            "reset" if change.after is None else "set" if change.before is None else "moved",
            change.transition,
            change.after,
        )
        for change in hindsight.life
    )


def frontier_text(frontier: Frontier | None) -> str:
    """A frontier in words."""
    if frontier is None:
        return "none"
    kinds = {
        FrontierKind.PREFIX: "before the first request",
        FrontierKind.COMPLETED_TURN: "after a completed turn",
        FrontierKind.PARTIAL_TURN: "inside the turn",
    }
    key = frontier.last_evicted
    call = "" if key.tool_call_id is None else f", call {key.tool_call_id}"
    request = "" if frontier.user_history_id is None else f" of request {frontier.user_history_id}"
    return f"{kinds[frontier.kind]}{request}: last evicted {key.history_id}{call}"
