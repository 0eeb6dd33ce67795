"""Session files in every state: read what can be read, say what cannot."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from context_paging.service.session_file import SessionFileError, read_session_file

HEADER = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-01-05T09:00:00.000Z", "cwd": "/w"}


def entry(entry_id: str, parent: str | None, text: str = "hello") -> dict[str, Any]:
    """A user entry."""
    message = {"role": "user", "content": text, "timestamp": 1}
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "", "message": message}


def write(folder: Path, *lines: object) -> Path:
    """A file of lines; what is neither text nor bytes is written as JSON."""
    path = folder / "session.jsonl"
    path.write_bytes(b"".join(_line(line) + b"\n" for line in lines))
    return path


def _line(line: object) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def problems(path: Path) -> list[str]:
    """What reading a file reports."""
    return [str(problem) for problem in read_session_file(path).problems]


def ids(path: Path) -> list[str]:
    """The entries that were read."""
    return [entry["id"] for entry in read_session_file(path).entries]


def test_a_plain_file_is_read_without_problems(tmp_path: Path) -> None:
    file = read_session_file(write(tmp_path, HEADER, entry("a", None), entry("b", "a")))

    assert (file.name, file.session_id, file.leaf_id) == ("session.jsonl", "s-1", "b")
    assert [e["id"] for e in file.entries] == ["a", "b"]
    assert file.problems == []


def test_gzip_is_recognised_by_its_contents(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, entry("a", None))
    path.write_bytes(gzip.compress(path.read_bytes()))

    assert ids(path) == ["a"]


def test_standard_input_is_read() -> None:
    lines = f"{json.dumps(HEADER)}\n{json.dumps(entry('a', None))}\n".encode()
    code = "from context_paging.service.session_file import read_session_file as r; print(r('-').name)"
    for data in (lines, gzip.compress(lines)):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
        assert done.stdout.decode().startswith("standard input")


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\x00\x01\x02\xff" * 300, b"\x89PNG\r\n\x1a\n" + bytes(99)]
)
def test_a_file_without_entries_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(content)

    with pytest.raises(SessionFileError, match="holds no session entries"):
        read_session_file(path)


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="No such file"):
        read_session_file(tmp_path / "nothing.jsonl")
    with pytest.raises(SessionFileError, match="directory"):
        read_session_file(tmp_path)


def test_truncated_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    path = write(
        tmp_path, HEADER, *(entry(f"e{n}", f"e{n - 1}" if n else None, "x" * 99) for n in range(2_000))
    )
    path.write_bytes(gzip.compress(path.read_bytes())[:-3_000])

    file = read_session_file(path)

    assert 0 < len(file.entries) < 2_000
    assert "gzip data ends early" in str(file.problems[-1])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"type": "message", "id": "x', "line 3: not JSON"),
        (b"\x00" * 64, "line 3: not JSON"),
        ("[" * 100_000, "line 3: nested too deeply"),
        ('{"type":"message","id":"x","usage":NaN}', "line 3: not JSON"),
        ('{"id":"x","big":' + "9" * 5_000 + "}", "line 3: not JSON"),
        ("[1, 2]", "line 3: a list instead of an object"),
        ('"text"', "line 3: a str instead of an object"),
        ('{"type":"message"}', "line 3: an entry without an id"),
        ('{"type":"message","id":7}', "line 3: an entry without an id"),
        ('{"id":"x"}', "line 3: entry 'x' without a type"),
    ],
)
def test_a_line_that_is_no_entry_is_reported_and_left_out(
    tmp_path: Path, line: str | bytes, told: str
) -> None:
    path = write(tmp_path, HEADER, entry("a", None), line, entry("b", "a"))

    assert ids(path) == ["a", "b"]
    assert any(problem.startswith(told) for problem in problems(path)), problems(path)


def test_a_line_with_two_records_gives_both(tmp_path: Path) -> None:
    path = write(
        tmp_path, HEADER, json.dumps(entry("a", None)) + json.dumps(entry("b", "a")), entry("c", "b")
    )

    assert ids(path) == ["a", "b", "c"]
    assert problems(path) == ["line 2: holds more than one record; each was read"]


def test_a_line_with_very_many_records_is_read_in_no_time(tmp_path: Path) -> None:
    record = json.dumps(entry("a", None)).encode() + b" \xe2\x80\x83\t"
    started = time.process_time()

    assert ids(write(tmp_path, HEADER, record * 50_000)) == ["a"]
    assert time.process_time() - started < 10


def test_bad_bytes_are_replaced_and_reported(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, json.dumps(entry("a", None, "caf?")).encode().replace(b"?", b"\xe9"))

    assert ids(path) == ["a"]
    assert problems(path)[0].startswith("line 2: not UTF-8 from byte")


def test_half_a_surrogate_pair_is_no_problem(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, entry("a", None, "cut \ud83d here"))

    file = read_session_file(path)
    assert file.problems == []
    assert file.entries[0]["message"]["content"] == "cut \ud83d here"


@pytest.mark.parametrize("parent", ["a", "c", "lost", 7])
def test_an_entry_whose_parent_does_not_come_before_it_begins_a_branch(
    tmp_path: Path, parent: object
) -> None:
    path = write(tmp_path, HEADER, {**entry("a", None), "parentId": parent}, entry("b", "a"), entry("c", "b"))

    file = read_session_file(path)
    assert [e["parentId"] for e in file.entries] == [None, "a", "b"]
    assert str(file.problems[0]).startswith("line 2: entry 'a' begins a branch of its own")


def test_parents_in_a_circle_are_cut_open(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, entry("a", "c"), entry("b", "a"), entry("c", "b"))

    assert [e["parentId"] for e in read_session_file(path).entries] == [None, "a", "b"]


def test_a_second_entry_with_an_id_is_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path, HEADER, entry("a", None), entry("a", None, "other"), entry("a", None), entry("b", "a")
    )

    assert ids(path) == ["a", "b"]
    assert problems(path) == ["line 3: a second entry with the id 'a' was left out"]


def test_entries_of_unknown_types_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, entry("a", None), {"type": "from-the-future", "id": "b", "parentId": "a"})

    assert ids(path) == ["a", "b"]


@pytest.mark.parametrize("kept", ["gone", ["a"], {"id": "a"}, 7, True])
def test_a_compaction_that_keeps_from_an_unknown_entry_is_reported(tmp_path: Path, kept: object) -> None:
    compaction = {
        "type": "compaction",
        "id": "b",
        "parentId": "a",
        "summary": "s",
        "firstKeptEntryId": kept,
    }

    (problem,) = problems(write(tmp_path, HEADER, entry("a", None), compaction))
    assert f"keeps entries from {kept!r}" in problem


def test_a_longer_branch_than_that_of_the_last_entry_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, entry("a", None), entry("b", "a"), entry("c", "b"), entry("d", "a"))

    assert read_session_file(path).leaf_id == "d"
    assert problems(path) == ["the last entry 'd' is the leaf; the branch of 'c' is 1 entries longer"]


def test_version_1_gets_ids_by_position_the_header_included(tmp_path: Path) -> None:
    def old(text: str) -> dict[str, Any]:
        return {"type": "message", "timestamp": "", "message": {"role": "hookMessage", "content": text}}

    compaction = {"type": "compaction", "timestamp": "", "summary": "s", "firstKeptEntryIndex": 2}
    header = {"type": "session", "id": "s-1", "timestamp": ""}
    file = read_session_file(write(tmp_path, header, old("one"), old("two"), compaction))

    assert [e["id"] for e in file.entries] == ["00000001", "00000002", "00000003"]
    assert [e["parentId"] for e in file.entries] == [None, "00000001", "00000002"]
    assert file.entries[2]["firstKeptEntryId"] == "00000002"
    assert file.entries[0]["message"]["role"] == "custom"


@pytest.mark.parametrize("index", ["1e999", "-1e999", "-1", "1.5", "1e300", "true", '"2"', "[2]"])
def test_a_version_1_compaction_that_names_no_position_keeps_nothing_before_it(
    tmp_path: Path, index: str
) -> None:
    compaction = f'{{"type": "compaction", "summary": "s", "firstKeptEntryIndex": {index}}}'
    message = {"type": "message", "message": {"role": "user", "content": "one"}}
    file = read_session_file(write(tmp_path, {"type": "session", "id": "s-1"}, message, compaction))

    assert len(file.entries) == 2
    assert "firstKeptEntryId" not in file.entries[1]


def test_version_2_calls_custom_messages_by_their_old_name(tmp_path: Path) -> None:
    hook = {**entry("a", None), "message": {"role": "hookMessage", "content": "x"}}
    file = read_session_file(write(tmp_path, {**HEADER, "version": 2}, hook))

    assert file.entries[0]["message"]["role"] == "custom"
    assert file.entries[0]["id"] == "a"


@pytest.mark.parametrize("version", [4, "three", None, [1]])
def test_an_unknown_version_is_reported(tmp_path: Path, version: object) -> None:
    path = write(tmp_path, {**HEADER, "version": version}, entry("a", None))

    assert ids(path) == ["a"]
    assert "unknown version" in problems(path)[0]


def test_a_missing_header_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, entry("a", None))

    assert ids(path) == ["a"]
    assert "no session header" in problems(path)[0]


def test_a_branch_may_be_100_000_entries_deep(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, *(entry(f"e{n}", f"e{n - 1}" if n else None) for n in range(100_000)))

    file = read_session_file(path)
    assert len(file.entries) == 100_000
    assert file.problems == []
