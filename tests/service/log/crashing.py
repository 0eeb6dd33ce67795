"""Killing a writer again and again, and looking at what it left: ``python -m tests.service.log.crashing``.

A child opens the log, goes on with its sessions and tells every event that was acknowledged. The parent
kills it at a random moment and compares. Everything runs in a process of its own, because only one without
threads may fork.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from datetime import UTC, datetime
from uuid import uuid4

from context_paging.domain.events import StatusPublished
from context_paging.service.log import EventLog, LogOptions, Record

SESSIONS = ("a", "b", "c")
LONGEST_SECONDS = 0.06


def write(location: str, durability: str, acknowledged: int, seed: int) -> None:
    """Append for ever; each acknowledged event is a line: session, sequence, text."""
    chance = random.Random(seed)
    with EventLog.open(location, LogOptions(durability=durability)) as log:
        sequences = {session: log.last_sequence(session) for session in SESSIONS}
        os.write(acknowledged, b"ready\n")
        while True:
            told = []
            for _ in range(chance.randint(1, 4)):
                session = chance.choice(SESSIONS)
                records = [
                    Record(StatusPublished(text=uuid4().hex), uuid4().hex, datetime.now(UTC))
                    for _ in range(chance.randint(1, 3))
                ]
                first = sequences[session]
                sequences[session] = log.append(session, first, records)
                for place, record in enumerate(records, first + 1):
                    assert isinstance(record.event, StatusPublished)
                    told.append(f"{session} {place} {record.event.text}\n")
                if durability != "group":
                    os.write(acknowledged, "".join(told).encode())
                    told.clear()
            if durability == "group":
                log.flush()
                os.write(acknowledged, "".join(told).encode())


def round_of(location: str, durability: str, chance: random.Random) -> dict[tuple[str, int], str]:
    """Start a writer, kill it, and return what it had acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            write(location, durability, writing, chance.randrange(2**32))
        finally:
            os._exit(3)
    os.close(writing)
    with os.fdopen(reading) as lines:
        # Now and then it dies while it opens the log, and may be draining the spool of the one before.
        if chance.random() < 0.8:
            assert lines.readline() == "ready\n"
        time.sleep(chance.random() * LONGEST_SECONDS)
        os.kill(child, signal.SIGKILL)
        # A line that the end cut short was not told.
        told = [line.split() for line in lines if line.endswith("\n") and line != "ready\n"]
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the writer ended by itself"
    return {(session, int(place)): text for session, place, text in told}


def stored(log: EventLog) -> dict[tuple[str, int], str]:
    """Everything in the log."""
    found: dict[tuple[str, int], str] = {}
    for session in SESSIONS:
        for event in log.events(session):
            assert isinstance(event.event, StatusPublished)
            found[session, event.sequence] = event.event.text
    return found


def main(location: str, durability: str, rounds: int, seed: int) -> None:
    """Kill writers so many times; raises if anything acknowledged is missing or a chain is broken."""
    chance = random.Random(seed)
    acknowledged: dict[tuple[str, int], str] = {}
    total = 0
    for number in range(rounds):
        acknowledged.update(round_of(location, durability, chance))
        if number % 5 == 4 or number == rounds - 1:
            with EventLog.open(location) as log:
                found = stored(log)
                lost = {key: text for key, text in acknowledged.items() if found.get(key) != text}
                assert not lost, f"round {number}: lost or changed: {sorted(lost)[:5]}"
                assert len(set(found.values())) == len(found), "something is there twice"
                wrong = [result.finding for result in log.verify() if result.finding is not None]
                assert not wrong, wrong
                sessions, calls = log.sessions(), log.calls()
                log.rebuild()
                assert (log.sessions(), log.calls()) == (sessions, calls), (
                    "the read models do not fit the events"
                )
                total = len(found)
    print(f"{rounds} kills, {len(acknowledged)} acknowledged events, {total} stored, none lost, chains whole")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
