"""What the log costs: appends against raw sqlite3 and another recorder, calls with and without it, questions.

    python ops/bench/log.py [appends] [calls] [questions] [--events 2000] [--stored 1000000] [--json]

Everything is measured in one run, in turns, and every figure is the median of five; ratios are to the
baseline of the same run. The peer recorder is that of the package ``eventsourcing``; without it its rows are
left out.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from context_paging.domain.events import StatusPublished
from context_paging.service.log import EventLog, LogOptions, Record
from context_paging.service.log.chain import GENESIS

REPEATS = 5
BATCH = 100
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAYLOAD_BYTES = 1024


def record() -> Record:
    """An event whose payload is one kibibyte of JSON."""
    return Record(StatusPublished(text="x" * (PAYLOAD_BYTES - 11)), uuid4().hex, MOMENT)


def median_of(measures: dict[str, Callable[[Path], float]]) -> dict[str, float]:
    """Microseconds of each measure, all measured in turns."""
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(REPEATS):
        for name, measure in measures.items():
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                taken[name].append(measure(Path(folder)) * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def timed(work: Callable[[], None], events: int) -> float:
    """Seconds an event."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / events


def raw(path: Path) -> sqlite3.Connection:
    """The log's own events table and pragmas, with nothing else, through sqlite3."""
    with EventLog.open(str(path / "shape.db")), closing(sqlite3.connect(path / "shape.db")) as shape:
        (table,) = shape.execute("SELECT sql FROM sqlite_master WHERE name = 'events'").fetchone()
    connection = sqlite3.connect(path / "raw.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(table)
    return connection


INSERT = f"INSERT INTO events VALUES ({', '.join('?' * 15)})"


def rows(events: int) -> list[tuple[Any, ...]]:
    """Rows as the log would write them, ready made."""
    payload = '{"text":"' + "x" * (PAYLOAD_BYTES - 11) + '"}'
    moment = "2026-03-01 12:00:00.000000"
    return [
        (
            None,
            "s",
            sequence,
            uuid4().hex,
            "status-published",
            2,
            moment,
            None,
            payload,
            202603,
            None,
            "0" * 16,
            GENESIS,
            GENESIS,
            bytes(16),
        )
        for sequence in range(1, events + 1)
    ]


def raw_each(events: int) -> Callable[[Path], float]:
    """One transaction an event."""

    def measure(path: Path) -> float:
        ready = rows(events)
        with closing(raw(path)) as connection:

            def work() -> None:
                for row in ready:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute(INSERT, row)
                    connection.execute("COMMIT")

            return timed(work, events)

    return measure


def raw_batches(events: int) -> Callable[[Path], float]:
    """``executemany`` in transactions of a hundred events."""

    def measure(path: Path) -> float:
        ready = rows(events)
        with closing(raw(path)) as connection:

            def work() -> None:
                for first in range(0, events, BATCH):
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(INSERT, ready[first : first + BATCH])
                    connection.execute("COMMIT")

            return timed(work, events)

    return measure


def appended(events: int, durability: str, batch: int) -> Callable[[Path], float]:
    """Appends of ``batch`` events to the log, until the database has them all."""

    def measure(path: Path) -> float:
        ready = [record() for _ in range(events + 1)]
        with EventLog.open(str(path / "log.db"), LogOptions(durability=durability)) as log:
            log.append("s", 0, ready[:1])

            def work() -> None:
                sequence = 1
                for first in range(1, events + 1, batch):
                    sequence = log.append("s", sequence, ready[first : first + batch])
                log.flush()

            return timed(work, events)

    return measure


def peer(events: int, batch: int) -> Callable[[Path], float] | None:
    """The application recorder of ``eventsourcing`` on SQLite."""
    try:
        from eventsourcing.persistence import StoredEvent
        from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore
    except ImportError:
        return None

    def measure(path: Path) -> float:
        recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(path / "peer.db")))
        recorder.create_table()
        originator, state = uuid4(), b"x" * PAYLOAD_BYTES
        ready = [StoredEvent(originator, number, "StatusPublished", state) for number in range(events)]

        def work() -> None:
            for first in range(0, events, batch):
                recorder.insert_events(ready[first : first + batch])

        return timed(work, events)

    return measure


def appends(events: int) -> dict[str, Any]:
    """Figures of appends in microseconds an event, and the ratios that must hold."""
    measures = {
        "raw, one event a transaction": raw_each(events),
        "sync": appended(events, "sync", 1),
        "raw, executemany of 100": raw_batches(events * 5),
        "group, appends of 1": appended(events * 5, "group", 1),
        "group, appends of 100": appended(events * 5, "group", BATCH),
    }
    for name, made in (("peer, 1", peer(events, 1)), ("peer, 100", peer(events * 5, BATCH))):
        if made is not None:
            measures[name] = made
    figures = median_of(measures)
    ratios = {
        "sync to raw (0.7)": figures["raw, one event a transaction"] / figures["sync"],
        "group, appends of 1, to raw (0.5)": figures["raw, executemany of 100"]
        / figures["group, appends of 1"],
        "group, appends of 100, to raw (0.5)": figures["raw, executemany of 100"]
        / figures["group, appends of 100"],
    }
    if "peer, 1" in figures:
        ratios["sync to peer (1)"] = figures["peer, 1"] / figures["sync"]
        ratios["group, appends of 1, to peer (1)"] = figures["peer, 100"] / figures["group, appends of 1"]
        ratios["group, appends of 100, to peer (1)"] = figures["peer, 100"] / figures["group, appends of 100"]
    return {"microseconds an event": figures, "ratios": ratios}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=2_000)
    options = parser.parse_args()
    print(json.dumps(appends(options.events), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
