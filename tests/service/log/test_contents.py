"""Keys: fingerprints that cannot be guessed, contents that can be made unreadable."""

from __future__ import annotations

import json
import stat
import threading
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.events import ContextRequested
from context_paging.domain.json_text import canonical
from context_paging.domain.messages import digest
from context_paging.service.log import (
    ContentErased,
    EventLog,
    InvalidKey,
    LogKey,
    LogOptions,
    LogUnavailable,
    Payloads,
    UnknownEvent,
)
from context_paging.service.session import Session

from .events import records, requested, small_session

SECRET = "the launch code is 0000, half \ud83d"
FULL = LogOptions(payloads=Payloads.FULL)


def entry(number: int, parent: int | None, message: dict[str, Any]) -> dict[str, Any]:
    """A stored message."""
    parent_id = None if parent is None else f"e{parent}"
    return {"type": "message", "id": f"e{number}", "parentId": parent_id, "message": message}


def talk(log: EventLog, session_id: str = "s") -> list[dict[str, Any]]:
    """A session of one answered request; its messages."""
    question = {"role": "user", "content": SECRET, "timestamp": 1}
    answer = {
        "role": "assistant",
        "content": [{"type": "text", "text": "ok"}],
        "stopReason": "stop",
        "timestamp": 2,
    }
    session = Session(session_id, sink=log)
    session.start(global_settings={"contextPaging": {"tokenBudget": 1000}})
    session.append([entry(1, None, question)])
    session.context()
    session.append([entry(2, 1, answer)])
    session.turn_end("e2")
    session.shut_down()
    return [question, answer]


def database_bytes(log: EventLog) -> bytes:
    """Everything in the tables, as text."""
    parts: list[str] = []
    with log.engine.connect() as connection:
        for table in ("events", "sessions", "provider_calls", "event_contents", "content_keys", "log_keys"):
            parts += [repr(tuple(row)) for row in connection.execute(text(f"SELECT * FROM {table}"))]
    return "\n".join(parts).encode("utf-8", "backslashreplace")


def test_a_short_message_cannot_be_guessed_from_its_fingerprint(log: EventLog) -> None:
    message = {"role": "user", "content": "yes", "timestamp": 1}
    ref = digest(message, HeuristicEstimator())
    log.append("s", 0, records((replace(requested(), appended=(ref,)), "c")))
    stored = next(log.events("s")).event
    assert isinstance(stored, ContextRequested)
    (stored_ref,) = stored.appended

    guessed = sha256(canonical(message)).digest()

    assert guessed == ref.fingerprint
    assert stored_ref.fingerprint != guessed
    assert guessed.hex() not in next(log.events("s")).payload


def test_one_message_has_one_fingerprint_in_a_log_and_another_in_the_next(tmp_path: Path) -> None:
    ref = digest({"role": "user", "content": "yes", "timestamp": 1}, HeuristicEstimator())
    found = []
    for name in ("a", "a", "b"):
        with EventLog.open(str(tmp_path / name)) as log:
            sequence = log.last_sequence("s")
            log.append(
                "s",
                sequence,
                records((replace(requested(), appended=(ref,)), f"{sequence}"), first=sequence + 1),
            )
            event = list(log.events("s"))[-1].event
            assert isinstance(event, ContextRequested)
            found.append(event.appended[0].fingerprint)

    assert found[0] == found[1] != found[2]


def test_the_key_is_beside_the_log_for_its_owner_alone(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db")) as log:
        assert not (tmp_path / "log.db.key").exists()
        log.append("s", 0, small_session())
        content = database_bytes(log)

    key = (tmp_path / "log.db.key").read_text().strip()
    assert stat.S_IMODE((tmp_path / "log.db.key").stat().st_mode) == 0o600
    assert key.encode() not in content
    assert bytes.fromhex(key) not in (tmp_path / "log.db").read_bytes()


def test_a_log_whose_key_is_lost_goes_on_with_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with EventLog.open(str(path)) as log:
        log.append("s", 0, small_session())
    (tmp_path / "log.db.key").unlink()

    with EventLog.open(str(path)) as log:
        log.append("t", 0, small_session("t"))
        results = list(log.verify())

    assert [result.finding for result in results] == [None, None]
    assert [result.unchecked_seals for result in results] == [9, 0]


@pytest.mark.parametrize("content", [b"", b"short", b"g" * 64, b"0" * 63, b"0" * 65])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with (
        EventLog.open(str(tmp_path / "log.db"), LogOptions(key_file=tmp_path / "key")) as log,
        pytest.raises(InvalidKey, match="64"),
    ):
        log.append("s", 0, small_session())
    assert (tmp_path / "key").read_bytes() == content


def test_a_key_that_cannot_be_made_is_told_or_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    nowhere = LogOptions(key_file="/proc/nowhere/key")
    with (
        EventLog.open(path, replace(nowhere, audit="required")) as log,
        pytest.raises(LogUnavailable, match="KEY_FILE"),
    ):
        log.append("s", 0, small_session())
    with EventLog.open(path, nowhere) as log:
        assert log.append("s", 0, small_session()) == 0
        assert log.sessions() == []


def test_of_many_that_make_a_key_all_get_the_same(tmp_path: Path) -> None:
    made: list[str] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        made.append(LogKey.load_or_make(tmp_path / "folder" / "key").id)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 8
    assert len(set(made)) == 1
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["key"]


def test_without_being_asked_a_log_keeps_no_content(log: EventLog) -> None:
    talk(log)

    assert b"launch code" not in database_bytes(log)
    assert all(log.content("s", event.sequence) is None for event in log.events("s"))


def test_contents_are_kept_encrypted_and_read_back_as_they_were(location: str) -> None:
    with EventLog.open(location, FULL) as log:
        question, answer = talk(log)
        contents = {event.type: log.content("s", event.sequence) for event in log.events("s")}

        assert contents["context-requested"] == [question]
        assert contents["turn-ended"] == answer
        assert contents["session-started"] is None
        assert [
            log.content("s", event.sequence) for event in log.events("s") if event.type == "branch-refreshed"
        ] == [[entry(1, None, question)], [entry(2, 1, answer)]]
        assert b"launch code" not in database_bytes(log)
        with pytest.raises(UnknownEvent):
            log.content("s", 99)


def test_contents_are_spooled_encrypted(tmp_path: Path) -> None:
    options = LogOptions(payloads=Payloads.FULL, durability="spool")
    with EventLog.open(str(tmp_path / "log.db"), options) as log:
        log.append("s", 0, small_session())
        first = records(requested(), first=10)[0]._replace(content=SECRET)
        log.append("s", 9, [first])
        spool = b"".join(path.read_bytes() for path in (tmp_path / "log.db.spool").glob("*.spool"))

        assert len(spool) > 100
        assert b"launch" not in spool
        assert log.content("s", 10) == SECRET


def test_erased_contents_cannot_be_read_and_the_chain_stays_valid(location: str) -> None:
    with EventLog.open(location, FULL) as log:
        talk(log)
        talk(log, "t")
        written = list(log.events("s"))

        assert log.erase("s") == 4
        assert log.erase("s") == 0

        kept = [event.sequence for event in written if event.content_hash is not None]
        assert len(kept) == 4
        for sequence in kept:
            with pytest.raises(ContentErased):
                log.content("s", sequence)
        assert list(log.events("s")) == written
        assert all(result.finding is None for result in log.verify())
        assert any(log.content("t", event.sequence) is not None for event in log.events("t"))
        with log.engine.connect() as connection:
            rows = connection.execute(
                text("SELECT wrapped_key FROM content_keys WHERE session_id = 's'")
            ).all()
        assert [tuple(row) for row in rows] == [(None,)]


def test_an_erased_key_is_in_no_file_of_the_log(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db"), FULL) as log:
        talk(log)
        log.flush()
        with log.engine.connect() as connection:
            (wrapped,) = connection.execute(text("SELECT wrapped_key FROM content_keys")).one()
            ciphertexts = [
                row[0] for row in connection.execute(text("SELECT ciphertext FROM event_contents"))
            ]
        before = b"".join(path.read_bytes() for path in tmp_path.glob("log.db*") if path.is_file())
        assert wrapped in before

        log.erase("s")

        after = b"".join(path.read_bytes() for path in tmp_path.glob("log.db*") if path.is_file())
        assert wrapped not in after
        assert not any(ciphertext in after for ciphertext in ciphertexts)


def test_an_altered_content_is_found(location: str) -> None:
    with EventLog.open(location, FULL) as log:
        talk(log)
        first = next(event for event in log.events("s") if event.content_hash is not None)
        with log.engine.begin() as connection:
            connection.execute(
                text("UPDATE event_contents SET ciphertext = :other WHERE sequence = :sequence"),
                {"other": b"0" * 40, "sequence": first.sequence},
            )

        (result,) = log.verify()
        assert result.finding is not None
        assert (result.finding.fault, result.finding.sequence) == ("altered", first.sequence)
        with pytest.raises(InvalidKey, match="altered"):
            log.content("s", first.sequence)


def test_contents_need_the_key_file_they_were_written_with(location: str, tmp_path: Path) -> None:
    with EventLog.open(location, replace(FULL, key_file=tmp_path / "a.key")) as log:
        talk(log)
        (first, *_) = [event.sequence for event in log.events("s") if event.content_hash is not None]
    with (
        EventLog.open(location, replace(FULL, key_file=tmp_path / "b.key")) as log,
        pytest.raises(InvalidKey, match="key file"),
    ):
        log.content("s", first)


def test_a_content_cannot_be_passed_off_as_another_events(location: str) -> None:
    with EventLog.open(location, FULL) as log:
        talk(log)
        first, second, *_ = [event.sequence for event in log.events("s") if event.content_hash is not None]
        with log.engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE event_contents SET ciphertext = "
                    "(SELECT other.ciphertext FROM event_contents AS other WHERE other.sequence = :second) "
                    "WHERE sequence = :first"
                ),
                {"first": first, "second": second},
            )

        with pytest.raises(InvalidKey):
            log.content("s", first)


def test_a_content_that_is_not_json_is_refused(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db"), FULL) as log:
        record = records(requested())[0]._replace(content={1, 2})
        with pytest.raises(Exception, match="content cannot be stored"):
            log.append("s", 0, [record])
        assert json.dumps(log.sessions()) == "[]"


def test_what_comes_after_an_erasure_has_a_key_of_its_own(location: str) -> None:
    with EventLog.open(location, FULL) as log:
        log.append("s", 0, [records(requested())[0]._replace(content="before")])
        log.erase("s")
        log.append("s", 1, [records(requested(), first=2)[0]._replace(content="after")])
        log.flush()

        with pytest.raises(ContentErased):
            log.content("s", 1)
        assert log.content("s", 2) == "after"
