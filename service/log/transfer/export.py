"""Export: events by day, as gzipped JSON Lines or Parquet, resumed where the last export of the folder ended.

A folder holds ``events/day=YYYY-MM-DD/part-POSITION.…`` with the events recorded on a day, named after the
first position in it, ``sessions.jsonl`` with the labels of sessions, and ``export.json``, which says how far
it goes. A part is complete when it has its name. One that an export wrote but did not come to note is
written again under the same name, so that no event is in two parts.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from ..chain import moment_text
from ..column_types import storable
from ..errors import LogUnavailable
from ..queries import SessionQuery
from ..records import StoredEvent
from ..store import EventLog
from ..tail import TailPlace

STATE = "export.json"
LABELS = "sessions.jsonl"
EVENTS = "events"
AT_ONCE = 20_000
_DRAFT = ".draft"


class ExportFormat(StrEnum):
    """How events are written."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did.

    Attributes:
        events: how many it wrote.
        position: how far the folder goes now.
    """

    events: int
    position: int


def export(
    log: EventLog, folder: Path, kind: ExportFormat, progress: Callable[[int], None] = lambda events: None
) -> Exported:
    """Write the events that the folder does not have yet; ``progress`` is told how many were written more.

    Raises:
        LogUnavailable: the folder cannot be written, holds the export of another log or format, or the export
            extra is missing.
    """
    write = _write_parquet if kind is ExportFormat.PARQUET else _write_lines
    try:
        start = _begin(log, folder, kind)
        written, position = 0, start
        for found, place in _batches(log, TailPlace(start)):
            for day, events in _by_day(found).items():
                part = folder / EVENTS / f"day={day}" / f"part-{events[0].position:019}.{_SUFFIXES[kind]}"
                part.parent.mkdir(parents=True, exist_ok=True)
                with completed(part) as file:
                    write(file, events)
            written += len(found)
            position = place.position
            _note(log, folder, kind, position)
            progress(len(found))
        _write_labels(log, folder)
        _note(log, folder, kind, position)
    except OSError as error:
        raise LogUnavailable(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return Exported(written, position)


def line_of(event: StoredEvent) -> dict[str, Any]:
    """An event as the JSON object of its line; bytes in hexadecimal, texts as they are in the table."""
    return {
        "position": event.position,
        "session_id": storable(event.session_id),
        "sequence": event.sequence,
        "event_id": storable(event.event_id),
        "type": event.type,
        "schema_version": event.schema_version,
        "recorded_at": moment_text(event.recorded_at),
        "call_id": None if event.call_id is None else storable(event.call_id),
        "payload": event.payload,
        "content_hash": _hex(event.content_hash),
        "key_id": event.key_id,
        "previous_hash": _hex(event.previous_hash),
        "hash": _hex(event.hash),
        "seal": _hex(event.seal),
    }


def _batches(log: EventLog, place: TailPlace) -> Iterator[tuple[list[StoredEvent], TailPlace]]:
    while True:
        found, place = log.read_on(place, AT_ONCE)
        if found:
            yield found, place
        elif not place.doubted:
            return


def _begin(log: EventLog, folder: Path, kind: ExportFormat) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        state = json.loads((folder / STATE).read_text())
        log_id, before, position = state["log"], state["format"], int(state["position"])
    except FileNotFoundError:
        if any(path.suffix != _DRAFT for path in folder.iterdir()):
            raise LogUnavailable(
                f"{folder} holds something else; give the export a folder of its own"
            ) from None
        # Whose the folder is has to be known before anything is in it.
        _note(log, folder, kind, 0)
        return 0
    except (ValueError, KeyError, TypeError):
        raise LogUnavailable(f"{folder / STATE} does not say how far the export goes") from None
    if log_id != log.id:
        raise LogUnavailable(f"{folder} holds an export of log {log_id}, and this is {log.id}")
    if before != kind:
        raise LogUnavailable(f"{folder} holds an export as {before}; give {kind} a folder of its own")
    return position


def _by_day(events: Iterable[StoredEvent]) -> dict[str, list[StoredEvent]]:
    days: dict[str, list[StoredEvent]] = {}
    for event in events:
        days.setdefault(moment_text(event.recorded_at)[:10], []).append(event)
    return days


def _note(log: EventLog, folder: Path, kind: ExportFormat, position: int) -> None:
    state = {"log": log.id, "format": kind.value, "position": position}
    with completed(folder / STATE) as file:
        file.write(json.dumps(state).encode() + b"\n")


def _write_labels(log: EventLog, folder: Path) -> None:
    with completed(folder / LABELS) as file:
        cursor = None
        while True:
            page = log.find_sessions(SessionQuery(newest_first=False), cursor=cursor, limit=1_000)
            for session in page.rows:
                if session.label is not None:
                    line = {"session_id": storable(session.session_id), "label": storable(session.label)}
                    file.write(json.dumps(line).encode() + b"\n")
            cursor = page.next
            if cursor is None:
                return


@contextmanager
def completed(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when everything in it is on the disk."""
    draft = path.with_name(f".{path.name}{_DRAFT}")
    with draft.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _write_lines(file: IO[bytes], events: Sequence[StoredEvent]) -> None:
    # Without a time in its head the same events make the same file.
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        for event in events:
            packed.write(json.dumps(line_of(event), separators=(",", ":")).encode() + b"\n")


def _write_parquet(file: IO[bytes], events: Sequence[StoredEvent]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise LogUnavailable("Parquet needs the export extra: context-paging[export]") from None
    text, whole, raw = pyarrow.string(), pyarrow.int64(), pyarrow.binary()
    schema = pyarrow.schema(
        [
            pyarrow.field("position", whole, nullable=False),
            pyarrow.field("session_id", text, nullable=False),
            pyarrow.field("sequence", whole, nullable=False),
            pyarrow.field("event_id", text, nullable=False),
            pyarrow.field("type", text, nullable=False),
            pyarrow.field("schema_version", pyarrow.int32(), nullable=False),
            pyarrow.field("recorded_at", pyarrow.timestamp("us", tz="UTC"), nullable=False),
            pyarrow.field("call_id", text),
            pyarrow.field("payload", text, nullable=False),
            *(pyarrow.field(name, raw) for name in ("content_hash", "previous_hash", "hash", "seal")),
            pyarrow.field("key_id", text),
        ]
    )
    rows = [
        {
            **line_of(event),
            "recorded_at": event.recorded_at,
            "content_hash": event.content_hash,
            "previous_hash": event.previous_hash,
            "hash": event.hash,
            "seal": event.seal,
        }
        for event in events
    ]
    table = pyarrow.Table.from_pylist(rows, schema=schema)
    pyarrow.parquet.write_table(table, file, compression="zstd")


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


_SUFFIXES = {ExportFormat.JSONL: "jsonl.gz", ExportFormat.PARQUET: "parquet"}
