"""Nothing acknowledged is lost: killed writers, a full disk, a server that is stopped under load."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_paging.domain.events import AuditInterrupted
from context_paging.service.log import Audit, Durability, EventLog, LogOptions, LogUnavailable, writer

from .events import records, started
from .servers import running_server
from .test_durability import spooled, status, texts

KILLS = 70
"""For each durability: 210 on each engine."""


@pytest.mark.parametrize("durability", Durability)
def test_nothing_acknowledged_is_lost_when_writers_are_killed(location: str, durability: Durability) -> None:
    command = [sys.executable, "-m", "tests.service.log.crashing", location, durability, str(KILLS), "2026"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert f"{KILLS} kills" in done.stdout
    print(done.stdout)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two mebibytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system may not be mounted here: {mounted.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("durability", Durability)
def test_a_full_disk_loses_nothing_that_was_acknowledged(
    small_disk: Path, tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", (0.05,))
    path = small_disk / "log.db"
    options = LogOptions(durability=durability, audit=Audit.REQUIRED, key_file=tmp_path / "key")
    with EventLog.open(str(path), options) as log:
        sequence, refused = _until_refused(log)
        assert "disk" in str(refused)
        assert sequence > 50
        # Room is made by somebody else's file, as it is in life: nothing of the log's own may be removed.
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        time.sleep(0.1)
        log.flush()
        for _ in range(10):
            sequence = log.append("s", sequence, [status(sequence)])
    with EventLog.open(str(path), options) as log:
        assert texts(log) == [str(number) for number in range(sequence)]
        assert all(result.finding is None for result in log.verify())
    assert spooled(small_disk / "log.db.spool") == []


def test_a_full_disk_is_spooled_to_another(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", (0.05,))
    options = LogOptions(audit=Audit.REQUIRED, spool=tmp_path / "spool", key_file=tmp_path / "key")
    with EventLog.open(str(small_disk / "log.db"), options) as log:
        sequence = 0
        while sequence < 20_000:
            sequence = log.append("s", sequence, [status(sequence)])
        log.settle()
        assert log._writer.away is not None
        subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
        time.sleep(0.2)
        log.flush()

        assert texts(log) == [str(number) for number in range(20_000)]
        assert all(result.finding is None for result in log.verify())


@pytest.mark.parametrize("durability", Durability)
def test_a_server_that_is_stopped_under_load_costs_no_event(
    tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", (0.05, 0.2))
    options = LogOptions(durability=durability, audit=Audit.REQUIRED, spool=tmp_path / "spool")
    names = [f"session-{number}" for number in range(4)]
    written = dict.fromkeys(names, 0)
    stop = threading.Event()
    errors: list[BaseException] = []
    with running_server() as server, EventLog.open(server.url, options) as log:

        def write(name: str) -> None:
            try:
                while not stop.is_set():
                    written[name] = log.append(name, written[name], [status(written[name], name)])
                    time.sleep(0.001)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for mode in ("immediate", "fast"):
            time.sleep(0.5)
            server.stop(mode)
            before = dict(written)
            time.sleep(0.7)
            # Nobody had to wait for the server.
            assert all(written[name] > before[name] for name in names)
            server.start()
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        _flushed(log)

        for name in names:
            assert texts(log, name) == [str(number) for number in range(written[name])]
        assert all(result.finding is None for result in log.verify())


def test_a_server_that_is_away_from_the_beginning_is_told(tmp_path: Path) -> None:
    with running_server() as server:
        with EventLog.open(server.url) as log:
            log.append("s", 0, records(started()))
        server.stop()

        with pytest.raises(LogUnavailable, match="server"):
            EventLog.open(server.url)


def _until_refused(log: EventLog) -> tuple[int, LogUnavailable]:
    sequence = 0
    while True:
        try:
            sequence = log.append("s", sequence, [status(sequence)])
        except LogUnavailable as error:
            return sequence, error


def _flushed(log: EventLog) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            return log.flush()
        except LogUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_an_audit_that_was_interrupted_by_a_full_disk_says_so(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", (0.05,))
    options = LogOptions(durability="sync", audit=Audit.BEST_EFFORT, key_file=tmp_path / "key")
    with EventLog.open(str(small_disk / "log.db"), options) as log:
        sequence, asked = 0, 0
        while sequence == asked:
            sequence = log.append("s", sequence, [status(asked)])
            asked += 1
        for _ in range(20):
            sequence = log.append("s", sequence, [status(asked)])
            asked += 1
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        time.sleep(0.2)
        for _ in range(5):
            sequence = log.append("s", sequence, [status(asked)])
            asked += 1
        log.flush()

        gaps = [event.event for event in log.events("s") if isinstance(event.event, AuditInterrupted)]
        assert len(texts(log)) + sum(gap.events for gap in gaps) == asked
        assert sum(gap.events for gap in gaps) >= 1
        assert log.session("s").last_sequence == sequence
