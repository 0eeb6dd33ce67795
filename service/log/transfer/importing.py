"""Import: the events of an exported folder, with their places, moments, hashes and seals as they were.

Each record is checked against its hash and the record before it on the way in. What the log has already is
left out, so that an import can be repeated, and go on after it was interrupted.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from context_paging.domain.errors import InvalidEvent

from ..chain import GENESIS, record_hash
from ..column_types import original
from ..errors import InvalidImport, LogUnavailable
from ..read_models import NewEvent, SessionModel
from ..records import StoredCall, StoredEvent, StoredSession, period_of
from ..store import EventLog
from ..tables import events, log_keys, provider_calls, sessions
from .export import EVENTS, LABELS

AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: how many events it took, and how many the log had already."""

    events: int
    known: int


def import_folder(
    log: EventLog, folder: Path, progress: Callable[[int, int], None] = lambda done, of: None
) -> Imported:
    """Take in an exported folder, of either format. ``progress`` is told how many parts of how many are done.

    Raises:
        InvalidImport: it is no export, a part cannot be read, or a record is not as it was written, or does
            not
            continue the session in this log; what came before it is in.
    """
    parts = sorted(
        (path for path in (folder / EVENTS).glob("day=*/part-*") if path.is_file()),
        key=lambda path: path.name,
    )
    if not parts:
        raise InvalidImport(f"{folder} holds no export: there is no {EVENTS}/day=…/part-…")
    labels = _labels(folder)
    taken = known = 0
    for done, found in enumerate(_in_order(parts), 1):
        for first in range(0, len(found), AT_ONCE):
            new, old = _taken(log, found[first : first + AT_ONCE], labels)
            taken, known = taken + new, known + old
        progress(done, len(parts))
    log.forget()
    return Imported(taken, known)


def _taken(log: EventLog, found: Sequence[StoredEvent], labels: dict[str, str]) -> tuple[int, int]:
    try:
        with log.changing() as connection:
            return _take(connection, found, labels)
    except LogUnavailable as error:
        if not isinstance(error.__cause__, IntegrityError):
            raise
        raise InvalidImport(
            "an event or a provider call of the export has an id that another session of this log has"
        ) from error


def _in_order(parts: Sequence[Path]) -> Iterator[list[StoredEvent]]:
    """The events of all parts by position: where the clock went back, days overlap. One list a part."""
    waiting: list[StoredEvent] = []
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        waiting = sorted([*waiting, *_read(part)], key=lambda event: event.position)
        # All that is in later parts has a position of at least their names'.
        until = None if following is None else _first_position(following)
        certain = len(waiting)
        if until is not None:
            certain = bisect_left(waiting, until, key=lambda event: event.position)
        yield waiting[:certain]
        waiting = waiting[certain:]


def _first_position(part: Path) -> int:
    digits = part.name.removeprefix("part-").partition(".")[0]
    if not digits.isdecimal():
        raise InvalidImport(f"{part} is not named after a position, as an export names its parts")
    return int(digits)


def _take(connection: Connection, found: Sequence[StoredEvent], labels: dict[str, str]) -> tuple[int, int]:
    by_session: dict[str, list[StoredEvent]] = {}
    for event in found:
        by_session.setdefault(event.session_id, []).append(event)
    rows: list[dict[str, Any]] = []
    for session_id in sorted(by_session):
        rows += _session_rows(connection, session_id, by_session[session_id], labels.get(session_id))
    # In the order they were written, so that positions tell it here, too.
    order = {(event.session_id, event.sequence): place for place, event in enumerate(found)}
    rows.sort(key=lambda row: order[row["session_id"], row["sequence"]])
    if rows:
        _register_keys(connection, {row["key_id"]: row["recorded_at"] for row in reversed(rows)})
        connection.execute(insert(events), rows)
    return len(rows), len(found) - len(rows)


def _session_rows(
    connection: Connection, session_id: str, found: Sequence[StoredEvent], label: str | None
) -> list[dict[str, Any]]:
    row = connection.execute(
        select(sessions).where(sessions.c.session_id == session_id).with_for_update()
    ).first()
    stored = None if row is None else StoredSession._make(row)
    at = 0 if stored is None else stored.last_sequence
    previous = GENESIS if stored is None or stored.last_hash is None else stored.last_hash
    _compare_known(connection, [event for event in found if event.sequence <= at])
    new = [event for event in found if event.sequence > at]
    folded: list[NewEvent] = []
    for event in new:
        if event.sequence != at + 1:
            raise _refused(event, f"the session goes to number {at} in this log")
        if event.hash is None or event.previous_hash is None:
            raise _refused(event, "it is from before records had hashes: take a backup of that log instead")
        if record_hash(event, event.previous_hash) != event.hash:
            raise _refused(event, "it does not have the hash that was exported with it")
        if event.previous_hash != previous:
            raise _refused(event, "it does not continue the record before it")
        try:
            folded.append(NewEvent(event.event, event.sequence, event.recorded_at, event.call_id, event.hash))
        except InvalidEvent as error:
            raise _refused(event, str(error)) from None
        at, previous = event.sequence, event.hash
    if not new:
        return []
    model = SessionModel(stored, _known_calls(connection, new))
    present = set(model.calls)
    model.fold(session_id, label, folded)
    assert model.session is not None
    _write_models(connection, model, present, is_new=stored is None)
    period = period_of(model.session.started_at)
    return [_row(event, period) for event in new]


def _compare_known(connection: Connection, found: Sequence[StoredEvent]) -> None:
    if not found:
        return
    hashes = {
        row.sequence: row.hash
        for row in connection.execute(
            select(events.c.sequence, events.c.hash).where(
                events.c.session_id == found[0].session_id,
                events.c.sequence.between(found[0].sequence, found[-1].sequence),
            )
        )
    }
    for event in found:
        if hashes.get(event.sequence) != event.hash:
            raise _refused(event, "this log has another record with its number")


def _known_calls(connection: Connection, new: Sequence[StoredEvent]) -> dict[str, StoredCall]:
    ids = sorted({event.call_id for event in new if event.call_id is not None})
    found: dict[str, StoredCall] = {}
    for first in range(0, len(ids), 500):
        query = select(provider_calls).where(provider_calls.c.call_id.in_(ids[first : first + 500]))
        for row in connection.execute(query):
            call = StoredCall._make(row)
            if call.session_id == new[0].session_id:
                found[call.call_id] = call
    return found


def _write_models(connection: Connection, model: SessionModel, present: set[str], *, is_new: bool) -> None:
    assert model.session is not None
    values = model.session._asdict()
    if is_new:
        connection.execute(insert(sessions), values)
    else:
        connection.execute(sessions.update().where(sessions.c.session_id == model.session.session_id), values)
    added = [call._asdict() for key, call in model.calls.items() if key in model.changed - present]
    if added:
        connection.execute(insert(provider_calls), added)
    for call_id in model.changed & present:
        connection.execute(
            provider_calls.update().where(provider_calls.c.call_id == call_id), model.calls[call_id]._asdict()
        )


def _register_keys(connection: Connection, used: dict[str | None, datetime]) -> None:
    known = set(connection.scalars(select(log_keys.c.key_id)))
    for key_id, moment in used.items():
        if key_id is not None and key_id not in known:
            connection.execute(insert(log_keys), {"key_id": key_id, "first_used_at": moment})


def _row(event: StoredEvent, period: int) -> dict[str, Any]:
    # A position is this log's own.
    columns = [column.name for column in events.c if column.name != "position"]
    return {**{name: getattr(event, name) for name in columns}, "period": period}


def _labels(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / LABELS).read_text().splitlines()
        return {original(line["session_id"]): original(line["label"]) for line in map(json.loads, lines)}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidImport(f"{folder / LABELS} cannot be read: {error!r}") from None


def _read(part: Path) -> list[StoredEvent]:
    try:
        lines = _read_parquet(part) if part.suffix == ".parquet" else _read_lines(part)
        return [_event_of(line) for line in lines]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise InvalidImport(f"{part} cannot be read: {error!r}") from None


def _read_lines(part: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(part, "rt", encoding="ascii") as file:
        for line in file:
            yield json.loads(line)


def _read_parquet(part: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise InvalidImport("Parquet needs the export extra: context-paging[export]") from None
    lines: list[dict[str, Any]] = ParquetFile(part).read().to_pylist()
    return lines


def _event_of(line: dict[str, Any]) -> StoredEvent:
    moment = line["recorded_at"]
    call_id = line["call_id"]
    return StoredEvent(
        position=int(line["position"]),
        session_id=original(line["session_id"]),
        sequence=int(line["sequence"]),
        event_id=original(line["event_id"]),
        type=str(line["type"]),
        schema_version=int(line["schema_version"]),
        recorded_at=moment.astimezone(UTC)
        if isinstance(moment, datetime)
        else datetime.fromisoformat(moment),
        call_id=None if call_id is None else original(call_id),
        payload=str(line["payload"]),
        period=0,
        content_hash=_bytes(line["content_hash"]),
        key_id=line["key_id"],
        previous_hash=_bytes(line["previous_hash"]),
        hash=_bytes(line["hash"]),
        seal=_bytes(line["seal"]),
    )


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else bytes.fromhex(value)


def _refused(event: StoredEvent, reason: str) -> InvalidImport:
    return InvalidImport(f"record {event.sequence} of session {event.session_id!r}: {reason}")
