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
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from selection import SETTINGS, entries

from context_paging.domain.errors import SelectionErrorCode
from context_paging.domain.events import (
    BranchRefreshed,
    ContextAborted,
    ContextRequested,
    ContextSelected,
    Mode,
    Parts,
    Rule,
    StatusPublished,
    TurnEnded,
)
from context_paging.domain.messages import MessageRef
from context_paging.service.log import CallQuery, EventLog, LogOptions, Record
from context_paging.service.log.chain import GENESIS
from context_paging.service.postmortem import explain
from context_paging.service.session import Session

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


def calls(messages: int = 10_000, requests: int = 400) -> dict[str, Any]:
    """Microseconds of a context request at a session length, without a log and with each durability.

    Sessions take turns call by call, so that whatever else the machine does meets all of them.
    """
    stored = list(entries(messages))
    tail = [index for index, entry in enumerate(stored) if entry["message"]["role"] == "assistant"][
        -requests:
    ]
    medians: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for durability in ("group", "spool", "sync"):
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                location = str(Path(folder) / "log.db")
                with EventLog.open(location, LogOptions(durability=durability)) as log:
                    pair = {"without a log": Session("plain"), durability: Session("logged", sink=log)}
                    taken = in_turns(pair, stored, tail)
            without = statistics.median(taken["without a log"])
            medians.setdefault("without a log", []).append(without)
            medians.setdefault(durability, []).append(statistics.median(taken[durability]))
            medians.setdefault(f"{durability} adds", []).append(
                statistics.median(taken[durability]) / without - 1
            )
    figures = {name: statistics.median(values) for name, values in medians.items()}
    return {
        "microseconds a call": {n: v * 1e6 for n, v in figures.items() if not n.endswith("adds")},
        "ratios": {
            f"{name}{' (0.05)' if name == 'group adds' else ''}": value
            for name, value in figures.items()
            if name.endswith("adds")
        },
    }


def in_turns(
    sessions: dict[str, Session], stored: list[dict[str, Any]], tail: list[int]
) -> dict[str, list[float]]:
    """Seconds of each context request of each session."""
    taken: dict[str, list[float]] = {name: [] for name in sessions}
    for session in sessions.values():
        session.start("resume", global_settings=SETTINGS)
        session.append(stored[: tail[0]])
        session.context()
    order = list(sessions)
    for number, index in enumerate(tail):
        until = tail[number + 1] if number + 1 < len(tail) else len(stored)
        for name in order if number % 2 else order[::-1]:
            session = sessions[name]
            begin = time.perf_counter()
            session.context()
            taken[name].append(time.perf_counter() - begin)
            session.append(stored[index : index + 1])
            session.turn_end(stored[index]["id"])
            session.append(stored[index + 1 : until])
    return taken


CALL_EVENTS = 4
SESSION_CALLS = 250


def filled(log: EventLog, stored: int) -> list[str]:
    """Fill a log with sessions of 250 calls of four events, each fiftieth aborted; the ids of some calls."""
    ref = MessageRef("user", 1, bytes(32), 7)
    parts = Parts(3, 7, 0, 0, 0)
    numbers: dict[str, Any] = {"estimated_tokens": 10, "budget_tokens": 1000, "target_tokens": 625}
    request = ContextRequested(reused=0, appended=(ref,), resident_tokens=3, context_window=2000)
    select = ContextSelected(
        mode=Mode.WITHIN_BUDGET, rule=Rule.FITS, kept=((0, 0),), resident_tokens=3, parts=parts, **numbers
    )
    abort = ContextAborted(
        code=SelectionErrorCode.ACTIVE_REQUEST_TOO_LARGE, rule=Rule.REQUEST_OVER_BUDGET, message="too large"
    )
    refresh, ended = BranchRefreshed(kept=0), TurnEnded(response=ref)
    ids, serial = [], count()
    for number in range(stored // CALL_EVENTS // SESSION_CALLS):
        session_id, sequence = f"session-{number}", 0
        for place in range(SESSION_CALLS):
            call = f"{session_id}-{place}"
            moment = MOMENT + timedelta(seconds=60 * number + place)
            outcome = abort if (number + place) % 50 == 0 else select
            made = [
                Record(event, f"e{next(serial)}", moment, call)
                for event in (refresh, request, outcome, ended)
            ]
            sequence = log.append(session_id, sequence, made)
            if number % 7 == place % 7 == 0:
                ids.append(call)
    log.flush()
    return ids


def questions(stored: int, location: str | None) -> dict[str, Any]:
    """Microseconds of questions to a large log, beside the lookup of one event by its primary key."""
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        EventLog.open(location or str(Path(folder) / "log.db")) as log,
    ):
        begin = time.perf_counter()
        ids = filled(log, stored)
        filling = time.perf_counter() - begin
        some = iter(ids * 100)
        last = log.last_position()
        places = iter(number * 997 % last + 1 for number in count())

        def lookup() -> None:
            log.read_position(next(places))

        def postmortem() -> None:
            explain(log, log.call(next(some)))

        def aborts() -> None:
            assert len(log.find_calls(CallQuery(outcome="aborted"), limit=50).rows) == 50

        taken: dict[str, list[float]] = {"primary key": [], "postmortem": [], "last 50 aborts": []}
        for _ in range(REPEATS):
            for name, ask in zip(taken, (lookup, postmortem, aborts), strict=True):
                times = []
                for _ in range(40):
                    begin = time.perf_counter()
                    ask()
                    times.append(time.perf_counter() - begin)
                taken[name].append(statistics.median(times) * 1e6)
        figures = {name: statistics.median(values) for name, values in taken.items()}
        engine = log.engine.dialect.name
    return {
        "engine": engine,
        "events": stored,
        "seconds to fill": filling,
        "microseconds": figures,
        "ratios": {
            f"{name} to primary key (10 at most)": figures[name] / figures["primary key"]
            for name in ("postmortem", "last 50 aborts")
        },
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", choices=["appends", "calls", "questions"], default=[])
    parser.add_argument("--events", type=int, default=2_000, help="events of the appends")
    parser.add_argument("--stored", type=int, default=1_000_000, help="events of the log that is asked")
    parser.add_argument("--log", help="ask an empty log at this URL instead of a SQLite file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wanted = options.parts or ["appends", "calls", "questions"]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "appends": lambda: appends(options.events),
        "calls": calls,
        "questions": lambda: questions(options.stored, options.log),
    }
    report = {name: parts[name]() for name in wanted}
    if options.json:
        print(json.dumps(report))
        return 0
    for name, figures in report.items():
        print(f"\n{name}")
        for title, values in figures.items():
            if isinstance(values, dict):
                print(f"  {title}")
                for what, value in values.items():
                    print(f"    {what:<44} {value:>10,.3f}")
            else:
                print(f"  {title}: {values if isinstance(values, str) else f'{values:,.0f}'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
