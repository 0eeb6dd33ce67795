"""What every engine's log does."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import delete

from context_paging.domain.errors import InvalidEvent, SelectionErrorCode
from context_paging.domain.events import BranchRefreshed, ContextAborted, ModelSelected, Rule, SessionStarted
from context_paging.service.log import (
    Durability,
    EventLog,
    LogOptions,
    Record,
    SessionConflict,
    UnknownCall,
    UnknownSession,
)
from context_paging.service.log.tables import provider_calls

from .events import CUT, aborted, ended, records, requested, selected, small_session, started, unkeyed


def test_events_read_back_as_they_were_appended(log: EventLog) -> None:
    written = small_session()

    last = log.append("s", 0, written)

    stored = list(log.events("s"))
    assert last == len(written)
    assert [unkeyed(event.event) for event in stored] == [unkeyed(record.event) for record in written]
    assert [event.sequence for event in stored] == list(range(1, len(written) + 1))
    assert [event.recorded_at for event in stored] == [record.recorded_at for record in written]
    assert {event.recorded_at.tzinfo for event in stored} == {UTC}
    assert [event.call_id for event in stored] == [record.call_id for record in written]


def test_events_can_be_read_from_a_sequence_to_another_or_for_a_call(log: EventLog) -> None:
    log.append("s", 0, small_session())

    assert [event.sequence for event in log.events("s", 3, 6)] == [4, 5, 6]
    assert [event.sequence for event in log.events("s", call_id="s-call-1")] == [3, 4, 5]
    assert list(log.events("another")) == []


def test_what_led_to_a_request_is_part_of_its_call(location: str, log: EventLog) -> None:
    refreshed = BranchRefreshed(kept=0)
    log.append("s", 0, records(started(), (refreshed, "c"), (requested(), "c"), (selected(), "c")))
    log.append("s", 4, records((ended(), "c"), started(), first=5))
    log.flush()
    with EventLog.open(location) as other:
        other.append("s", 6, records((refreshed, "c"), first=7))

    call = log.call("c")
    assert (call.sequence, call.last_sequence) == (3, 7)
    assert [event.sequence for event in log.events("s", call_id="c")] == [2, 3, 4, 5, 7]
    log.rebuild()
    assert log.call("c") == call


def test_a_call_of_another_session_stays_that_sessions(log: EventLog) -> None:
    log.append("s", 0, records((requested(), "c")))
    log.append("t", 0, records(started(), (ended(), "c"), session="t"))
    log.flush()
    calls = log.calls()

    assert [(call.session_id, call.response_tokens, call.last_sequence) for call in calls] == [("s", None, 1)]
    log.rebuild()
    assert log.calls() == calls


def test_moments_of_an_hour_that_comes_twice_are_told_apart(log: EventLog) -> None:
    zone = ZoneInfo("Europe/Berlin")
    twice = [datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=fold) for fold in (0, 1)]
    made = records(started(), started())

    log.append("s", 0, [record._replace(recorded_at=at) for record, at in zip(made, twice, strict=True)])

    assert [event.recorded_at.hour for event in log.events("s")] == [0, 1]


@pytest.mark.parametrize("durability", Durability)
def test_an_event_that_would_not_read_back_is_a_typed_error(location: str, durability: Durability) -> None:
    with EventLog.open(location, LogOptions(durability=durability)) as log:
        log.append("s", 0, records(started()))
        bad = records(ModelSelected(model=123), first=2)  # type: ignore[arg-type]

        def append() -> None:
            log.append("s", 1, bad)
            log.flush()

        with pytest.raises(InvalidEvent):
            append()
        assert log.append("s", 1, records(started(), first=2)) == 2
        assert log.rebuild() == 1
        assert [event.sequence for event in log.events("s")] == [1, 2]


def test_a_list_of_records_may_be_used_again(log: EventLog) -> None:
    log.append("s", 0, records(started()))
    made = records(started(), started(), first=2)
    log.append("s", 1, made)
    made.clear()

    assert [event.sequence for event in log.events("s")] == [1, 2, 3]


def test_a_log_in_memory_can_be_written_while_its_results_are_looked_at() -> None:
    with EventLog.open() as log:
        for session in ("s", "t"):
            log.append(session, 0, small_session(session))
        for result in log.verify():
            log.append(result.session_id, 9, records(started(), first=10, session=result.session_id))

        assert [session.last_sequence for session in log.sessions()] == [10, 10]


def test_long_sessions_are_read_whole(log: EventLog) -> None:
    for first in range(1, 2_502, 500):
        log.append("s", first - 1, records(*[started()] * 500, first=first))

    assert [event.sequence for event in log.events("s")] == list(range(1, 3_001))


def test_read_models_tell_calls_with_their_outcome_and_response(log: EventLog) -> None:
    log.append("s", 0, small_session(), label="tides.jsonl")

    session = log.session("s")
    calls = log.calls("s")
    assert (session.label, session.events, session.calls, session.aborted_calls) == ("tides.jsonl", 9, 3, 1)
    assert (session.cuts, session.model, session.last_sequence) == (1, "m-1", 9)
    assert [(call.number, call.outcome, call.advanced) for call in calls] == [
        (1, "within-budget", False),
        (2, "paged", True),
        (3, "aborted", False),
    ]
    assert [call.response_tokens for call in calls] == [15, None, None]
    assert (calls[2].code, calls[2].rule) == ("ACTIVE_REQUEST_TOO_LARGE", "request-over-budget")
    assert calls[2].estimated_tokens == 1200.5
    assert calls[2].context_window == 2000


def test_a_response_in_a_later_append_is_added_to_its_call(log: EventLog) -> None:
    log.append("s", 0, records((requested(), "c"), (selected(), "c")))

    log.append("s", 2, records((ended(), "c"), first=3))

    assert log.call("c").response_tokens == 15
    assert log.session("s").calls == 1


def test_a_decision_in_a_later_append_is_added_to_its_call(log: EventLog) -> None:
    log.append("s", 0, records((requested(), "c"), (requested(), "d")))
    log.append("s", 2, records((selected(CUT), "c"), (aborted(), "d"), first=3))
    sessions, calls = log.sessions(), log.calls()

    assert [(call.outcome, call.advanced) for call in calls] == [("paged", True), ("aborted", False)]
    assert (log.session("s").cuts, log.session("s").aborted_calls) == (1, 1)
    log.rebuild()
    assert (log.sessions(), log.calls()) == (sessions, calls)


def test_the_last_call_is_the_one_with_the_highest_number_when_the_clock_went_back(log: EventLog) -> None:
    first, second = records((requested(), "c"), (requested(), "d"))

    log.append("s", 0, [first, second._replace(recorded_at=first.recorded_at - timedelta(hours=1))])

    last = log.last_call("s")
    assert last is not None
    assert last.call_id == "d"
    assert [call.number for call in log.calls("s")] == [1, 2]


@pytest.mark.parametrize(
    ("window", "stored"),
    [(2**70, 2.0**70), (10**400, math.inf), (math.inf, math.inf), (math.nan, None)],
    ids=["wide", "huge", "infinite", "no-number"],
)
def test_a_size_that_no_column_holds_does_not_stop_an_append(
    log: EventLog, window: float, stored: float | None
) -> None:
    log.append("s", 0, records((replace(requested(), context_window=window), "c")))

    assert log.call("c").context_window == stored


def test_calls_are_found_by_outcome_and_newest_first(log: EventLog) -> None:
    log.append("s", 0, small_session())
    log.append("t", 0, small_session("t"))

    assert [call.call_id for call in log.calls(outcome="aborted")] == ["s-call-3", "t-call-3"]
    assert [call.number for call in log.calls("t", limit=2, newest_first=True)] == [3, 2]
    last = log.last_call("s", outcome="within-budget")
    assert last is not None
    assert last.call_id == "s-call-1"
    assert log.last_call("s", outcome="recovery") is None


def test_unknown_sessions_and_calls_are_typed_errors(log: EventLog) -> None:
    with pytest.raises(UnknownSession):
        log.session("nobody")
    with pytest.raises(UnknownCall):
        log.call("nothing")


def test_a_writer_that_is_behind_gets_a_conflict_and_changes_nothing(log: EventLog) -> None:
    log.append("s", 0, small_session())

    with pytest.raises(SessionConflict) as conflict:
        log.append("s", 4, [_with_id(record, "other") for record in records(started(), first=5)])

    assert (conflict.value.expected, conflict.value.found) == (4, 9)
    assert log.session("s").last_sequence == 9
    assert len(list(log.events("s"))) == 9


def test_a_writer_that_is_ahead_gets_a_conflict(log: EventLog) -> None:
    log.append("s", 0, records(started()))

    with pytest.raises(SessionConflict):
        log.append("s", 7, records(started(), first=8))


def test_repeating_an_acknowledged_append_changes_nothing(log: EventLog) -> None:
    written = small_session()
    log.append("s", 0, written[:5])
    log.append("s", 5, written[5:])

    assert log.append("s", 0, written[:5]) == 5
    assert log.append("s", 5, written[5:]) == 9
    assert len(list(log.events("s"))) == 9
    assert log.session("s").calls == 3


def test_a_repeated_append_is_recognised_wherever_the_writer_thinks_it_is(location: str) -> None:
    written = small_session()
    with EventLog.open(location, LogOptions(durability="sync")) as log:
        log.append("s", 0, written)

        assert log.append("s", 9, written[3:6]) == 6
        assert log.append("s", 2, written[6:]) == 9
        assert len(list(log.events("s"))) == 9


def test_an_append_that_is_there_in_part_is_a_conflict(log: EventLog) -> None:
    log.append("s", 0, records(started()))

    with pytest.raises(SessionConflict):
        log.append("s", 0, records(started(), started()))

    assert log.session("s").last_sequence == 1


def test_an_event_id_of_another_session_is_refused(log: EventLog) -> None:
    log.append("s", 0, records(started()))

    with pytest.raises(SessionConflict, match="new id"):
        log.append("t", 0, records(started()))

    assert list(log.events("t")) == []


def test_a_call_id_of_another_session_is_refused(log: EventLog) -> None:
    log.append("s", 0, records((requested(), "c")))

    with pytest.raises(SessionConflict, match="new id"):
        log.append("t", 0, records((requested(), "c"), session="t"))

    assert list(log.events("t")) == []


def test_rebuilding_the_read_models_gives_the_same_rows(log: EventLog) -> None:
    log.append("s", 0, small_session(), label="tides.jsonl")
    log.append("t", 0, small_session("t")[:6])
    sessions, calls = log.sessions(), log.calls()
    with log._engine.begin() as connection:
        connection.execute(delete(provider_calls))
    assert log.calls() == []

    assert log.rebuild() == 2

    assert log.sessions() == sessions
    assert log.calls() == calls


def test_a_log_opened_again_goes_on(location: str, log: EventLog) -> None:
    log.append("s", 0, small_session())

    with EventLog.open(location) as again:
        again.append("s", 9, records(started(), first=10))
        assert [event.sequence for event in again.events("s", 8)] == [9, 10]


def test_strings_that_no_database_takes_read_back_as_they_were(log: EventLog) -> None:
    message = "half \ud83d a pair, a NUL \x00, an emoji \U0001f600, a quote ' and a percent %s"
    event = ContextAborted(
        code=SelectionErrorCode.INVALID_MESSAGE_STRUCTURE, rule=Rule.STRUCTURE, message=message
    )

    log.append("s", 0, records(event))

    (stored,) = log.events("s")
    assert stored.event == event


@pytest.mark.parametrize(
    "text", ["half \ud83d", "\udc00 half", "a NUL \x00", "\ufdd0d83d", "ümlaut \U0001f600"], ids=ascii
)
def test_ids_and_names_that_no_database_takes_read_back_as_they_were(log: EventLog, text: str) -> None:
    model, call = ModelSelected(model=text), (requested(), text)

    log.append(text, 0, records(model, call, session=text), label=text)

    session = log.session(text)
    assert (session.session_id, session.label, session.model) == (text, text, text)
    assert log.call(text).session_id == text
    assert [event.call_id for event in log.events(text)] == [None, text]
    assert log.append(text, 0, records(model, call, session=text)) == 2
    log.rebuild()
    assert log.session(text) == session


def _with_id(record: Record, name: str) -> Record:
    return Record(record.event, f"{name}-{record.event_id}", record.recorded_at, record.call_id)


@pytest.mark.parametrize("durability", Durability)
def test_what_no_index_holds_does_not_stop_the_log(location: str, durability: Durability) -> None:
    # Random, so that no compression makes it short.
    long = Random(1).randbytes(20_000).hex()
    with EventLog.open(location, LogOptions(durability=durability)) as log:
        log.append("s", 0, records(SessionStarted(reason="new", host=long), ModelSelected(model=long)))
        log.append("s", 2, records((requested(), "c"), first=3))
        log.flush()

        stored = [event.event for event in log.events("s")]
        assert stored[1] == ModelSelected(model=long)
        assert log.call("c").model == long[:200]
        assert log.session("s").host == long[:200]


@pytest.mark.parametrize("bad", ["x" * 501, 5, None, b"x"], ids=["long", "number", "none", "bytes"])
@pytest.mark.parametrize("durability", Durability)
def test_an_id_that_is_none_is_a_typed_error(location: str, durability: Durability, bad: Any) -> None:
    good = records(started(), (requested(), "c"))
    with EventLog.open(location, LogOptions(durability=durability)) as log:
        for session, record in (
            (bad, good[0]),
            ("s", good[0]._replace(event_id=bad)),
            *([("s", good[1]._replace(call_id=bad))] if bad is not None else []),
        ):
            with pytest.raises(InvalidEvent, match="500 characters"):
                log.append(session, 0, [record])
        assert log.append("s", 0, good) == 2


@pytest.mark.parametrize(
    "moment",
    [None, "2026-03-01", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))],
    ids=["none", "text", "before-time"],
)
def test_a_moment_that_is_none_is_a_typed_error(log: EventLog, moment: Any) -> None:
    with pytest.raises(InvalidEvent, match="recorded at"):
        log.append("s", 0, [records(started())[0]._replace(recorded_at=moment)])


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_a_moment_of_any_year_can_be_stored(log: EventLog, year: int) -> None:
    moment = datetime(year, 6, 1, tzinfo=UTC)

    log.append("s", 0, [records(started())[0]._replace(recorded_at=moment)])

    assert [event.recorded_at for event in log.events("s")] == [moment]
    assert [result.finding for result in log.verify()] == [None]
