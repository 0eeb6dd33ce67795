"""The window over time: what the picture of a session is drawn from says what the log says."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_paging.domain.events import AuditInterrupted
from context_paging.domain.hindsight import look_back
from context_paging.service.example import example_path
from context_paging.service.log import EventLog, StoredEvent
from context_paging.service.replay import ReplayOptions, replay
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file
from context_paging.service.window_history import WindowHistory


@pytest.fixture(params=[300, 12_000, 64_000])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> EventLog:
    """The example under a budget."""
    with example_path() as path:
        file = read_session_file(path)
    event_log = EventLog.open(tmp_path / "log.db")
    options = ReplayOptions(global_settings={"contextPaging": {"tokenBudget": request.param}})
    for _ in replay(file, Session("s", sink=event_log), options):
        pass
    session = Session("s", sink=event_log, sequence=event_log.last_sequence("s"))
    session.start("resume")
    session.command("off")
    session.context([{"role": "user", "content": "hi"}])
    event_log.flush()
    return event_log


def folded(events: list[StoredEvent]) -> WindowHistory:
    """A history of events."""
    history = WindowHistory()
    for event in events:
        history.take(event)
    return history


def test_points_are_the_calls_of_the_log(log: EventLog) -> None:
    history = folded(list(log.events("s")))
    calls = log.calls("s")

    assert [(p.number, p.outcome, p.code, p.advanced) for p in history.points] == [
        (call.number, call.outcome, call.code, call.advanced) for call in calls
    ]
    for point, call in zip(history.points, calls, strict=True):
        if call.outcome not in ("aborted", "inactive"):
            assert point.sent_tokens == call.estimated_tokens
            assert point.budget_tokens == call.budget_tokens
        if call.outcome == "within-budget":
            # What was interrupted is a part of the history, and never goes out.
            assert point.history_tokens is not None
            assert point.sent_tokens is not None
            assert point.history_tokens >= point.sent_tokens
        elif call.outcome == "paged":
            assert point.history_tokens is not None
            assert point.sent_tokens is not None
            assert point.history_tokens > point.sent_tokens - 200
    assert history.points[-1].outcome == "inactive"


def test_resets_are_those_of_the_frontiers_life(log: EventLog) -> None:
    events = list(log.events("s"))
    life = look_back([event.event for event in events]).life
    resets = [(events[c.index].sequence, c.transition.value) for c in life if c.after is None]

    assert [(reset.sequence, reset.why) for reset in folded(events).resets] == resets


def test_a_history_goes_on_with_what_comes(log: EventLog) -> None:
    events = list(log.events("s"))
    again = folded(events[:100])
    for event in events[100:]:
        again.take(event)
    whole = folded(events)
    assert (again.points, again.resets, again.sequence) == (whole.points, whole.resets, whole.sequence)


def test_behind_a_gap_calls_are_still_told(log: EventLog) -> None:
    events = list(log.events("s"))
    gap = StoredEvent(**{**events[50].__dict__, "type": "audit-interrupted"})
    gap.__dict__["event"] = AuditInterrupted(events=3, reason="x")
    history = folded([*events[:50], gap, *events[53:]])

    assert history.incomplete
    assert len(history.points) >= len(log.calls("s")) - 1
    assert history.points[-2].sent_tokens is not None
