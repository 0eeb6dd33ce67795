"""Sessions leave the log by age and by id, with everything that is theirs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from context_paging.service.log import (
    Durability,
    EventLog,
    LogOptions,
    Payloads,
    Record,
    SessionConflict,
    UnknownSession,
)
from context_paging.service.log.partitions import existing

from .events import records, small_session, started


def dated(session: str, *moments: datetime) -> list[Record]:
    """Events of a session at moments."""
    made = records(*[started()] * len(moments), session=session)
    return [record._replace(recorded_at=moment) for record, moment in zip(made, moments, strict=True)]


def day(month: int, number: int) -> datetime:
    """A day of 2026."""
    return datetime(2026, month, number, tzinfo=UTC)


def leftovers(log: EventLog, session: str) -> int:
    """How many rows of a session there are in all tables but that of the retired."""
    tables = ("events", "sessions", "provider_calls", "event_contents", "content_keys")
    with log.engine.connect() as connection:
        return sum(
            connection.execute(
                text(f"SELECT count(*) FROM {table} WHERE session_id = :id"), {"id": session}
            ).scalar()
            or 0
            for table in tables
        )


def test_a_retired_session_leaves_nothing_but_the_head_of_its_chain(location: str) -> None:
    with EventLog.open(location, LogOptions(payloads=Payloads.FULL)) as log:
        kept = [record._replace(content="text") for record in small_session()]
        log.append("s", 0, kept)
        log.append("t", 0, small_session("t"))
        head = log.session("s")

        log.retire("s")

        assert leftovers(log, "s") == 0
        assert leftovers(log, "t") > 0
        with log.engine.connect() as connection:
            row = connection.execute(
                text("SELECT session_id, last_sequence, last_hash FROM retired_sessions")
            ).one()
        assert (row.session_id, row.last_sequence, bytes(row.last_hash)) == ("s", 9, head.last_hash)
        assert [(result.session_id, result.finding) for result in log.verify()] == [("t", None)]
        with pytest.raises(UnknownSession):
            log.session("s")
        with pytest.raises(UnknownSession):
            log.retire("s")


def test_a_live_session_that_was_retired_gets_a_conflict(location: str, log: EventLog) -> None:
    log.append("s", 0, small_session())
    with EventLog.open(location) as other:
        other.retire("s")

    def go_on() -> None:
        log.append("s", 9, records(started(), first=10))
        log.flush()

    with pytest.raises(SessionConflict):
        go_on()
    assert leftovers(log, "s") == 0


@pytest.mark.parametrize("durability", Durability)
def test_a_live_session_that_was_retired_and_begun_anew_gets_a_conflict(
    location: str, durability: Durability
) -> None:
    with EventLog.open(location, LogOptions(durability=durability)) as log:
        log.append("s", 0, records(started(), started()))
        with EventLog.open(location) as other:
            other.retire("s")
            made = records(started(), started())
            other.append("s", 0, [record._replace(event_id=f"new-{record.event_id}") for record in made])

        def go_on() -> None:
            log.append("s", 2, records(started(), first=3))
            log.flush()

        with pytest.raises(SessionConflict):
            go_on()
        assert [result.finding for result in log.verify()] == [None]
        assert log.session("s").last_sequence == 2


def test_an_id_can_be_used_again_and_retired_again(log: EventLog) -> None:
    for _ in range(2):
        log.append("s", 0, small_session())
        log.retire("s")

    assert log.sessions() == []


def test_by_age_sessions_go_whose_last_event_is_old(log: EventLog) -> None:
    log.append("old", 0, dated("old", day(1, 1), day(1, 20)))
    log.append("long", 0, dated("long", day(1, 2), day(4, 2)))
    log.append("late", 0, dated("late", day(3, 1)))
    log.append("border", 0, dated("border", day(2, 1)))
    told: list[int] = []

    assert log.retire_before(day(2, 1), told.append) == 1

    assert [session.session_id for session in log.sessions()] == ["long", "border", "late"]
    assert sum(told) == 1
    assert all(result.finding is None for result in log.verify())
    assert log.retire_before(day(12, 1)) == 3
    assert log.sessions() == []
    assert log.retire_before(day(12, 1)) == 0


def test_many_sessions_go_at_once(log: EventLog) -> None:
    for number in range(60):
        log.append(f"s{number}", 0, dated(f"s{number}", day(1, 1) + timedelta(hours=number)))

    assert log.retire_before(day(1, 2)) == 24
    assert len(log.sessions()) == 36


def test_positions_are_not_given_out_twice_after_the_newest_events_went(log: EventLog) -> None:
    log.append("s", 0, dated("s", day(1, 1), day(1, 1)))
    highest = log.last_position()
    log.retire("s")
    log.append("t", 0, dated("t", day(1, 1)))

    assert log.last_position() > highest


def test_on_postgresql_a_month_goes_with_its_partition(postgres: str) -> None:
    with EventLog.open(postgres) as log:
        log.append("jan", 0, dated("jan", day(1, 1)))
        log.append("jan-2", 0, dated("jan-2", day(1, 31)))
        log.append("feb", 0, dated("feb", day(2, 1), day(2, 2)))
        log.append("feb-long", 0, dated("feb-long", day(2, 1), day(5, 2)))
        log.flush()
        with log.engine.connect() as connection:
            assert existing(connection) == {202601, 202602}
            counts = connection.execute(text("SELECT count(*) FROM events_202602")).scalar()
            assert counts == 4

        assert log.retire_before(day(3, 1)) == 3

        with log.engine.connect() as connection:
            assert existing(connection) == {202602}
        assert [session.session_id for session in log.sessions()] == ["feb-long"]
        log.append("jan-3", 0, dated("jan-3", day(1, 5)))
        assert len(list(log.events("jan-3"))) == 1
        assert all(result.finding is None for result in log.verify())


def test_on_postgresql_a_session_stays_in_the_month_it_began_in(postgres: str) -> None:
    with EventLog.open(postgres) as log:
        log.append("s", 0, dated("s", day(1, 31)))
        log.append("s", 1, [record._replace(event_id="later") for record in dated("s", day(2, 1))])
        log.flush()

        with log.engine.connect() as connection:
            assert existing(connection) == {202601}


def test_a_role_that_may_not_make_partitions_writes_to_the_one_for_all(postgres: str) -> None:
    with EventLog.open(postgres) as log, log.engine.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS context_paging_writer"))
        connection.execute(text("CREATE ROLE context_paging_writer LOGIN"))
        connection.execute(
            text(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO context_paging_writer"
            )
        )
        connection.execute(text("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO context_paging_writer"))
    try:
        with EventLog.open(postgres.replace("://postgres@", "://context_paging_writer@")) as writer:
            writer.append("s", 0, small_session())
            writer.flush()
            with writer.engine.connect() as connection:
                assert existing(connection) == set()
                assert connection.execute(text("SELECT count(*) FROM events_other")).scalar() == 9
    finally:
        with EventLog.open(postgres) as log, log.engine.begin() as connection:
            connection.execute(text("DROP OWNED BY context_paging_writer"))
            connection.execute(text("DROP ROLE context_paging_writer"))
