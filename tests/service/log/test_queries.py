"""Questions to the log: filters, pages, and the indexes that answer them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Select, select, text

from context_paging.domain.events import ModelSelected, SessionStarted
from context_paging.service.log import CallQuery, EventLog, InvalidQuery, Page, Record, SessionQuery
from context_paging.service.log.queries import call_statement, session_statement, timeline_statement
from context_paging.service.log.tables import events, provider_calls

from .events import aborted, records, requested, selected, small_session

START = datetime(2026, 3, 1, tzinfo=UTC)


def session_of(number: int) -> list[Record]:
    """A session of three calls in one of three hosts, with one of two models; each third one has an abort."""
    name = f"s{number:03}"
    host = SessionStarted(reason="new", host=f"host-{number % 3}")
    made = records(
        host,
        ModelSelected(model=f"model-{number % 2}"),
        (requested(), f"{name}-1"),
        (selected(), f"{name}-1"),
        (requested(), f"{name}-2"),
        (aborted() if number % 3 == 0 else selected(), f"{name}-2"),
        (requested(), f"{name}-3"),
        (selected(), f"{name}-3"),
        session=name,
    )
    # Many at one moment: what comes first is then a matter of ids.
    return [record._replace(recorded_at=START + timedelta(hours=number // 4)) for record in made]


@pytest.fixture
def filled(log: EventLog) -> EventLog:
    """A log of twenty sessions."""
    for number in range(20):
        log.append(f"s{number:03}", 0, session_of(number))
    log.flush()
    return log


def all_pages(ask: Callable[[str | None], Page[Any]]) -> list[Any]:
    """The rows of all pages."""
    found: list[Any] = []
    cursor = None
    while True:
        page = ask(cursor)
        found += page.rows
        cursor = page.next
        if cursor is None:
            return found
        assert page.rows


@pytest.mark.parametrize("size", [1, 2, 7, 59, 60, 61])
@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_of_calls_together_are_all_calls_in_order(
    filled: EventLog, size: int, newest_first: bool
) -> None:
    query = CallQuery(newest_first=newest_first)

    found = all_pages(lambda cursor: filled.find_calls(query, cursor=cursor, limit=size))

    expected = sorted(
        filled.calls(), key=lambda call: (call.requested_at, call.call_id), reverse=newest_first
    )
    assert found == expected
    assert len(found) == 60


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_of_sessions_and_of_a_timeline_are_complete(filled: EventLog, newest_first: bool) -> None:
    query = SessionQuery(newest_first=newest_first)

    found = all_pages(lambda cursor: filled.find_sessions(query, cursor=cursor, limit=3))
    timeline = all_pages(lambda cursor: filled.timeline("s003", cursor=cursor, limit=3))
    numbers = all_pages(lambda cursor: filled.find_calls(CallQuery("s003"), cursor=cursor, limit=1))

    assert found == (filled.sessions()[::-1] if newest_first else filled.sessions())
    assert timeline == list(filled.events("s003"))
    assert [call.number for call in numbers] == [3, 2, 1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (CallQuery(outcome="aborted"), [f"s{n:03}-2" for n in range(0, 20, 3)]),
        (CallQuery(code="ACTIVE_REQUEST_TOO_LARGE", host="host-0"), [f"s{n:03}-2" for n in range(0, 20, 3)]),
        (CallQuery(outcome="aborted", host="host-1"), []),
        (CallQuery(outcome="aborted", model="model-1"), [f"s{n:03}-2" for n in (3, 9, 15)]),
        (
            CallQuery(since=START + timedelta(hours=1), before=START + timedelta(hours=2), host="host-1"),
            [f"s{n:03}-{c}" for n in (4, 7) for c in (1, 2, 3)],
        ),
        (CallQuery("s004", "within-budget"), ["s004-1", "s004-2", "s004-3"]),
        (CallQuery(code="nothing"), []),
    ],
    ids=str,
)
def test_calls_are_found_by_what_they_were(filled: EventLog, query: CallQuery, expected: list[str]) -> None:
    assert sorted(call.call_id for call in filled.find_calls(query).rows) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (SessionQuery(prefix="s01"), list(range(10, 20))),
        (SessionQuery(prefix="%"), []),
        (SessionQuery(host="host-2", model="model-0"), [2, 8, 14]),
        (SessionQuery(aborted=True), list(range(0, 20, 3))),
        (SessionQuery(aborted=False, prefix="s00"), [1, 2, 4, 5, 7, 8]),
        (SessionQuery(since=START + timedelta(hours=4)), [16, 17, 18, 19]),
        (SessionQuery(before=START + timedelta(hours=1)), [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_sessions_are_found_by_what_they_were(
    filled: EventLog, query: SessionQuery, expected: list[int]
) -> None:
    found = filled.find_sessions(query).rows

    assert sorted(session.session_id for session in found) == [f"s{number:03}" for number in expected]


def test_rows_that_come_in_between_pages_shift_nothing(filled: EventLog) -> None:
    before = [call.call_id for call in filled.find_calls(limit=60).rows]
    first = filled.find_calls(limit=10)
    filled.append("s999", 0, session_of(999))

    rest = all_pages(lambda cursor: filled.find_calls(cursor=cursor or first.next, limit=10))

    assert [call.call_id for call in first.rows + rest] == before


@pytest.mark.parametrize("cursor", ["", "x", "????", "bnVsbA", "WzEsMiwzXQ", "W10", "WyJ4IiwieSJd"])
def test_what_is_no_cursor_is_a_typed_error(log: EventLog, cursor: str) -> None:
    for ask in (log.find_calls, log.find_sessions):
        with pytest.raises(InvalidQuery):
            ask(cursor=cursor)
    with pytest.raises(InvalidQuery):
        log.timeline("s", cursor=cursor)


def test_the_last_calls_of_a_session_go_by_number(filled: EventLog) -> None:
    assert filled.call_number("s003", 2) == filled.call("s003-2")
    assert filled.call_number("s003", 4) is None
    assert filled.last_sequence("s003") == 8
    assert filled.last_sequence("nobody") == 0


NOW = datetime(2026, 3, 1, 4, tzinfo=UTC)
CURSOR = "WyIyMDI2LTAzLTAxVDAwOjAwOjAwKzAwOjAwIiwiczAwMy0yIl0"
PLANS = [
    (call_statement(CallQuery(), None, 50), "ix_provider_calls_requested_at_call_id"),
    (call_statement(CallQuery(), CURSOR, 50), "ix_provider_calls_requested_at_call_id"),
    (
        call_statement(CallQuery(outcome="aborted"), None, 50),
        "ix_provider_calls_outcome_requested_at_call_id",
    ),
    (
        call_statement(CallQuery(outcome="aborted"), CURSOR, 50),
        "ix_provider_calls_outcome_requested_at_call_id",
    ),
    (call_statement(CallQuery(code="c"), None, 50), "ix_provider_calls_code_requested_at_call_id"),
    (
        call_statement(CallQuery(host="host-1", since=NOW), None, 50),
        "ix_provider_calls_host_requested_at_call_id",
    ),
    (
        call_statement(CallQuery(model="m", before=NOW), CURSOR, 50),
        "ix_provider_calls_model_requested_at_call_id",
    ),
    (call_statement(CallQuery("s003"), None, 50), "uq_provider_calls_session_id_number"),
    (session_statement(SessionQuery(), CURSOR, 50), "ix_sessions_started_at_session_id"),
    (session_statement(SessionQuery(host="h"), None, 50), "ix_sessions_host_started_at_session_id"),
    (timeline_statement("s003", None, 50), "uq_events_session_id_sequence_period"),
    (select(provider_calls).where(provider_calls.c.call_id == "c"), "pk_provider_calls"),
    (select(events).where(events.c.position > 5).order_by(events.c.position).limit(5), "pk_events"),
    (select(events.c.sequence).where(events.c.event_id == "e"), "uq_events_event_id_period"),
]


@pytest.mark.parametrize(
    ("statement", "index"), PLANS, ids=[f"{n}-{index}" for n, (_, index) in enumerate(PLANS)]
)
def test_a_question_is_answered_by_its_index(filled: EventLog, statement: Select[Any], index: str) -> None:
    with filled.engine.connect() as connection:
        asked = statement.compile(connection, compile_kwargs={"literal_binds": True})
        if connection.dialect.name == "postgresql":
            # A small table is read whole whatever there is; and without sorting, only an index gives the
            # order.
            connection.execute(text("SET enable_seqscan = off"))
            connection.execute(text("SET enable_sort = off"))
            connection.execute(text("SET enable_bitmapscan = off"))
            plan = connection.exec_driver_sql(f"EXPLAIN {asked}".replace("%", "%%")).scalars().all()
        else:
            plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}")]
    shown = "\n".join(plan)

    assert _names(index, shown, filled.engine.dialect.name), shown
    assert "SCAN" not in shown or "USING INDEX" in shown or "USING COVERING" in shown, shown
    assert "TEMP B-TREE" not in shown
    assert "Seq Scan" not in shown


def _names(index: str, plan: str, dialect: str) -> bool:
    if dialect == "postgresql":
        # An index of a partition has a name of its own.
        columns = index.partition("_events_")[2]
        partitioned = (
            {"pk_events": "_pkey", index: f"_{columns}"} if index.startswith(("pk_ev", "uq_ev")) else {}
        )
        return index in plan or any(part in plan for part in partitioned.values())
    # SQLite does not name the indexes of constraints.
    unnamed = {
        "uq_provider_calls_session_id_number": "sqlite_autoindex_provider_calls",
        "uq_events_session_id_sequence_period": "sqlite_autoindex_events_1",
        "uq_events_event_id_period": "sqlite_autoindex_events_2",
        "pk_provider_calls": "sqlite_autoindex_provider_calls_1",
        "pk_events": "INTEGER PRIMARY KEY",
    }
    return unnamed.get(index, index) in plan


def test_a_small_session_is_found_by_host(log: EventLog) -> None:
    log.append("s", 0, small_session())

    assert log.session("s").host == "tests"
    assert [call.call_id for call in log.find_calls(CallQuery(host="tests", outcome="aborted")).rows] == [
        "s-call-3"
    ]
