"""Spool files: whatever happens to one, what is whole in it is read, and nothing else."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.service.log import EventLog
from context_paging.service.log.codec import Encoder
from context_paging.service.log.prepared import Append, ContentKey
from context_paging.service.log.spool import Damage, SpoolFile, abandoned, read_frames

from .events import small_session
from .test_durability import status

ENCODE = Encoder()
APPENDS = 6


def written(folder: Path) -> tuple[Path, list[Append]]:
    """A file with some appends."""
    appends = [
        Append("s", number, None if number else "label\nüü", [status(number)], ENCODE)
        for number in range(APPENDS)
    ]
    file = SpoolFile.make(folder, "log")
    for append in appends:
        file.write(append, sync=False)
    file.close()
    return file.path, appends


def read(path: Path) -> list[Append | Damage]:
    """What is in a file."""
    with path.open("rb") as file:
        return [frame for _, frame in read_frames(path, file, ENCODE)]


def told(append: Append) -> list[object]:
    """What has to come back."""
    key = append.content_key
    return [append.session_id, append.expected, append.label, list(append.prepared), key, append.last]


def test_appends_come_back_as_they_were(tmp_path: Path) -> None:
    prepared = Append("s", 0, None, small_session(), ENCODE).prepared
    kept = [event._replace(content=bytes([number])) for number, event in enumerate(prepared)]
    appends = [
        Append("s \ud83d \x00", 3, "ü\n", small_session(), ENCODE),
        Append("s", 2**40, None, small_session(), ENCODE, kept, ContentKey("k", b"\x00\xff")),
    ]
    file = SpoolFile.make(tmp_path, "log")
    for append in appends:
        file.write(append, sync=True)

    found = [frame for _, frame in file.frames(ENCODE)]

    assert [told(append) for append in found if isinstance(append, Append)] == list(map(told, appends))
    assert [type(event) for append in found if isinstance(append, Append) for event in append.events] == [
        type(event) for append in appends for event in append.events
    ]
    file.close()


def test_reading_goes_on_at_an_offset(tmp_path: Path) -> None:
    path, appends = written(tmp_path)
    with path.open("rb") as file:
        ends = [end for end, _ in read_frames(path, file, ENCODE)]
        rest = [frame for _, frame in read_frames(path, file, ENCODE, ends[2])]

    assert [told(frame) for frame in rest if isinstance(frame, Append)] == list(map(told, appends[3:]))
    assert ends[-1] == path.stat().st_size


@given(st.data())
def test_a_file_that_was_damaged_gives_whole_appends_in_order_and_tells_the_rest(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path, appends = written(Path(folder))
        content = bytearray(path.read_bytes())
        start = content.index(b"\n") + 1
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(start, len(content) - 1))
            match data.draw(st.sampled_from(["flip", "cut", "insert", "remove", "repeat"])):
                case "flip":
                    content[place] ^= data.draw(st.integers(1, 255))
                case "cut":
                    del content[place:]
                case "insert":
                    content[place:place] = data.draw(st.binary(min_size=1, max_size=20))
                case "remove":
                    del content[place : place + data.draw(st.integers(1, 200))]
                case _:
                    content[place:place] = content[start:place]
            if len(content) <= start:
                break
        path.write_bytes(content)

        found = read(path)

    known = [told(append) for append in appends]
    assert all(told(frame) in known for frame in found if isinstance(frame, Append))


@pytest.mark.parametrize("cut", range(60))
def test_a_file_of_any_length_is_drained_or_left(tmp_path: Path, cut: int) -> None:
    path, _ = written(tmp_path)
    content = path.read_bytes()[:cut]
    path.write_bytes(content)

    files = list(abandoned(tmp_path, "log"))

    for file in files:
        assert [frame for frame in file.frames(ENCODE) if isinstance(frame, Append)] == []
        file.close()
    # A title that was cut short says that nothing follows.
    assert path.exists() == (b"\n" in content)


def test_a_file_that_a_live_writer_holds_or_of_another_log_is_left(tmp_path: Path) -> None:
    live = SpoolFile.make(tmp_path, "log")
    live.write(Append("s", 0, None, [status(0)], ENCODE), sync=False)
    other = SpoolFile.make(tmp_path, "another")
    other.write(Append("s", 0, None, [status(0)], ENCODE), sync=False)
    other.close()

    assert list(abandoned(tmp_path, "log")) == []

    live.close()
    (left,) = abandoned(tmp_path, "log")
    assert left.path == live.path
    left.close()
    assert other.path.exists()


def test_a_file_is_nobodys_before_it_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    write = os.write

    def look_first(descriptor: int, content: bytes) -> int:
        # Whatever another process sees at this moment, it must not take it for a file without a writer.
        seen.extend(abandoned(tmp_path, "log"))
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", look_first)
    file = SpoolFile.make(tmp_path, "log")
    file.write(Append("s", 0, None, [status(0)], ENCODE), sync=False)

    assert seen == []
    assert file.path.exists()
    assert len([frame for _, frame in file.frames(ENCODE)]) == 1
    file.close()


def test_a_file_that_vanishes_does_not_hide_the_others(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    (tmp_path / "gone.spool").symlink_to(tmp_path / "nowhere")

    files = list(abandoned(tmp_path, "log"))

    assert [file.path for file in files] == [path]
    for file in files:
        file.close()


def frame(body: bytes) -> bytes:
    """A frame that is whole."""
    return struct.pack(">4sII", b"\xc5CPF", len(body), zlib.crc32(body)) + body


ROW = ["s-9", "status-published", 1, "2026-03-01T12:00:00+00:00", None, None]
ODD_HEADS: list[Any] = [
    {},
    [],
    7,
    [["s"], 0, None, None, [ROW]],
    ["s" * 501, 0, None, None, [ROW]],
    ["s", "0", None, None, [ROW]],
    ["s", -1, None, None, [ROW]],
    ["s", 2**63, None, None, [ROW]],
    ["s", True, None, None, [ROW]],
    ["s", 0, ["label"], None, [ROW]],
    ["s", 0, None, "", [ROW]],
    ["s", 0, None, ["k"], [ROW]],
    ["s", 0, None, ["k", 7], [ROW]],
    ["s", 0, None, None, ROW],
    ["s", 0, None, None, [[7, *ROW[1:]]]],
    ["s", 0, None, None, [[ROW[0], None, *ROW[2:]]]],
    ["s", 0, None, None, [[*ROW[:2], 1.0, *ROW[3:]]]],
    ["s", 0, None, None, [[*ROW[:3], "2026-03-01T12:00:00", None, None]]],
    ["s", 0, None, None, [[*ROW[:3], "0001-01-01T00:00:00+14:00", None, None]]],
    ["s", 0, None, None, [[*ROW[:3], 0, None, None]]],
    ["s", 0, None, None, [[*ROW[:4], {}, None]]],
    ["s", 0, None, None, [[*ROW[:5], "aGk="]]],
]


@pytest.mark.parametrize(
    "body",
    [
        *(json.dumps(head).encode() + b'\n{"text":"x"}' for head in ODD_HEADS),
        b'["s",0,null,null,[]]',
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
    ids=lambda body: body[:60].decode("latin-1"),
)
def test_a_whole_frame_that_is_no_append_is_damage_and_hides_no_other(tmp_path: Path, body: bytes) -> None:
    with EventLog.open(tmp_path / "log.db") as log:
        folder, log_id = log.spool, log.id
    assert folder is not None
    good = [Append("s", n, None, [status(n)], ENCODE).to_bytes() for n in range(2)]
    path = folder / "1.spool"
    path.parent.mkdir(exist_ok=True)
    content = f"context-paging spool 1 {log_id}\n".encode() + frame(good[0]) + frame(body) + frame(good[1])
    path.write_bytes(content)

    with EventLog.open(tmp_path / "log.db") as log:
        assert [event.event_id for event in log.events("s")] == ["s-0", "s-1"]
    assert {kept.name: kept.read_bytes() for kept in folder.glob("1.*")} == {"1.damaged": content}
