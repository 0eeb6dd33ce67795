"""Spool files that writers left: what is whole is recovered, in order; the rest is told, and kept aside.

An input is what follows the title of such a file. After a log was opened beside it, it must hold that

- opening does not fail; the file is gone, or kept under another name with the same bytes, which is
  so where anything in it could not be read;
- every whole frame is in the log, or among the rejected appends, exactly: its events, their order, its label;
- the log's chains are sound, and what it took can be read, listed, and exported;
- opening it again does nothing more.

The log is put back to one short session before each input.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from context_paging.domain.events import AttemptCancelled, StatusPublished
from context_paging.service.log import Durability, EventLog, LogOptions
from context_paging.service.log.prepared import Append
from context_paging.service.log.records import Record
from context_paging.service.session import Session

from . import bridge_lines
from .checked_log import ENCODE
from .json_trees import changed, dumped, loaded, words

MOST_BYTES = 16_384
_MARK = b"\xc5CPF"
_HEAD = struct.Struct(">4sII")
WORDS = (*bridge_lines.WORDS, *words("spool"))


class _Spool:
    """A log in a file with a spool beside it, and what the log held in the beginning."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(
            prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        folder = Path(self._folder.name)
        self.folder = folder / "spool"
        self.log = EventLog.open(
            folder / "log.db", LogOptions(durability=Durability.SYNC, spool=self.folder, sigterm=False)
        )
        _known(self.log)
        self._file = sqlite3.connect(folder / "log.db")
        self._file.execute("PRAGMA synchronous = OFF")
        self._beginning = sqlite3.connect(":memory:")
        self._file.backup(self._beginning)

    def begin(self, content: bytes) -> Path:
        """Put the log back to its beginning, with a file in its spool."""
        self.log._writer._backlog.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self._beginning.backup(self._file)
        self.log.forget()
        path = self.folder / "1-left.spool"
        path.write_bytes(self.title + content)
        return path

    @property
    def title(self) -> bytes:
        """The first line of a file of this log."""
        return f"context-paging spool 1 {self.log.id}\n".encode()

    def recover(self) -> None:
        """What opening the log does."""
        self.log._writer.recover()

    def rejected(self) -> list[bytes]:
        """The bodies of what was rejected; the files are closed."""
        self.log._writer._backlog.close()
        found: list[bytes] = []
        for path in sorted(self.folder.glob("*.rejected")):
            content = path.read_bytes()
            assert content.startswith(self.title)
            bodies, damaged = _bodies(content[len(self.title) :])
            assert not damaged
            found += bodies
        return found

    def state(self) -> Any:
        """Everything that opening the log may change."""
        files = {
            path.name: path.read_bytes() for path in self.folder.iterdir() if not path.name.startswith(".")
        }
        rows = [row for table in ("events", "sessions", "provider_calls") for row in self._rows(table)]
        return files, rows

    def _rows(self, table: str) -> list[Any]:
        return self._file.execute(f"SELECT * FROM {table}").fetchall()


@cache
def _spool() -> _Spool:
    return _Spool()


def check(data: bytes) -> None:
    """What has to hold for a spool file.

    Raises:
        Exception: it does not.
    """
    spool = _spool()
    path = spool.begin(data)
    written = path.read_bytes()
    spool.recover()
    assert not path.exists(), "the file was left"
    rejected = spool.rejected()
    bodies, damaged = _bodies(data)
    unreadable = 0
    for body in bodies:
        append = _append(body)
        if append is None:
            unreadable += 1
        else:
            _check_kept(spool, append, rejected)
    aside = path.with_suffix(".damaged")
    if damaged or unreadable:
        assert aside.read_bytes() == written, "what could not be read was not kept"
    else:
        assert not aside.exists(), "nothing was wrong"
    _check_log(spool.log)
    before = spool.state()
    spool.recover()
    spool.log._writer._backlog.close()
    assert spool.state() == before, "recovered twice"


def seeds() -> Iterator[tuple[str, bytes]]:
    """Contents of files to begin with, by name."""
    talk = [_append_bytes(append) for append in _recorded("new", 0)]
    more = [_append_bytes(append) for append in _recorded("known", 3)]
    yield "sessions", b"".join(map(_frame, talk + more))
    yield "cut", b"".join(map(_frame, talk))[:-7]
    yield "damaged", _frame(talk[0]) + b"\x00" + _frame(talk[1])[:-1] + _frame(more[0]) + b"\xc5C"
    yield "gap", _frame(talk[0]) + _frame(talk[2]) + _frame(talk[1]) + _frame(more[0]) * 2
    small = Append("new", 0, "l\n\ud83d", [_record("new-0", StatusPublished(text="\x00\ud83d"))], ENCODE)
    yield "small", _frame(_append_bytes(small))
    other = Append("known", 3, None, [_record("known-9", AttemptCancelled(attempt="fork"))], ENCODE)
    yield "known", _frame(_append_bytes(other))
    yield "nothing", b""


def mutate(data: bytes, most: int, random: Random, plain: Callable[[bytes, int], bytes]) -> bytes:
    """Content that is somewhat different. ``plain`` changes bytes that are no structure."""
    bodies, _ = _bodies(data)
    if not bodies or random.random() < 0.15:
        return plain(data, most)
    frames = [_frame(body) for body in bodies]
    at = random.randrange(len(frames))
    match random.choice(
        ("head", "head", "head", "payload", "payload", "drop", "twice", "swap", "plain", "raw", "cut")
    ):
        case "head":
            frames[at] = _frame(_changed_line(bodies[at], 0, random, plain))
        case "payload":
            lines = bodies[at].count(b"\n") + 1
            frames[at] = _frame(_changed_line(bodies[at], random.randrange(lines), random, plain))
        case "drop":
            del frames[at]
        case "twice":
            frames.insert(random.randrange(len(frames) + 1), frames[at])
        case "swap":
            other = random.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
        case "plain":
            frames[at] = _frame(plain(bodies[at], most))
        case "raw":
            frames[at] = plain(frames[at], most)
        case _:
            frames[at] = frames[at][: random.randrange(len(frames[at]))]
    return b"".join(frames)[:most]


def _changed_line(body: bytes, at: int, random: Random, plain: Callable[[bytes, int], bytes]) -> bytes:
    lines = body.split(b"\n")
    try:
        lines[at] = dumped(changed(loaded(lines[at]), random, WORDS))
    except ValueError:
        lines[at] = plain(lines[at], MOST_BYTES)
    return b"\n".join(lines)


def _bodies(content: bytes) -> tuple[list[bytes], bool]:
    """The bodies of the whole frames, and whether there is anything else but an end that was cut short."""
    bodies: list[bytes] = []
    damaged, at = False, 0
    while at < len(content):
        head = content[at : at + _HEAD.size]
        if len(head) == _HEAD.size:
            mark, length, checksum = _HEAD.unpack(head)
            body = content[at + _HEAD.size : at + _HEAD.size + length]
            if mark == _MARK and len(body) == length and zlib.crc32(body) == checksum:
                bodies.append(body)
                at += _HEAD.size + length
                continue
        following = content.find(_MARK, at + 1)
        if following < 0:
            return bodies, damaged or not _MARK.startswith(head[: len(_MARK)])
        damaged, at = True, following
    return bodies, damaged


def _frame(body: bytes) -> bytes:
    return _HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body


def _append(body: bytes) -> Append | None:
    """The append of a body that means one."""
    try:
        append = Append.from_bytes(body, ENCODE)
    except Exception:
        return None
    return append


def _check_kept(spool: _Spool, append: Append, rejected: list[bytes]) -> None:
    body = append.to_bytes()
    if body in rejected or not append.prepared:
        return
    stored = {event.event_id: event for event in spool.log.events(append.session_id)}
    for prepared in append.prepared:
        event = stored.get(prepared.event_id)
        assert event is not None, f"{prepared.event_id!r} was lost"
        kept = (event.type, event.schema_version, event.payload, event.call_id)
        given = (prepared.type, prepared.schema_version, prepared.payload, prepared.call_id)
        # Events that came twice are the first ones.
        assert kept == given or event.session_id == "known" or len(stored) > len(append.prepared)


def _check_log(log: EventLog) -> None:
    for verified in log.verify():
        assert verified.finding is None, verified
    for session in log.sessions():
        assert len(list(log.events(session.session_id))) == session.last_sequence
        for event in log.events(session.session_id):
            _ = event.event
    log.rebuild()


def _known(log: EventLog) -> None:
    log.append(
        "known", 0, [_record(f"known-{n}", StatusPublished(text=str(n))) for n in range(3)], label="known"
    )


def _record(event_id: str, event: Any) -> Record:
    from datetime import UTC, datetime

    return Record(event, event_id, datetime(2026, 3, 1, 12, tzinfo=UTC))


def _append_bytes(append: Append) -> bytes:
    return append.to_bytes()


def _recorded(session_id: str, sequence: int) -> list[Append]:
    """The appends of a session."""
    from datetime import UTC, datetime

    taken: list[Append] = []

    class Sink:
        keeps_content = False

        def append(self, session_id: str, expected: int, records: Any, *, label: str | None = None) -> int:
            taken.append(Append(session_id, expected, label, records, ENCODE))
            return taken[-1].last

    numbers = iter(range(10**6))
    session = Session(
        session_id,
        sink=Sink(),
        sequence=sequence,
        host="agent",
        label="l",
        now=lambda: datetime(2026, 3, 1, 12, tzinfo=UTC),
        new_id=lambda: f"{session_id}-{next(numbers)}",
    )
    session.start(global_settings={"contextPaging": {"tokenBudget": 40}})
    for number, (role, text) in enumerate(
        (("user", "Where? " * 9), ("assistant", "There. " * 9), ("user", "ah"))
    ):
        message = {
            "role": role,
            "content": [{"type": "text", "text": text}],
            "timestamp": number,
            "stopReason": "stop",
        }
        parent = f"e{number - 1}" if number else None
        session.append([{"type": "message", "id": f"e{number}", "parentId": parent, "message": message}])
        session.context()
    session.turn_end("e1")
    session.shut_down()
    return taken
