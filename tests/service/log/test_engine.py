"""Opening logs: paths, damaged files, other databases, many processes at once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from context_paging.migrations import BASE_TABLE, HEAD
from context_paging.migrations.upgrade import head
from context_paging.service.log import EventLog, ForeignLog, LogUnavailable

from .events import records, small_session, started


def test_the_known_head_is_the_newest_migration() -> None:
    assert head() == HEAD


def test_a_path_makes_a_file_in_write_ahead_mode(tmp_path: Path) -> None:
    path = tmp_path / "100% log.db"
    with EventLog.open(str(path)) as log:
        log.append("s", 0, small_session())

    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (9,)


def test_without_a_location_the_log_is_in_memory() -> None:
    with EventLog.open() as log:
        log.append("s", 0, small_session())
        assert log.session("s").events == 9


@pytest.mark.parametrize("content", [b"not a database at all, only text" * 200, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(content)

    with pytest.raises(LogUnavailable, match=r"log\.db"):
        EventLog.open(str(path))

    assert path.read_bytes() == content


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="does not exist"):
        EventLog.open(str(tmp_path / "nowhere" / "log.db"))


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable):
        EventLog.open(str(tmp_path))


@pytest.mark.parametrize("location", ["nonsense://x", "postgresql+nodriver://x/y", "://"])
def test_an_unknown_kind_of_database_is_refused(location: str) -> None:
    with pytest.raises(LogUnavailable):
        EventLog.open(location)


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable):
        EventLog.open(f"postgresql+psycopg://nobody@/nothing?host={tmp_path}")


def test_tables_of_something_else_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")

    with pytest.raises(ForeignLog, match="of its own"):
        EventLog.open(str(path))

    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_newer_log_is_refused(location: str, log: EventLog) -> None:
    with log._engine.begin() as connection:
        connection.execute(text(f"UPDATE {BASE_TABLE} SET version_num = '9999'"))

    with pytest.raises(ForeignLog, match="newer"):
        EventLog.open(location)


def test_a_log_that_became_read_only_refuses_appends(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with EventLog.open(str(path)) as log:
        log.append("s", 0, records(started()))
        with log._engine.connect() as connection:
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA query_only = ON")
        with pytest.raises(LogUnavailable):
            log.append("s", 1, records(started(), first=2))
        assert log.session("s").last_sequence == 1


OPEN_AND_APPEND = """
import sys
from context_paging.service.log import EventLog
from tests.service.log.events import records, started
with EventLog.open(sys.argv[1]) as log:
    log.append(sys.argv[2], 0, records(started(), session=sys.argv[2]))
"""


def test_many_processes_may_open_a_fresh_log_at_once(location: str) -> None:
    command = [sys.executable, "-c", OPEN_AND_APPEND, location]
    processes = [
        subprocess.Popen([*command, f"session-{number}"], stderr=subprocess.PIPE) for number in range(6)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]

    assert [process.returncode for process in processes] == [0] * 6, errors
    with EventLog.open(location) as log:
        assert sorted(session.session_id for session in log.sessions()) == [f"session-{n}" for n in range(6)]


APPEND_FOR_EVER = """
import sys
from context_paging.service.log import EventLog
from tests.service.log.events import records, started
with EventLog.open(sys.argv[1]) as log:
    sequence = 0
    while True:
        sequence = log.append("s", sequence, records(started(), started(), first=sequence + 1))
        print(sequence, flush=True)
"""


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.35])
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(location: str, seconds: float) -> None:
    with EventLog.open(location):
        pass
    writer = subprocess.Popen([sys.executable, "-c", APPEND_FOR_EVER, location], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    acknowledged = int(writer.stdout.readline())
    time.sleep(seconds)
    os.kill(writer.pid, signal.SIGKILL)
    for line in writer.stdout.read().split(b"\n")[:-1]:
        acknowledged = int(line)
    writer.wait()

    with EventLog.open(location) as log:
        stored = [event.sequence for event in log.events("s")]
        assert stored == list(range(1, len(stored) + 1))
        assert len(stored) >= acknowledged
        assert len(stored) % 2 == 0
        assert log.session("s").last_sequence == len(stored)
