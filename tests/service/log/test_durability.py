"""When appends reach the database, and what happens when it is away."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from context_paging.domain.errors import InvalidEvent
from context_paging.domain.events import (
    AuditInterrupted,
    ModelSelected,
    SessionShutDown,
    SessionStarted,
    StatusPublished,
)
from context_paging.service.log import (
    Audit,
    Durability,
    EventLog,
    LogOptions,
    LogUnavailable,
    Record,
    SessionConflict,
    writer,
)
from context_paging.service.log.prepared import Append
from context_paging.service.log.read_models import NewEvent, SessionModel
from context_paging.service.log.spool import SpoolFile

from .events import aborted, records, requested, small_session, started

LATER = [Durability.SPOOL, Durability.GROUP]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for what does not come."""
    monkeypatch.setattr(writer, "RETRY_SECONDS", (0.05,))
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 2.0)


class Outage:
    """A database that refuses every write while it is told to."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self._committer: Any = None

    @contextmanager
    def now(self) -> Iterator[None]:
        """Refuse writes."""
        before = self.log._writer._make_committer
        committer = self.log._writer._committer

        def refuse(*_: object) -> None:
            raise sqlite3.OperationalError("the server is on holiday")

        class Refusing:
            commit = refuse

            def forget(self) -> None: ...

            def close(self) -> None: ...

        self.log._writer._committer = Refusing()  # type: ignore[assignment]
        try:
            yield
        finally:
            self.log._writer._committer = committer
            self.log._writer._make_committer = before


def status(number: int, session: str = "s") -> Record:
    """A small event that can be told from others."""
    return Record(StatusPublished(text=f"{number}"), f"{session}-{number}", records(started())[0].recorded_at)


def texts(log: EventLog, session: str = "s") -> list[str]:
    """The texts of the status events of a session, in order."""
    return [stored.event.text for stored in log.events(session) if isinstance(stored.event, StatusPublished)]


def count(path: Path) -> int:
    """How many events are committed in a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM events").fetchone()[0])


def spooled(folder: Path) -> list[Path]:
    """The spool files in a folder."""
    return sorted(folder.glob("*.spool"))


@pytest.mark.parametrize("durability", Durability)
def test_a_log_reads_what_it_was_given(location: str, durability: Durability) -> None:
    with EventLog.open(location, LogOptions(durability=durability)) as log:
        for number in range(300):
            assert log.append("s", number, [status(number)]) == number + 1

        assert texts(log) == [str(number) for number in range(300)]
        assert log.session("s").last_sequence == 300


def test_a_group_is_committed_soon_without_being_asked(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with EventLog.open(str(path)) as log:
        log.append("s", 0, [status(0)])
        for number in range(1, 50):
            log.append("s", number, [status(number)])
        deadline = time.monotonic() + 5
        while count(path) < 50 and time.monotonic() < deadline:
            time.sleep(0.01)

        assert count(path) == 50


@pytest.mark.parametrize("durability", LATER)
@pytest.mark.parametrize("last", [(aborted(), "c"), SessionShutDown()], ids=["abort", "shutdown"])
def test_an_abort_and_a_shutdown_wait_for_the_commit(
    tmp_path: Path, durability: Durability, last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LINGER_SECONDS", 60)
    path = tmp_path / "log.db"
    with EventLog.open(str(path), LogOptions(durability=durability)) as log:
        log.append("s", 0, records(started()))
        log.append("s", 1, records((requested(), "c"), first=2))
        assert count(path) == 1

        log.append("s", 2, records(last, first=3))

        assert count(path) == 3


def test_flush_waits_for_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LINGER_SECONDS", 60)
    path = tmp_path / "log.db"
    with EventLog.open(str(path)) as log:
        for number in range(3):
            log.append("s", number, [status(number)])
        assert count(path) == 1

        log.flush()

        assert count(path) == 3


END = """
import os, signal, sys, time
from context_paging.service.log import EventLog, LogOptions, writer
from tests.service.log.test_durability import status
writer.LINGER_SECONDS = 60
log = EventLog.open(sys.argv[1], LogOptions(durability=sys.argv[3]))
for number in range(20):
    log.append("s", number, [status(number)])
print("appended", flush=True)
if sys.argv[2] == "wait":
    time.sleep(60)
if sys.argv[2] == "error":
    raise SystemExit("for some reason")
"""


def run(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs a script."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("end", ["fall", "error"])
def test_the_end_of_the_interpreter_commits_what_is_queued(
    tmp_path: Path, durability: Durability, end: str
) -> None:
    path = tmp_path / "log.db"
    _, errors = (process := run(END, path, end, durability)).communicate(timeout=60)

    assert process.returncode == (1 if end == "error" else 0), errors
    assert count(path) == 20


@pytest.mark.parametrize("durability", Durability)
def test_sigterm_commits_what_is_queued(tmp_path: Path, durability: Durability) -> None:
    path = tmp_path / "log.db"
    process = run(END, path, "wait", durability)
    assert process.stdout is not None
    assert process.stdout.readline() == "appended\n"

    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)

    # With nothing queued, nothing has to be done, and the signal ends the process as ever.
    assert process.returncode in ((143,) if durability is not Durability.SYNC else (143, -signal.SIGTERM)), (
        errors
    )
    assert count(path) == 20


def test_a_handler_of_the_host_for_sigterm_is_left_alone(tmp_path: Path) -> None:
    def handler(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with EventLog.open(str(tmp_path / "log.db")) as log:
            for number in range(3):
                log.append("s", number, [status(number)])
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_spool_survives_a_kill_and_is_drained_when_the_log_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    process = run(END, path, "wait", "spool")
    assert process.stdout is not None
    assert process.stdout.readline() == "appended\n"
    process.kill()
    process.communicate(timeout=60)
    assert count(path) == 1

    with EventLog.open(str(path)) as log:
        assert texts(log) == [str(number) for number in range(20)]
        assert spooled(tmp_path / "log.db.spool") == []
        assert all(result.finding is None for result in log.verify())


def test_appends_wait_for_a_database_that_does_not_keep_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUEUED_EVENTS", 10)
    monkeypatch.setattr(writer, "GROUP_EVENTS", 5)
    with EventLog.open(str(tmp_path / "log.db")) as log:
        most = 0
        for number in range(500):
            log.append("s", number, [status(number)])
            most = max(most, log._writer._queued_events)

        assert most <= 10
        assert len(texts(log)) == 500


@pytest.mark.parametrize("durability", Durability)
def test_while_the_database_is_away_appends_go_to_the_spool_and_then_to_it_in_order(
    location: str, durability: Durability, tmp_path: Path
) -> None:
    options = LogOptions(durability=durability, spool=tmp_path / "spool")
    with EventLog.open(location, options) as log:
        for number in range(5):
            log.append("s", number, [status(number)])
        log.append("t", 0, [status(0, "t")])
        log.flush()
        with Outage(log).now():
            for number in range(5, 25):
                assert log.append("s", number, [status(number)]) == number + 1
            with pytest.raises(LogUnavailable, match="holiday"):
                log.flush()
            assert len(spooled(tmp_path / "spool")) == 1
        log.flush()
        for number in range(25, 30):
            log.append("s", number, [status(number)])

        assert texts(log) == [str(number) for number in range(30)]
        assert texts(log, "t") == ["0"]
        assert all(result.finding is None for result in log.verify())
    assert spooled(tmp_path / "spool") == []


def test_a_log_that_is_closed_while_the_database_is_away_is_drained_by_the_next(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    log = EventLog.open(path)
    log.append("s", 0, [status(0)])
    with Outage(log).now():
        for number in range(1, 10):
            log.append("s", number, [status(number)])
        log.close()
    assert len(spooled(tmp_path / "log.db.spool")) == 1

    with EventLog.open(path) as again:
        assert texts(again) == [str(number) for number in range(10)]
    assert spooled(tmp_path / "log.db.spool") == []


@pytest.mark.parametrize("committed", range(11))
def test_a_drain_that_is_interrupted_writes_nothing_twice(tmp_path: Path, committed: int) -> None:
    path, copy = str(tmp_path / "log.db"), tmp_path / "copy"
    log = EventLog.open(path, LogOptions(durability="sync"))
    log.append("s", 0, [status(0)])
    with Outage(log).now():
        for number in range(1, 11):
            log.append("s", number, [status(number)])
        log.close()
    (file,) = spooled(tmp_path / "log.db.spool")
    copy.write_bytes(file.read_bytes())
    # What a drain had written before it was killed: the file is still whole.
    with EventLog.open(path, LogOptions(durability="sync", spool=tmp_path / "elsewhere")) as other:
        for number in range(1, committed):
            other.append("s", number, [status(number)])

    with EventLog.open(path) as again:
        assert texts(again) == [str(number) for number in range(11)]
    file.write_bytes(copy.read_bytes())
    with EventLog.open(path) as again:
        assert texts(again) == [str(number) for number in range(11)]
        assert all(result.finding is None for result in again.verify())


def test_of_many_that_open_the_log_one_drains_the_spool(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    log = EventLog.open(path)
    log.append("s", 0, [status(0)])
    with Outage(log).now():
        for number in range(1, 200):
            log.append("s", number, [status(number)])
        log.close()
    errors: list[Exception] = []

    def open_it() -> None:
        try:
            with EventLog.open(path):
                pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    with EventLog.open(path) as again:
        assert texts(again) == [str(number) for number in range(200)]
    assert list((tmp_path / "log.db.spool").glob("*.rejected")) == []


def test_who_opens_the_log_while_another_drains_its_spool_finds_everything(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    _abandoned(path, 3_000)
    scripts = [
        run(
            "import sys\n"
            "from context_paging.service.log import EventLog\n"
            "from tests.service.log.test_durability import status\n"
            "with EventLog.open(sys.argv[1]) as log:\n"
            "    last = log.last_sequence('s')\n"
            "    assert last >= 3_001, last\n"
            "    log.append(sys.argv[2], 0, [status(0, sys.argv[2])])\n",
            path,
            f"other-{number}",
        )
        for number in range(4)
    ]
    for script in scripts:
        _, errors = script.communicate(timeout=60)
        assert script.returncode == 0, errors

    with EventLog.open(path) as log:
        assert texts(log) == [str(number) for number in range(3_001)]
    assert list((tmp_path / "log.db.spool").glob("*.rejected")) == []


@pytest.mark.parametrize("cut", [1, 5, 12, 13, 40])
def test_a_frame_that_was_cut_short_is_left_out(tmp_path: Path, cut: int) -> None:
    path = str(tmp_path / "log.db")
    file = _abandoned(path, 4)
    file.write_bytes(file.read_bytes()[:-cut])

    with EventLog.open(path) as log:
        assert texts(log) == ["0", "1", "2", "3"]
    assert spooled(tmp_path / "log.db.spool") == []


def test_a_damaged_frame_is_told_and_kept_and_the_others_are_taken_as_far_as_they_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "log.db")
    file = _abandoned(path, 4)
    content = bytearray(file.read_bytes())
    content[content.rfind(b'"2"')] ^= 0xFF
    file.write_bytes(content)

    with caplog.at_level(logging.WARNING), EventLog.open(path) as log:
        assert texts(log)[:2] == ["0", "1"]

    assert "log.spool.damaged" in caplog.text
    kept = {kept.suffix for kept in (tmp_path / "log.db.spool").iterdir()}
    assert ".damaged" in kept


def test_spool_files_of_other_logs_and_of_live_writers_are_left_alone(tmp_path: Path) -> None:
    options = LogOptions(durability="spool", spool=tmp_path / "spool")
    with EventLog.open(str(tmp_path / "a.db"), options) as log:
        log.append("s", 0, [status(0)])
        live = log._writer
        with Outage(log).now():
            log.append("s", 1, [status(1)])
            with EventLog.open(str(tmp_path / "b.db"), options) as other:
                assert other.sessions() == []
            with EventLog.open(str(tmp_path / "a.db"), options) as same:
                assert texts(same) == ["0"]
            assert live._backlog._spool is not None
            assert live._backlog._spool.path.exists()
        log.flush()
        assert texts(log) == ["0", "1"]


def test_what_another_writer_kept_out_is_told_and_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with EventLog.open(path) as log, EventLog.open(path, LogOptions(durability="sync")) as other:
        log.append("s", 0, [status(0)])
        other.append("s", 1, [status(100)])
        log.append("s", 1, [status(1)])

        with pytest.raises(SessionConflict):
            log.flush()

        log.flush()
        (kept,) = (tmp_path / "log.db.spool").glob("*.rejected")
        assert b'{"text":"1"}' in kept.read_bytes()
        assert texts(log) == ["0", "100"]
    assert kept.exists()


def test_a_conflict_that_nobody_asked_for_is_told_at_the_next_append(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with EventLog.open(path) as log, EventLog.open(path, LogOptions(durability="sync")) as other:
        log.append("s", 0, [status(0)])
        log.append("t", 0, [status(0, "t")])
        other.append("s", 1, [status(100)])
        log.append("s", 1, [status(1)])
        log.append("t", 1, [status(1, "t")])
        log.settle()

        assert log.append("t", 2, [status(2, "t")]) == 3
        with pytest.raises(SessionConflict):
            log.append("s", 2, [status(2)])
        assert texts(log, "t") == ["0", "1", "2"]


NOWHERE: Any = Path("/proc/nowhere")


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("spool", [False, NOWHERE], ids=["none", "unwritable"])
def test_when_nothing_is_durable_a_required_audit_refuses_the_event(
    tmp_path: Path, durability: Durability, spool: Any
) -> None:
    options = LogOptions(durability=durability, audit=Audit.REQUIRED, spool=spool)
    with EventLog.open(str(tmp_path / "log.db"), options) as log:
        log.append("s", 0, [status(0)])
        with Outage(log).now():
            if durability is Durability.GROUP:
                log.append("s", 1, [status(1)])
                log.settle()
            with pytest.raises(LogUnavailable, match="holiday"):
                log.append("s", 2 if durability is Durability.GROUP else 1, [status(2)])
        time.sleep(0.1)
        log.flush()

        # What was taken in memory before it was known is not lost.
        assert texts(log) == (["0", "1"] if durability is Durability.GROUP else ["0"])
        assert log.append("s", len(texts(log)), [status(3)]) == len(texts(log))


@pytest.mark.parametrize("durability", Durability)
def test_a_best_effort_audit_goes_on_and_tells_how_many_events_are_missing(
    tmp_path: Path, durability: Durability
) -> None:
    options = LogOptions(durability=durability, audit=Audit.BEST_EFFORT, spool=False)
    with EventLog.open(str(tmp_path / "log.db"), options) as log:
        assert log.append("s", 0, [status(0)]) == 1
        with Outage(log).now():
            sequence = log.append("s", 1, records(aborted(), first=2))
            assert sequence == 1
            assert log.append("s", 1, [status(2), status(3)]) == 1
        time.sleep(0.1)
        with pytest.raises(LogUnavailable) if log._writer.away else _nothing():
            log.flush()
        time.sleep(0.1)
        last = log.append("s", 1, [status(4)])
        log.flush()

        stored = [event.event for event in log.events("s")]
        assert last == 3
        assert isinstance(stored[1], AuditInterrupted)
        assert stored[1].events == 3
        assert "holiday" in stored[1].reason
        assert texts(log) == ["0", "4"]


def test_an_event_that_cannot_be_stored_is_told_at_once(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db"), LogOptions(durability="sync")) as log:
        log.append("s", 0, records(started()))
        with pytest.raises(InvalidEvent):
            log.append("s", 1, records(ModelSelected(model=object()), first=2))  # type: ignore[arg-type]
        assert log.append("s", 1, [status(1)]) == 2


@pytest.mark.parametrize("durability", LATER)
def test_an_event_that_cannot_be_stored_does_not_stop_the_others(
    tmp_path: Path, durability: Durability
) -> None:
    with EventLog.open(str(tmp_path / "log.db"), LogOptions(durability=durability)) as log:
        for session in ("s", "t"):
            log.append(session, 0, records(started(), session=session))
        bad = records(ModelSelected(model=object()), first=2)  # type: ignore[arg-type]
        with pytest.raises(InvalidEvent):
            log.append("s", 1, bad)
        log.append("t", 1, [status(1, "t")])
        log.flush()
        log.append("t", 2, [status(2, "t")])

        assert texts(log, "t") == ["1", "2"]
        assert log.session("s").last_sequence == 1


@pytest.mark.parametrize("durability", LATER)
def test_a_fault_of_the_code_itself_takes_one_append_and_not_the_log(
    tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(self: SessionModel, session_id: str, label: str | None, events: Sequence[NewEvent]) -> None:
        if any(event.event == StatusPublished(text="13") for event in events):
            raise RuntimeError("a stone")
        fold(self, session_id, label, events)

    fold = SessionModel.fold
    monkeypatch.setattr(SessionModel, "fold", stumble)
    with EventLog.open(str(tmp_path / "log.db"), LogOptions(durability=durability)) as log:
        log.append("s", 0, [status(0)])
        log.append("t", 0, [status(0, "t")])
        log.append("s", 1, [status(13)])
        log.append("t", 1, [status(1, "t")])
        with pytest.raises(InvalidEvent, match="stone"):
            log.flush()
        log.append("t", 2, [status(2, "t")])
        log.flush()

        assert texts(log, "t") == ["0", "1", "2"]
        assert texts(log) == ["0"]
        assert log.rebuild() == 2


def test_flush_waits_for_what_waited_in_memory_while_the_database_was_away(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with EventLog.open(str(path), LogOptions(spool=False)) as log:
        log.append("s", 0, [status(0)])
        with Outage(log).now():
            for number in range(1, 500):
                log.append("s", number, [status(number)])
            log.settle()

        log.flush()

        assert count(path) == 500


def test_a_forked_child_reads_with_connections_of_its_own(postgres: str, tmp_path: Path) -> None:
    with EventLog.open(postgres, LogOptions(spool=tmp_path / "spool")) as log:
        log.append("s", 0, [status(0)])
        log.flush()
        assert len(log.sessions()) == 1
        child = os.fork()
        wrong = 0
        try:
            for _ in range(100):
                wrong += len(log.sessions()) != 1
        except LogUnavailable:
            wrong += 1
        if child == 0:
            os._exit(wrong)
        _, wait_status = os.waitpid(child, 0)

        assert (wrong, os.waitstatus_to_exitcode(wait_status)) == (0, 0)


def test_what_an_index_cannot_hold_takes_one_append_and_not_the_log(postgres: str, tmp_path: Path) -> None:
    wide = "".join(chr(0x20000 + 7919 * number % 40000) for number in range(500))
    options = LogOptions(spool=tmp_path / "spool")
    with EventLog.open(postgres, options) as log:
        log.append("ok", 0, [status(0, "ok")])
        with pytest.raises(InvalidEvent, match="index"):
            log.append("s", 0, records(SessionStarted(reason="new", host=wide), (requested(), wide)))
        for number in range(1, 5):
            log.append("ok", number, [status(number, "ok")])
        log.flush()
        assert texts(log, "ok") == ["0", "1", "2", "3", "4"]


def test_the_reason_of_a_refusal_is_not_hidden_by_what_followed(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db")) as log:
        log.append("s", 0, [status(0)])
        with pytest.raises(InvalidEvent, match="500"):
            log.append("s", 1, [status(1)._replace(event_id="x" * 501)])
        assert log.append("s", 1, [status(1)]) == 2
        log.flush()


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = EventLog.open(str(tmp_path / "log.db"))
    log.close()
    log.close()

    with pytest.raises(LogUnavailable, match="closed"):
        log.append("s", 0, [status(0)])


def test_a_forked_child_has_a_log_of_its_own(location: str) -> None:
    with EventLog.open(location, LogOptions(durability="spool")) as log:
        for number in range(5):
            log.append("s", number, [status(number)])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for number in range(5):
                    log.append("child", number, [status(number, "child")])
                log.flush()
                code = 0
            finally:
                os._exit(code)
        for number in range(5, 10):
            log.append("s", number, [status(number)])
        _, wait_status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(wait_status) == 0
        assert texts(log) == [str(number) for number in range(10)]
        assert texts(log, "child") == [str(number) for number in range(5)]
        assert all(result.finding is None for result in log.verify())


def test_sessions_of_many_threads_are_committed_in_groups(location: str) -> None:
    commits: list[int] = []
    with EventLog.open(location) as log:
        names = [f"session-{number}" for number in range(8)]
        for name in names:
            log.append(name, 0, [status(0, name)])
        committer = log._writer._committer
        assert committer is not None
        commit = committer.commit

        def counted(appends: Sequence[Append]) -> list[int | SessionConflict]:
            commits.append(len(appends))
            return commit(appends)

        committer.commit = counted  # type: ignore[method-assign]

        def write(name: str) -> None:
            for number in range(1, 50):
                log.append(name, number, [status(number, name)])

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.flush()

        assert all(texts(log, name) == [str(number) for number in range(50)] for name in names)
        assert sum(commits) == 8 * 49
        assert len(commits) < 8 * 49 / 10


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _abandoned(path: str, last: int) -> Path:
    """A spool file with the events from 1 to ``last + 1`` of a session whose first is in the database."""
    with EventLog.open(path, LogOptions(durability="sync")) as log:
        log.append("s", 0, [status(0)])
        log_id, encode = log.id, log._encode
        file = SpoolFile.make(Path(f"{path}.spool"), log_id)
        for number in range(1, last + 1):
            file.write(Append("s", number, None, [status(number)], encode), sync=True)
        file.close()
    return file.path


def test_small_sessions_fit_the_read_models_whatever_the_durability(location: str) -> None:
    with EventLog.open(location) as log:
        written = small_session()
        for number, record in enumerate(written):
            log.append("s", number, [record])
        log.flush()
        sessions, calls = log.sessions(), log.calls()
        log.rebuild()

        assert (log.sessions(), log.calls()) == (sessions, calls)
        assert [(call.sequence, call.last_sequence) for call in calls] == [(3, 5), (6, 7), (8, 9)]
        assert {(call.host, call.model) for call in calls} == {("tests", "m-1")}


def test_the_name_of_a_log_in_messages_has_no_password() -> None:
    with pytest.raises(LogUnavailable) as refused:
        EventLog.open("postgresql+psycopg://name:secret@localhost:1/log?connect_timeout=1")

    assert "secret" not in str(refused.value)


def test_events_of_a_connection_are_not_left_on_the_engine(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db"), LogOptions(durability="sync")) as log:
        began: list[int] = []
        event.listen(log.engine, "connect", lambda *_: began.append(1))
        for number in range(20):
            log.append("s", number, [status(number)])

        assert len(began) <= 1
