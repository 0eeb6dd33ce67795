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
from sqlalchemy import event, text

from context_paging.migrations import BASE_TABLE, HEAD
from context_paging.migrations.upgrade import downgrade, head
from context_paging.service.log import EventLog, ForeignLog, InvalidOption, LogOptions, LogUnavailable, engine

from .events import records, small_session, started

STRICT = LogOptions(durability="sync", audit="required", spool=False)


def test_the_known_head_is_the_newest_migration() -> None:
    assert head() == HEAD


def test_a_path_makes_a_file_in_write_ahead_mode(tmp_path: Path) -> None:
    path = tmp_path / "100% log.db"
    with EventLog.open(str(path)) as log:
        log.append("s", 0, small_session())

    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (9,)


def test_a_location_may_be_a_path(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "log.db") as log:
        log.append("s", 0, small_session())
    assert (tmp_path / "log.db").exists()


@pytest.mark.parametrize("name", ["a\0b.db", "\udcff\ud800.db"], ids=ascii)
def test_what_is_no_path_is_unavailable(tmp_path: Path, name: str) -> None:
    with pytest.raises(LogUnavailable):
        EventLog.open(f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["durability", "audit", "payloads"])
def test_an_option_that_is_none_is_a_typed_error(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} is 'perhaps'; it may be "):
        LogOptions(**{name: "perhaps"})  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    "location",
    [
        "nonsense://x",
        "postgresql+nodriver://x/y",
        "postgresql+asyncpg://x/y",
        "sqlite+aiosqlite:///x",
        "mysql://x/y",
        "://",
    ],
)
def test_an_unknown_kind_of_database_is_refused(location: str) -> None:
    with pytest.raises(LogUnavailable):
        EventLog.open(location)


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(LogUnavailable, match="postgres extra") as refused:
        EventLog.open("postgresql+psycopg://name:secret@/log")

    assert "secret" not in str(refused.value)


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
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_newer_log_is_refused(location: str, log: EventLog) -> None:
    with log._engine.begin() as connection:
        connection.execute(text(f"UPDATE {BASE_TABLE} SET version_num = '9999'"))

    with pytest.raises(ForeignLog, match="newer"):
        EventLog.open(location)


def test_a_log_whose_schema_was_taken_back_is_made_again(location: str, log: EventLog) -> None:
    with log._engine.begin() as connection:
        downgrade(connection)

    with EventLog.open(location) as again:
        assert again.append("s", 0, small_session()) == 9


@pytest.mark.parametrize(
    ("pragma", "advice"),
    [("query_only = ON", "right to write"), ("max_page_count = 1", "Make space")],
)
def test_a_log_that_cannot_be_written_refuses_appends(tmp_path: Path, pragma: str, advice: str) -> None:
    with EventLog.open(str(tmp_path / "log.db"), STRICT) as log:
        log.engine.dispose()
        event.listen(log.engine, "connect", lambda connection, _: connection.execute(f"PRAGMA {pragma}"))
        with pytest.raises(LogUnavailable, match=advice):
            log.append("s", 0, records(*[started()] * 200))
        assert log.sessions() == []


def test_a_new_log_on_a_read_only_medium_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="this user may write"):
        EventLog.open(f"sqlite:///file:{tmp_path}/log.db?mode=ro&uri=true")


def test_a_new_log_in_a_folder_that_is_read_only_is_unavailable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("this user may write everywhere")

    with pytest.raises(LogUnavailable, match="this user may write"):
        EventLog.open(str(tmp_path / "log.db"))


def test_a_log_that_another_process_holds_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0)
    path = tmp_path / "log.db"
    with EventLog.open(str(path), STRICT) as log, sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogUnavailable, match="Another process"):
            log.append("s", 0, records(started()))
        other.execute("ROLLBACK")
        assert log.append("s", 0, records(started())) == 1


def test_a_damaged_log_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with EventLog.open(str(path)) as log:
        log.append("s", 0, records(*[started()] * 400))
    damaged = bytearray(path.read_bytes())
    damaged[8_192:] = b"\x5a" * (len(damaged) - 8_192)
    path.write_bytes(damaged)

    def use() -> None:
        with EventLog.open(str(path)) as log:
            list(log.events("s"))

    with pytest.raises(LogUnavailable, match="backup"):
        use()


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
from context_paging.service.log import EventLog, LogOptions
from tests.service.log.events import records, started
with EventLog.open(sys.argv[1], LogOptions(durability="sync")) as log:
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
