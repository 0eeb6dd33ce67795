"""Reading session files: plain or gzip, from a path or from standard input, whatever state they are in."""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from context_paging.domain.entries import Entry, branch_to
from context_paging.domain.errors import ContextPagingError
from context_paging.domain.session_format import Problem, session_records

_GZIP_MAGIC = b"\x1f\x8b"
_SHOWN_PROBLEMS = 3
_BLANK = re.compile(r"\s*")


class SessionFileError(ContextPagingError):
    """A session file cannot be read at all."""

    code = "SESSION_FILE"


@dataclass(frozen=True, slots=True)
class SessionFile:
    """What a session file holds.

    Attributes:
        name: what people call the file.
        session_id: from the header, empty if there is none.
        entries: version 3 entries in file order, parents first.
        leaf_id: the last entry.
        problems: what was worked around, with line numbers.
    """

    name: str
    session_id: str
    entries: list[Entry]
    leaf_id: str | None
    problems: list[Problem]

    def branch(self) -> list[Entry]:
        """The active branch, from its root to the leaf."""
        return branch_to(self.leaf_id, {entry["id"]: entry for entry in self.entries})


def read_session_file(path: Path | str) -> SessionFile:
    """Read a session file; ``-`` is standard input. Gzip is recognised by its contents.

    Malformed lines are left out and reported. Raises:
        SessionFileError: the file is missing, unreadable or empty, or no line of it is an entry.
    """
    name = "standard input" if str(path) == "-" else Path(path).name
    problems: list[Problem] = []
    try:
        with _open(path) as stream:
            records = session_records(_values(_lines(stream, problems), problems))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SessionFileError(f"{path} cannot be read: {reason}. Give the path of a session file.") from None
    problems = sorted([*problems, *records.problems], key=lambda problem: problem.line or sys.maxsize)
    if not records.entries:
        told = "; ".join(map(str, problems[:_SHOWN_PROBLEMS])) or "it is empty"
        raise SessionFileError(
            f"{path} holds no session entries ({told}). Give a session file with one JSON object a line."
        )
    session_id = records.header.get("id")
    return SessionFile(
        name, session_id if isinstance(session_id, str) else "", records.entries, records.leaf_id, problems
    )


def _open(path: Path | str) -> BufferedReader:
    if str(path) == "-":
        if sys.stdin is None:
            raise SessionFileError("standard input is closed; give the path of a session file")
        return BufferedReader(FileIO(sys.stdin.fileno(), closefd=False))
    return Path(path).open("rb")


def _lines(stream: BufferedReader, problems: list[Problem]) -> Iterator[tuple[int, bytes]]:
    compressed = stream.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
    content: Iterable[bytes] = gzip.GzipFile(fileobj=stream) if compressed else stream
    number = 0
    try:
        for line in content:
            number += 1
            yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problems.append(Problem(None, f"the gzip data ends early or is damaged after line {number}: {error}"))


def _values(lines: Iterator[tuple[int, bytes]], problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    for number, line in lines:
        text = _text(line, number, problems)
        if not text.strip():
            continue
        position = 0
        count = 0
        while position < len(text):
            try:
                value, position = decoder.raw_decode(text, position)
            except RecursionError:
                problems.append(Problem(number, "nested too deeply; it was left out"))
                break
            except ValueError as error:
                problems.append(Problem(number, f"not JSON, left out: {_shortened(str(error))}"))
                break
            yield number, value
            count += 1
            blank = _BLANK.match(text, position)
            position = position if blank is None else blank.end()
            if count == 1 and position < len(text):
                problems.append(Problem(number, "holds more than one record; each was read"))


def _text(line: bytes, number: int, problems: list[Problem]) -> str:
    try:
        return line.decode("utf-8", "surrogatepass").strip("\ufeff \t\r\n")
    except UnicodeDecodeError as error:
        problems.append(Problem(number, f"not UTF-8 from byte {error.start + 1} on; bad bytes were replaced"))
        return line.decode("utf-8", "replace").strip("\ufeff \t\r\n")


def refuse_constant(name: str) -> None:
    """Hook of JSON parsers: NaN and infinities are no JSON numbers.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is not a JSON number")


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "…"
