"""`verify` names the first record that is not as it was written, whatever was done to the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from context_paging.service.log import EventLog, Fault, LogKey, LogOptions, UnknownSession
from context_paging.service.log.chain import record_hash

from .events import records, small_session, started

Tampering = Callable[[Connection], object]


def sql(*statements: str) -> Tampering:
    """Statements, one after the other."""

    def run(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    return run


@pytest.fixture
def filled(log: EventLog) -> EventLog:
    """A log of three sessions."""
    for session in ("r", "s", "t"):
        log.append(session, 0, small_session(session))
    log.flush()
    return log


def test_what_was_written_is_found_in_order(filled: EventLog) -> None:
    results = list(filled.verify())

    assert [(result.session_id, result.records, result.finding) for result in results] == [
        (session, 9, None) for session in ("r", "s", "t")
    ]
    assert {(result.unchained, result.unchecked_seals) for result in results} == {(0, 0)}


@pytest.mark.parametrize(
    ("tampering", "fault", "sequence"),
    [
        (
            sql("UPDATE events SET payload = replace(payload, 'tests', 'tesst') WHERE sequence = 1"),
            "altered",
            1,
        ),
        (sql("UPDATE events SET type = 'session-shut-down' WHERE sequence = 4"), "altered", 4),
        (sql("UPDATE events SET call_id = 'other' WHERE sequence = 5"), "altered", 5),
        (sql("UPDATE events SET event_id = 'other' WHERE sequence = 6"), "altered", 6),
        (sql("UPDATE events SET schema_version = 1 WHERE sequence = 7"), "altered", 7),
        (
            sql("UPDATE events SET recorded_at = '2026-03-01 13:00:00.000000' WHERE sequence = 8"),
            "altered",
            8,
        ),
        (sql("UPDATE events SET key_id = 'other' WHERE sequence = 9"), "altered", 9),
        (sql("UPDATE events SET hash = seal WHERE sequence = 2"), "altered", 2),
        (sql("UPDATE events SET previous_hash = seal WHERE sequence = 3"), "altered", 3),
        (sql("UPDATE events SET seal = previous_hash WHERE sequence = 3"), "foreign", 3),
        (sql("UPDATE events SET seal = NULL WHERE sequence = 3"), "foreign", 3),
        (sql("UPDATE events SET hash = NULL, seal = NULL WHERE sequence <= 3"), "foreign", 1),
        (sql("DELETE FROM events WHERE sequence = 1"), "missing", 1),
        (sql("DELETE FROM events WHERE sequence = 5"), "missing", 5),
        (sql("DELETE FROM events WHERE sequence = 9"), "missing", 9),
        (sql("DELETE FROM events WHERE sequence > 2"), "missing", 3),
        (sql("DELETE FROM events"), "missing", 1),
        (
            sql(
                "UPDATE events SET sequence = -1 WHERE sequence = 4",
                "UPDATE events SET sequence = 4 WHERE sequence = 5",
                "UPDATE events SET sequence = 5 WHERE sequence = -1",
            ),
            "reordered",
            4,
        ),
        (
            sql(
                "DELETE FROM events WHERE sequence = 4",
                "UPDATE events SET sequence = sequence - 100 WHERE sequence > 4",
                "UPDATE events SET sequence = sequence + 99 WHERE sequence < 0",
            ),
            "reordered",
            4,
        ),
        (
            sql("UPDATE sessions SET last_sequence = 8, last_hash = NULL"),
            "foreign",
            9,
        ),
        (sql("UPDATE sessions SET last_hash = (SELECT hash FROM events WHERE sequence = 1)"), "altered", 9),
        (sql("DELETE FROM sessions"), "foreign", 9),
    ],
)
def test_a_change_to_the_table_is_found(
    log: EventLog, tampering: Tampering, fault: str, sequence: int
) -> None:
    log.append("s", 0, small_session())
    log.flush()
    with log.engine.begin() as connection:
        tampering(connection)

    (result,) = log.verify()

    assert result.finding is not None
    assert (result.finding.fault, result.finding.sequence) == (fault, sequence)


def test_a_record_of_another_session_is_found_where_it_was_put(filled: EventLog) -> None:
    with filled.engine.begin() as connection:
        connection.execute(text("DELETE FROM events WHERE session_id = 's' AND sequence = 4"))
        connection.execute(text("UPDATE events SET session_id = 's' WHERE session_id = 't' AND sequence = 4"))

    findings = [result.finding for result in filled.verify()]

    assert [None if f is None else (f.session_id, f.fault, f.sequence) for f in findings] == [
        None,
        ("s", Fault.ALTERED, 4),
        ("t", Fault.MISSING, 4),
    ]


def test_a_record_rewritten_with_a_new_hash_lacks_the_seal(log: EventLog) -> None:
    log.append("s", 0, small_session())
    first = next(log.events("s"))
    forged = replace(first, payload=first.payload.replace("1000", "9000"))
    with log.engine.begin() as connection:
        connection.execute(
            text("UPDATE events SET payload = :payload, hash = :hash WHERE sequence = 1"),
            {"payload": forged.payload, "hash": record_hash(forged, bytes(32))},
        )

    (result,) = log.verify()

    assert result.finding is not None
    assert (result.finding.fault, result.finding.sequence) == (Fault.FOREIGN, 1)
    assert "key" in result.finding.detail


def test_a_record_that_somebody_else_appended_with_the_logs_own_code_is_found(
    location: str, log: EventLog, tmp_path: Path
) -> None:
    log.append("s", 0, small_session())
    log.flush()
    with EventLog.open(location, LogOptions(durability="sync", key_file=tmp_path / "elsewhere.key")) as other:
        other.append("s", 9, records(started(), first=10))
    with log.engine.begin() as connection:
        connection.execute(
            text("DELETE FROM log_keys WHERE key_id = :key"),
            {"key": LogKey.load(tmp_path / "elsewhere.key").id},
        )

    (result,) = log.verify()

    assert result.finding is not None
    assert (result.finding.fault, result.finding.sequence) == (Fault.FOREIGN, 10)


def test_seals_of_another_machine_are_checked_with_its_key(
    location: str, log: EventLog, tmp_path: Path
) -> None:
    log.append("s", 0, small_session())
    log.flush()
    with EventLog.open(location, LogOptions(durability="sync", key_file=tmp_path / "elsewhere.key")) as other:
        other.append("s", 9, records(started(), first=10))

    (without,) = log.verify()
    (with_key,) = log.verify(keys=[LogKey.load(tmp_path / "elsewhere.key")])

    assert (without.unchecked_seals, without.finding) == (1, None)
    assert (with_key.unchecked_seals, with_key.finding) == (0, None)


def test_one_session_can_be_verified_alone(filled: EventLog) -> None:
    with filled.engine.begin() as connection:
        connection.execute(text("DELETE FROM events WHERE session_id = 't' AND sequence = 4"))

    (untouched,) = filled.verify("s")
    (touched,) = filled.verify("t")

    assert untouched.finding is None
    assert touched.finding is not None
    with pytest.raises(UnknownSession):
        list(filled.verify("nobody"))


def test_progress_is_told(filled: EventLog) -> None:
    told: list[tuple[int, int]] = []

    list(filled.verify(progress=lambda done, of: told.append((done, of))))

    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_rebuild_leaves_the_heads_as_they_were(filled: EventLog) -> None:
    before = filled.sessions()

    filled.rebuild()

    assert filled.sessions() == before
    assert all(result.finding is None for result in filled.verify())
