"""Reading the log as it grows: each event once, in order, none left out."""

from __future__ import annotations

import threading
import time
from itertools import islice

import pytest
from sqlalchemy import text

from context_paging.service.log import EventLog, LogOptions, StoredEvent
from context_paging.service.log.tail import TailPlace

from .events import records, small_session, started
from .test_durability import status

INSERT = text(
    "INSERT INTO events (session_id, sequence, event_id, type, schema_version, recorded_at, payload, period) "
    "VALUES (:session, 1, :session, 'session-shut-down', 2, now(), '{}', 202603)"
)
TOUCH = text("INSERT INTO log_keys (key_id, first_used_at) VALUES (:session, now())")


def test_the_tail_is_everything_by_position(log: EventLog) -> None:
    log.append("s", 0, small_session())
    log.append("t", 0, small_session("t"))
    log.append("s", 9, records(started(), first=10))

    found = list(log.tail(follow=False))

    assert [event.position for event in found] == sorted(event.position for event in found)
    assert [(event.session_id, event.sequence) for event in found] == [
        *(("s", n) for n in range(1, 10)),
        *(("t", n) for n in range(1, 10)),
        ("s", 10),
    ]
    assert list(log.tail(found[4].position, follow=False)) == found[5:]
    assert list(log.tail(found[-1].position, follow=False)) == []
    assert log.last_position() == found[-1].position


def test_a_follower_sees_what_others_write(location: str, log: EventLog) -> None:
    def write() -> None:
        with EventLog.open(location, LogOptions(durability="sync")) as other:
            for number in range(30):
                other.append("s", number, [status(number)])
                time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    found = list(islice(log.tail(poll_seconds=0.01), 30))
    writer.join()

    assert [event.sequence for event in found] == list(range(1, 31))


def test_a_long_log_is_read_in_pieces(log: EventLog) -> None:
    for first in range(0, 3_000, 600):
        log.append("s", first, [status(number) for number in range(first, first + 600)])

    place, pieces = TailPlace(), []
    while True:
        found, place = log.read_on(place, 1_000)
        if not found and not place.doubted:
            break
        pieces.append(len(found))

    assert pieces == [1_000, 1_000, 1_000]


def test_on_postgresql_positions_that_become_visible_late_are_not_left_out(postgres: str) -> None:
    with EventLog.open(postgres) as log, log.engine.connect() as slow, log.engine.connect() as quick:
        slow.execute(TOUCH, {"session": "slow"})
        slow.execute(INSERT, {"session": "slow"})
        quick.execute(TOUCH, {"session": "quick"})
        quick.execute(INSERT, {"session": "quick"})
        quick.commit()

        found, place = log.read_on(TailPlace())
        assert found == []
        assert place.doubted == 2
        for _ in range(3):
            again, place = log.read_on(place)
            assert again == []
        slow.commit()
        found, place = _until_certain(log, place)

        assert [event.session_id for event in found] == ["slow", "quick"]


def test_on_postgresql_a_writer_that_began_later_but_drew_first_is_not_left_out(postgres: str) -> None:
    with EventLog.open(postgres) as log, log.engine.connect() as first, log.engine.connect() as second:
        # The one with the higher transaction id draws the lower position, and is still busy.
        first.execute(TOUCH, {"session": "first"})
        second.execute(TOUCH, {"session": "second"})
        second.execute(INSERT, {"session": "second"})
        first.execute(INSERT, {"session": "first"})
        first.commit()

        found, place = log.read_on(TailPlace())
        assert found == []
        again, place = log.read_on(place)
        assert again == []
        second.commit()
        found, place = _until_certain(log, place)

        assert [event.session_id for event in found] == ["second", "first"]


def test_on_postgresql_a_gap_that_was_rolled_back_is_passed(postgres: str) -> None:
    with EventLog.open(postgres) as log, log.engine.connect() as failing, log.engine.connect() as busy:
        failing.execute(TOUCH, {"session": "failing"})
        failing.execute(INSERT, {"session": "failing"})
        failing.rollback()
        log.append("s", 0, records(started()))
        # Somebody who is busy with something else, and began after the gap, does not hold the tail up for
        # ever.
        found, place = _until_certain(log, TailPlace())
        busy.execute(TOUCH, {"session": "busy"})
        log.append("s", 1, records(started(), first=2))
        later, place = _until_certain(log, place)

        assert [event.sequence for event in found + later] == [1, 2]
        assert found[0].position == 2


def test_on_postgresql_many_writers_and_a_follower_agree(postgres: str) -> None:
    names = [f"session-{number}" for number in range(6)]
    with EventLog.open(postgres) as log:

        def write(name: str) -> None:
            with EventLog.open(postgres, LogOptions(durability="sync")) as own:
                for number in range(40):
                    own.append(name, number, [status(number, name)])
                    if number % 7 == 0:
                        # Draws a position and throws it away.
                        with own.engine.connect() as connection:
                            connection.execute(TOUCH, {"session": f"gap-{name}-{number}"})
                            connection.execute(INSERT, {"session": f"gap-{name}-{number}"})
                            connection.rollback()

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        found: list[StoredEvent] = []
        place = TailPlace()
        deadline = time.monotonic() + 60
        while len(found) < 240 and time.monotonic() < deadline:
            some, place = log.read_on(place, 17)
            found += some
        for thread in threads:
            thread.join()

    assert [event.position for event in found] == sorted({event.position for event in found})
    for name in names:
        assert [event.sequence for event in found if event.session_id == name] == list(range(1, 41))


def _until_certain(log: EventLog, place: TailPlace) -> tuple[list[StoredEvent], TailPlace]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found, place = log.read_on(place)
        if found:
            return found, place
    pytest.fail("nothing came")
