"""Events of a small session, as records."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from msgspec import structs

from context_paging.domain.cut import Cut, CutKey, Frontier, FrontierKind, Notice
from context_paging.domain.errors import SelectionErrorCode
from context_paging.domain.events import (
    BranchRefreshed,
    ContextAborted,
    ContextRequested,
    ContextSelected,
    Event,
    Mode,
    ModelSelected,
    Parts,
    Rule,
    SessionStarted,
    TurnEnded,
)
from context_paging.domain.messages import MessageRef, ToolCall, Usage
from context_paging.service.log import Record

START = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
CUT = Cut(Frontier(FrontierKind.COMPLETED_TURN, CutKey("e4", "call_1")), Notice("older history exists", 5))


def records(*events: Event | tuple[Event, str], first: int = 1, session: str = "s") -> list[Record]:
    """Records a second apart; an event may come with the id of its provider call."""
    made = []
    for number, given in enumerate(events, first):
        event, call_id = given if isinstance(given, tuple) else (given, None)
        moment = START + timedelta(seconds=number)
        made.append(Record(event, f"{session}-event-{number}", moment, call_id))
    return made


def started() -> Event:
    """A session that begins."""
    return SessionStarted(reason="new", host="tests", global_settings={"tokenBudget": 1000})


def requested() -> ContextRequested:
    """A context request with one new message."""
    ref = MessageRef("user", 1, b"\x01" * 32, 7)
    return ContextRequested(reused=0, appended=(ref,), resident_tokens=3, context_window=2000)


def selected(cut: Cut | None = None) -> Event:
    """A selection; with a cut, one that advanced it."""
    return ContextSelected(
        mode=Mode.PAGED if cut else Mode.WITHIN_BUDGET,
        rule=Rule.ADVANCE if cut else Rule.FITS,
        kept=((0, 0),),
        notice=cut.notice if cut else None,
        cut=cut,
        estimated_tokens=10,
        budget_tokens=1000,
        target_tokens=625,
        resident_tokens=3,
        parts=Parts(3, 7, 0, 0, 0),
        evicted_units=2 if cut else 0,
    )


def aborted() -> Event:
    """An abort."""
    return ContextAborted(
        code=SelectionErrorCode.ACTIVE_REQUEST_TOO_LARGE,
        rule=Rule.REQUEST_OVER_BUDGET,
        message="too large",
        estimated_tokens=1200.5,
        budget_tokens=1000,
        target_tokens=625,
        resident_tokens=3,
        parts=Parts(3, 1197.5, 0, 0, 0),
    )


def ended() -> Event:
    """A response with usage."""
    calls = (ToolCall("call_1", "read"),)
    usage = Usage(10, 5, 0, 0, 15)
    ref = MessageRef("assistant", 2, b"\x02" * 32, 4, calls, stop_reason="toolUse", usage=usage)
    return TurnEnded(entry_id="e2", response=ref)


def small_session(session: str = "s") -> list[Record]:
    """A session of two answered calls and an abort."""
    return records(
        started(),
        ModelSelected(model="m-1", context_window=2000),
        (requested(), f"{session}-call-1"),
        (selected(), f"{session}-call-1"),
        (ended(), f"{session}-call-1"),
        (requested(), f"{session}-call-2"),
        (selected(CUT), f"{session}-call-2"),
        (requested(), f"{session}-call-3"),
        (aborted(), f"{session}-call-3"),
        session=session,
    )


def unkeyed(event: Event) -> Event:
    """An event without fingerprints, which the log writes as its key makes them."""
    match event:
        case ContextRequested():
            return replace(event, appended=tuple(_unkeyed(ref) for ref in event.appended))
        case BranchRefreshed():
            refs = (
                entry if entry.message is None else structs.replace(entry, message=_unkeyed(entry.message))
                for entry in event.appended
            )
            return replace(event, appended=tuple(refs))
        case TurnEnded():
            return replace(event, response=_unkeyed(event.response))
        case _:
            return event


def _unkeyed(ref: MessageRef) -> MessageRef:
    return structs.replace(ref, fingerprint=b"")
