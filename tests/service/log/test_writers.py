"""Several writers at once: threads, processes, and a rebuild between them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from context_paging.service.log import Durability, EventLog, LogOptions, SessionConflict

from .events import records, requested, started

SEQUENCES = 25


@pytest.mark.parametrize("durability", Durability)
def test_of_many_threads_exactly_one_wins_each_sequence(
    location: str, log: EventLog, durability: Durability
) -> None:
    wins: list[tuple[int, str]] = []
    barrier = threading.Barrier(4)

    def write(name: str) -> None:
        with EventLog.open(location, LogOptions(durability=durability)) as own:
            barrier.wait()
            wins.extend((sequence, name) for sequence in compete(own, name))

    _run([partial(write, f"writer-{number}") for number in range(4)])

    _assert_one_winner_each(log, wins)


COMPETE = """
import sys
from context_paging.service.log import EventLog, LogOptions
from tests.service.log.test_writers import compete
with EventLog.open(sys.argv[1], LogOptions(durability=sys.argv[3])) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    print(*compete(log, sys.argv[2]))
"""


@pytest.mark.parametrize("durability", Durability)
def test_of_two_processes_exactly_one_wins_each_sequence(
    location: str, log: EventLog, durability: Durability
) -> None:
    names = ["writer-0", "writer-1"]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", COMPETE, location, name, durability],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    answers = [writer.communicate(timeout=120)[0] for writer in writers]

    assert [writer.returncode for writer in writers] == [0, 0]
    wins = [
        (int(sequence), name)
        for name, answer in zip(names, answers, strict=True)
        for sequence in answer.split()
    ]
    _assert_one_winner_each(log, wins)


def test_threads_share_a_log_each_with_its_own_session(log: EventLog) -> None:
    _append_in_threads(log)

    assert [session.last_sequence for session in log.sessions()] == [SEQUENCES] * 4


def test_threads_share_a_log_in_memory() -> None:
    with EventLog.open() as log:
        _append_in_threads(log)

        assert [session.last_sequence for session in log.sessions()] == [SEQUENCES] * 4


def test_a_rebuild_between_appends_loses_nothing(location: str, log: EventLog) -> None:
    writing = threading.Event()
    writing.set()

    def rebuild() -> None:
        with EventLog.open(location) as own:
            while writing.is_set():
                own.rebuild()
                time.sleep(0.01)

    def write() -> None:
        try:
            _append_in_threads(log)
        finally:
            writing.clear()

    _run([rebuild, write])

    sessions, calls = log.sessions(), log.calls()
    assert [(session.label, session.calls) for session in sessions] == [("shared", SEQUENCES)] * 4
    log.rebuild()
    assert (log.sessions(), log.calls()) == (sessions, calls)


def compete(log: EventLog, name: str) -> list[int]:
    """Try to append each event of the session; the sequences before those that this writer won."""
    won = []
    for sequence in range(SEQUENCES):
        record = records(started(), first=sequence + 1)[0]
        try:
            log.append("s", sequence, [record._replace(event_id=f"{name}-{record.event_id}")])
            # With the durability "group" it is the commit that decides.
            log.flush()
            won.append(sequence)
        except SessionConflict:
            while log.session("s").last_sequence <= sequence:
                pass
    return won


def _append_in_threads(log: EventLog) -> None:
    def write(name: str) -> None:
        for sequence in range(SEQUENCES):
            call = (requested(), f"{name}-call-{sequence}")
            log.append(name, sequence, records(call, first=sequence + 1, session=name), label="shared")

    _run([partial(write, f"session-{number}") for number in range(4)])


def _run(tasks: list[Callable[[], None]]) -> None:
    errors: list[Exception] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def _assert_one_winner_each(log: EventLog, wins: list[tuple[int, str]]) -> None:
    assert sorted(sequence for sequence, _ in wins) == list(range(SEQUENCES))
    stored = {event.sequence - 1: event.event_id for event in log.events("s")}
    assert all(stored[sequence].startswith(name) for sequence, name in wins)
