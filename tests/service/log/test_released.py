"""What any released version wrote must always load: databases, events, and the way back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import create_engine, inspect, text

from context_paging.domain.events import SCHEMA_VERSION, Event, SessionStarted
from context_paging.migrations import HEAD
from context_paging.migrations.upgrade import downgrade, known_revisions, sql, upgrade
from context_paging.service.log import EventLog, SchemaMismatch
from context_paging.service.log.codec import decode
from context_paging.service.log.schema import check, current, move
from context_paging.service.log.upcasters import UPCASTERS, upcast

from .events import records, small_session, started

RELEASED = Path(__file__).parent / "released"
"""A dump of a SQLite log of each released schema, with every type of event of its time."""
NEW_TYPES = {
    "audit-interrupted",
    "structure-repaired",
    "recovery-tool-called",
    "recovery-tool-answered",
    "recovery-tool-rejected",
}
"""Types of events that no release has written yet."""
TABLES = ("events", "sessions", "provider_calls")


def released_rows(revision: str) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """Columns and rows of the tables in a dump."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((RELEASED / f"{revision}.sql").read_text())
        found = {}
        for table in TABLES:
            rows = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
            found[table] = ([column[0] for column in rows.description], rows.fetchall())
        return found


@pytest.fixture(params=sorted(path.stem for path in RELEASED.glob("*.sql")))
def released(request: pytest.FixtureRequest, location: str) -> tuple[str, str]:
    """A database as a release left it: its revision and place."""
    revision: str = request.param
    if "://" not in location:
        with closing(sqlite3.connect(location)) as connection:
            connection.executescript((RELEASED / f"{revision}.sql").read_text())
    else:
        engine = create_engine(location)
        with engine.begin() as connection:
            upgrade(connection, revision)
            for table, (columns, rows) in released_rows(revision).items():
                booleans = {
                    c["name"] for c in inspect(connection).get_columns(table) if str(c["type"]) == "BOOLEAN"
                }
                names = ", ".join(columns)
                values = ", ".join(f":{column}" for column in columns)
                for row in rows:
                    given = dict(zip(columns, row, strict=True))
                    for name in booleans:
                        given[name] = bool(given[name])
                    for name in ("recorded_at", "started_at", "last_at", "requested_at"):
                        if name in given:
                            given[name] = f"{given[name]}+00"
                    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), given)
            connection.execute(
                text("SELECT setval('events_position_seq', (SELECT max(position) FROM events))")
            )
        engine.dispose()
    return revision, location


def test_there_is_a_database_of_every_revision_but_the_newest() -> None:
    assert {path.stem for path in RELEASED.glob("*.sql")} == known_revisions() - {HEAD}


def test_a_database_of_an_earlier_release_is_opened_with_everything_in_it(released: tuple[str, str]) -> None:
    revision, location = released
    columns, rows = released_rows(revision)["events"]

    with EventLog.open(location) as log:
        stored = [event for session in log.sessions() for event in log.events(session.session_id)]
        by_position = {event.position: event for event in stored}

        assert len(stored) == len(rows)
        for row in rows:
            given = dict(zip(columns, row, strict=True))
            event = by_position[given["position"]]
            assert (event.session_id, event.sequence, event.payload) == (
                given["session_id"],
                given["sequence"],
                given["payload"],
            )
            assert event.event.type == given["type"]
            assert event.period == 202603
        sessions, calls = log.sessions(), log.calls()
        log.rebuild()
        # Who hosted a session, version 1 does not tell; what was known of its calls stays.
        assert [c._replace(host=None, model=None) for c in log.calls()] == [
            c._replace(host=None, model=None) for c in calls
        ]
        assert [s._replace(host=None) for s in log.sessions()] == [s._replace(host=None) for s in sessions]


def test_a_session_of_an_earlier_release_goes_on_with_a_chain(released: tuple[str, str]) -> None:
    _, location = released
    with EventLog.open(location) as log:
        before = log.session("s").last_sequence

        log.append("s", before, records(started(), started(), first=before + 1))
        log.append("new", 0, small_session("new"))
        log.flush()

        results = {result.session_id: result for result in log.verify()}
        assert [result.finding for result in results.values()] == [None] * len(results)
        assert (results["s"].records, results["s"].unchained) == (before + 2, before)
        assert results["new"].unchained == 0
        assert log.last_position() > max(event.position for event in log.events("s"))


def test_a_record_without_hash_is_only_taken_for_an_earlier_releases_if_it_was_there_then(
    released: tuple[str, str],
) -> None:
    _, location = released
    with EventLog.open(location) as log:
        log.append("new", 0, small_session("new"))
        log.flush()
        with log.engine.begin() as connection:
            connection.execute(
                text("UPDATE events SET hash = NULL, previous_hash = NULL WHERE session_id = 'new'")
            )

        (result,) = log.verify("new")

        assert result.finding is not None
        assert (result.finding.fault, result.finding.sequence) == ("foreign", 1)


def test_a_downgrade_leaves_what_the_earlier_release_knew(released: tuple[str, str]) -> None:
    revision, location = released
    with EventLog.open(location) as log:
        log.append("new", 0, small_session("new"))
    before = released_rows(revision)

    assert current(location) == HEAD
    assert move(location, revision, down=True) == revision

    engine = create_engine(location if "://" in location else f"sqlite:///{location}")
    with engine.connect() as connection:
        assert sorted(column["name"] for column in inspect(connection).get_columns("events")) == sorted(
            before["events"][0]
        )
        events = connection.execute(text("SELECT position, payload FROM events ORDER BY position")).all()
        assert [tuple(row) for row in events][: len(before["events"][1])] == [
            (row[0], row[8]) for row in before["events"][1]
        ]
        assert len(events) == len(before["events"][1]) + 9
        indexes = {index["name"] for index in inspect(connection).get_indexes("events")}
        assert "ix_events_call_id" in indexes
    engine.dispose()
    assert move(location, "head") == HEAD
    check(location)
    with EventLog.open(location) as log:
        assert log.session("new").last_sequence == 9
        assert [result.finding for result in log.verify()] == [None] * len(log.sessions())


def test_a_database_in_between_is_told(released: tuple[str, str]) -> None:
    _, location = released

    with pytest.raises(SchemaMismatch, match="db upgrade"):
        check(location)


def test_a_schema_that_was_changed_by_hand_is_told(log: EventLog, location: str) -> None:
    check(location)
    with log.engine.begin() as connection:
        connection.execute(text("ALTER TABLE sessions ADD COLUMN mood VARCHAR"))

    with pytest.raises(SchemaMismatch, match="by hand"):
        check(location)


@pytest.mark.parametrize(("revision", "down"), [("0404", False), ("0404", True), (HEAD, True)])
def test_a_revision_that_is_not_there_is_a_typed_error(
    location: str, log: EventLog, revision: str, down: bool
) -> None:
    assert log.sessions() == []
    if revision == HEAD:
        assert move(location, revision, down=down) == HEAD
        return
    with pytest.raises(SchemaMismatch, match="0404"):
        move(location, revision, down=down)
    assert current(location) == HEAD


def test_migrations_can_be_written_as_sql_and_make_the_same_schema(postgres: str, tmp_path: Path) -> None:
    script = sql("postgresql")
    assert "pg_advisory_xact_lock" in script
    engine = create_engine(postgres)
    with engine.connect() as connection:
        # The script brings its own transaction.
        raw: Any = connection.connection.driver_connection
        raw.autocommit = True
        raw.execute(script)
    engine.dispose()
    check(postgres)

    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(sql("sqlite"))
    check(str(path))
    for place in (postgres, str(path)):
        with EventLog.open(place) as log:
            log.append("s", 0, small_session())
            assert all(result.finding is None for result in log.verify())
    with closing(sqlite3.connect(path)) as database:
        database.executescript(sql("sqlite", f"{HEAD}:0001", down=True))
    assert current(str(path)) == "0001"


def test_every_type_of_event_was_written_by_the_release_that_had_it() -> None:
    columns, rows = released_rows("0001")["events"]
    types = {row[columns.index("type")] for row in rows}
    shapes = {str(next(f.default for f in fields(shape) if f.name == "type")) for shape in get_args(Event)}

    assert shapes - types == NEW_TYPES


def test_an_event_of_version_1_has_an_unknown_host() -> None:
    event = decode("session-started", 1, '{"reason":"new","global_settings":{"tokenBudget":1000}}')

    assert event == SessionStarted(reason="new", host="unknown", global_settings={"tokenBudget": 1000})


def test_upcasters_lift_one_version_at_a_time_and_only_their_type() -> None:
    steps = {
        ("a", 1): lambda payload: {**payload, "second": True},
        ("a", 3): lambda payload: {**payload, "fourth": len(payload)},
    }

    assert upcast("a", 1, {}, to=4, upcasters=steps) == {"second": True, "fourth": 1}
    assert upcast("a", 2, {}, to=4, upcasters=steps) == {"fourth": 0}
    assert upcast("a", 4, {}, to=4, upcasters=steps) == {}
    assert upcast("b", 1, {}, to=4, upcasters=steps) == {}
    assert all(version < SCHEMA_VERSION for _, version in UPCASTERS)


def test_a_payload_of_an_earlier_version_is_not_changed_in_the_database(released: tuple[str, str]) -> None:
    _, location = released
    with EventLog.open(location) as log:
        first = next(event for event in log.events("s") if event.type == "session-started")

        assert "host" not in json.loads(first.payload)
        assert first.schema_version == 1
        assert isinstance(first.event, SessionStarted)
        assert first.event.host == "unknown"


def test_the_newest_revision_goes_all_the_way_back(location: str) -> None:
    with EventLog.open(location) as log:
        log.append("s", 0, small_session())
        log.flush()
        with log.engine.begin() as connection:
            downgrade(connection)
            assert set(inspect(connection).get_table_names()) == {"context_paging_schema"}
