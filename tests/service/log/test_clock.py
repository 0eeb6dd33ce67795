"""A wall clock that jumps: the order is the log's, nothing fresh is retired, and every page can be made."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

import pytest

from context_paging.service.log import EventLog
from context_paging.service.log.transfer.export import ExportFormat, export
from context_paging.service.postmortem import explain
from context_paging.service.session import Session
from context_paging.service.window_history import WindowHistory

from ...domain.hosts import Host

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
JUMPS = [0, 3, -5, 400, -400 * 24, 0, 26, -26, 1, 0.001, -0.001]
"""Hours."""


def jumping(hours: list[float]) -> Callable[[], datetime]:
    """A clock that is wrong by so much at one reading after the other."""
    wrong: Iterator[float] = cycle(hours)
    return lambda: NOON + timedelta(hours=next(wrong))


def play(log: EventLog, name: str, clock: Callable[[], datetime], turns: int = 12) -> None:
    """A session with cuts, aborts and a branch."""
    host = Host(Session(name, sink=log, now=clock))
    host.session.start(global_settings={"contextPaging": {"tokenBudget": 600}})
    for _ in range(turns):
        host.play({"do": "user", "size": 80})
        for usage in (300, 0):
            host.play({"do": "context", "window": 900, "insert": [], "status": True})
            host.play(
                {
                    "do": "exchange",
                    "calls": [80],
                    "stop": "stop",
                    "reversed": False,
                    "answered": 3,
                    "usage": usage,
                }
            )
    host.play({"do": "navigate", "at": 5})
    host.session.shut_down()
    log.flush()


def test_events_stay_in_the_order_of_the_log(log: EventLog) -> None:
    play(log, "s", jumping(JUMPS))
    found = list(log.events("s"))

    assert [event.sequence for event in found] == list(range(1, len(found) + 1))
    assert len({event.recorded_at for event in found}) > 5
    assert [session.finding for session in log.verify()] == [None]


def test_what_was_decided_does_not_depend_on_the_clock(log: EventLog) -> None:
    play(log, "steady", lambda: NOON)
    play(log, "jumping", jumping(JUMPS))
    steady, wild = ([event.event.type for event in log.events(name)] for name in ("steady", "jumping"))

    assert steady == wild


def test_calls_postmortems_and_the_time_line_can_be_made(log: EventLog) -> None:
    play(log, "s", jumping(JUMPS))
    calls = log.calls("s")
    history = WindowHistory()
    for event in log.events("s"):
        history.take(event)

    assert [call.number for call in calls] == list(range(1, len(calls) + 1))
    assert [point.number for point in history.points] == list(range(1, len(calls) + 1))
    assert not history.incomplete
    for call in calls[:3] + calls[-3:]:
        assert explain(log, call).call.call_id == call.call_id


@pytest.mark.parametrize("back", [1, 24 * 30, 24 * 365 * 20])
def test_a_clock_that_was_set_back_does_not_get_a_session_retired(log: EventLog, back: float) -> None:
    play(log, "s", lambda: NOON)
    session = Session("s", sink=log, sequence=log.last_sequence("s"), now=jumping([-back]))
    session.start("resume")
    log.flush()

    assert log.retire_before(NOON - timedelta(minutes=30)) == 0
    assert log.session("s").last_at == NOON
    assert log.retire_before(NOON + timedelta(seconds=1)) == 1


def test_a_clock_that_was_ahead_for_a_while_keeps_a_session_longer_never_shorter(log: EventLog) -> None:
    play(log, "s", jumping([0, 24 * 400, 0]))

    assert log.retire_before(NOON + timedelta(days=300)) == 0


def test_rebuilt_read_models_are_the_same(log: EventLog) -> None:
    play(log, "s", jumping(JUMPS))
    before = log.session("s"), log.calls("s")
    log.rebuild()

    assert (log.session("s"), log.calls("s")) == before
    assert before[0].last_at >= before[0].started_at


def test_an_export_by_day_has_every_event_once(log: EventLog, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    for number in range(3):
        play(log, f"s{number}", jumping(JUMPS[number:]), turns=3)
        export(log, folder, ExportFormat.JSONL)
    exported = [
        (line["session_id"], line["sequence"])
        for path in folder.rglob("*.gz")
        for line in map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        if "sequence" in line
    ]
    logged = [(f"s{number}", event.sequence) for number in range(3) for event in log.events(f"s{number}")]

    assert sorted(exported) == sorted(logged)
