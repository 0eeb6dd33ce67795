"""Export, import and backup."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from context_paging.domain.events import ModelSelected, StatusPublished
from context_paging.service.log import (
    EventLog,
    InvalidImport,
    LogKey,
    LogOptions,
    LogUnavailable,
    StoredEvent,
)
from context_paging.service.log.transfer import export as exporting
from context_paging.service.log.transfer.backup import backup
from context_paging.service.log.transfer.export import ExportFormat, export
from context_paging.service.log.transfer.importing import import_folder

from .events import records, requested, small_session, started
from .growth import session_bytes
from .test_durability import status, texts

FORMATS = list(ExportFormat)
ODD = "half \ud83d a NUL \x00 ü"


@pytest.fixture
def filled(log: EventLog) -> EventLog:
    """A log of three sessions over three days, one with names that no database takes."""
    log.append("s", 0, small_session(), label="tides.jsonl")
    late = [
        record._replace(recorded_at=record.recorded_at + timedelta(days=number // 4))
        for number, record in enumerate(small_session("t"))
    ]
    log.append("t", 0, late)
    log.append(ODD, 0, records(ModelSelected(model=ODD), (requested(), ODD), session=ODD), label=ODD)
    log.append("s", 9, records(started(), first=10))
    log.flush()
    return log


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EventLog]:
    """Another log."""
    with EventLog.open(str(tmp_path / "other.db")) as opened:
        yield opened


def alike(event: StoredEvent) -> dict[str, Any]:
    """What an event is in every log."""
    return {**exporting.line_of(event), "position": None}


def lines_of(part: Path) -> list[dict[str, Any]]:
    """The lines of a part."""
    with gzip.open(part, "rt") as file:
        return [json.loads(line) for line in file]


def parts(folder: Path) -> list[str]:
    """The parts of an export."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob("events/*/*"))


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_is_imported_as_it_was(
    filled: EventLog, other: EventLog, tmp_path: Path, kind: ExportFormat
) -> None:
    folder = tmp_path / "export"
    assert export(filled, folder, kind).events == 21

    imported = import_folder(other, folder)

    assert (imported.events, imported.known) == (21, 0)
    # On one position of time, what comes first is a matter of ids, which are the same.
    assert other.sessions() == filled.sessions()
    assert other.calls() == filled.calls()
    for session in filled.sessions():
        here, there = (map(alike, log.events(session.session_id)) for log in (filled, other))
        assert list(here) == list(there)
    key = filled._the_key()
    assert [(r.finding, r.unchecked_seals) for r in other.verify(keys=[LogKey(key._secret)])] == [
        (None, 0)
    ] * 3
    assert (import_folder(other, folder).events, import_folder(other, folder).known) == (0, 21)
    before = other.sessions(), other.calls()
    other.rebuild()
    assert (other.sessions(), other.calls()) == before


@pytest.mark.parametrize("kind", FORMATS)
def test_sessions_whose_clock_went_back_over_midnight_are_imported(
    log: EventLog, other: EventLog, tmp_path: Path, kind: ExportFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "AT_ONCE", 9)
    for session in ("s", "t"):
        for number, record in enumerate(small_session(session)):
            moved = record._replace(recorded_at=record.recorded_at - timedelta(days=(number * 7) % 4))
            log.append(session, number, [moved])
    export(log, tmp_path / "export", kind)

    assert import_folder(other, tmp_path / "export").events == 18

    assert [alike(event) for event in other.tail(follow=False)] == [
        alike(event) for event in log.tail(follow=False)
    ]


def test_an_imported_session_goes_on(filled: EventLog, other: EventLog, tmp_path: Path) -> None:
    export(filled, tmp_path / "export", ExportFormat.JSONL)
    import_folder(other, tmp_path / "export")

    other.append("s", 10, records(started(), first=11))
    other.flush()

    assert other.session("s").last_sequence == 11
    assert all(result.finding is None for result in other.verify())


@pytest.mark.parametrize("kind", FORMATS)
def test_events_are_by_day(filled: EventLog, tmp_path: Path, kind: ExportFormat) -> None:
    export(filled, tmp_path / "export", kind)

    suffix = "parquet" if kind is ExportFormat.PARQUET else "jsonl.gz"
    days = [part.split("/")[1] for part in parts(tmp_path / "export")]
    assert days == ["day=2026-03-01", "day=2026-03-02", "day=2026-03-03"]
    assert all(part.endswith(suffix) for part in parts(tmp_path / "export"))


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_goes_on_where_it_ended(
    filled: EventLog, other: EventLog, tmp_path: Path, kind: ExportFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "AT_ONCE", 7)
    folder = tmp_path / "export"
    told: list[int] = []
    first = export(filled, folder, kind, told.append)
    filled.append("s", 10, records(started(), first=11))

    second = export(filled, folder, kind)
    third = export(filled, folder, kind)

    assert (first.events, second.events, third.events) == (21, 1, 0)
    assert second.position == third.position == filled.last_position()
    assert told == [7, 7, 7]
    assert import_folder(other, folder).events == 22


@pytest.mark.parametrize("failing", range(1, 9))
def test_an_export_that_was_interrupted_has_no_event_twice(
    filled: EventLog, other: EventLog, tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "AT_ONCE", 6)
    folder = tmp_path / "export"
    replaced = 0
    replace = Path.replace

    def replace_some(path: Path, target: Path) -> Path:
        nonlocal replaced
        replaced += 1
        if replaced == failing:
            raise OSError(5, "the disk is broken", str(target))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace_some)
    with pytest.raises(LogUnavailable, match="disk is broken"):
        export(filled, folder, ExportFormat.JSONL)
    filled.append("s", 10, records(started(), first=11))
    export(filled, folder, ExportFormat.JSONL)

    positions = [
        line["position"] for part in (folder / "events").glob("day=*/part-*") for line in lines_of(part)
    ]
    assert sorted(positions) == [event.position for event in filled.tail(follow=False)]
    assert import_folder(other, folder).events == 22


def test_the_same_events_make_the_same_files(filled: EventLog, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export(filled, tmp_path / name, ExportFormat.JSONL)

    for part in parts(tmp_path / "a"):
        assert (tmp_path / "a" / part).read_bytes() == (tmp_path / "b" / part).read_bytes()


def test_a_folder_of_something_else_is_left_alone(filled: EventLog, other: EventLog, tmp_path: Path) -> None:
    export(filled, tmp_path / "export", ExportFormat.JSONL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("text")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "export.json").write_text("{")

    with pytest.raises(LogUnavailable, match="something else"):
        export(filled, tmp_path / "mine", ExportFormat.JSONL)
    with pytest.raises(LogUnavailable, match="how far"):
        export(filled, tmp_path / "broken", ExportFormat.JSONL)
    with pytest.raises(LogUnavailable, match="of log"):
        export(other, tmp_path / "export", ExportFormat.JSONL)
    with pytest.raises(LogUnavailable, match="as jsonl"):
        export(filled, tmp_path / "export", ExportFormat.PARQUET)
    with pytest.raises(LogUnavailable, match="cannot be written"):
        export(filled, tmp_path / "mine" / "thesis.txt", ExportFormat.JSONL)
    with pytest.raises(InvalidImport, match="no export"):
        import_folder(other, tmp_path / "mine")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: {**line, "payload": line["payload"].replace("1000", "9000")}, "hash"),
        (lambda line: {**line, "hash": "00" * 32}, "hash"),
        (lambda line: {**line, "sequence": line["sequence"] + 1}, "goes to number"),
        (lambda line: {**line, "hash": None}, "backup"),
        (lambda line: {**line, "recorded_at": "yesterday"}, "cannot be read"),
        (lambda line: {key: value for key, value in line.items() if key != "seal"}, "cannot be read"),
        (lambda line: [], "cannot be read"),
    ],
)
def test_an_export_that_was_changed_is_refused(
    filled: EventLog, other: EventLog, tmp_path: Path, change: Any, reason: str
) -> None:
    folder = tmp_path / "export"
    export(filled, folder, ExportFormat.JSONL)
    part = folder / parts(folder)[0]
    first, *rest = lines_of(part)
    with gzip.open(part, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in [change(first), *rest])

    with pytest.raises(InvalidImport, match=reason):
        import_folder(other, folder)

    assert other.sessions() == []


def test_a_part_that_is_missing_or_cut_is_told(filled: EventLog, other: EventLog, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    export(filled, folder, ExportFormat.JSONL)
    cut = shutil.copytree(folder, tmp_path / "cut") / parts(folder)[1]
    cut.write_bytes(cut.read_bytes()[:-20])
    (folder / parts(folder)[1]).unlink()

    with pytest.raises(InvalidImport, match="goes to number"):
        import_folder(other, folder)
    with pytest.raises(InvalidImport, match="cannot be read"):
        import_folder(other, tmp_path / "cut")


def test_ids_that_another_session_has_are_told(filled: EventLog, other: EventLog, tmp_path: Path) -> None:
    export(filled, tmp_path / "export", ExportFormat.JSONL)
    other.append("u", 0, records((requested(), "s-call-1"), session="u"))
    other.flush()

    with pytest.raises(InvalidImport, match="has an id"):
        import_folder(other, tmp_path / "export")
    assert [session.session_id for session in other.sessions()] == ["u"]


@pytest.mark.parametrize("place", [0, 200, -20, -5])
def test_a_part_with_a_changed_byte_is_told(
    filled: EventLog, other: EventLog, tmp_path: Path, place: int
) -> None:
    folder = tmp_path / "export"
    export(filled, folder, ExportFormat.JSONL)
    part = folder / parts(folder)[0]
    content = bytearray(part.read_bytes())
    content[place] ^= 0xFF
    part.write_bytes(content)

    with pytest.raises(InvalidImport):
        import_folder(other, folder)


def test_a_session_that_went_another_way_here_is_refused(
    filled: EventLog, other: EventLog, tmp_path: Path
) -> None:
    export(filled, tmp_path / "export", ExportFormat.JSONL)
    other.append("s", 0, records(started()))
    other.flush()

    with pytest.raises(InvalidImport, match="another record"):
        import_folder(other, tmp_path / "export")


def test_an_export_answers_questions_in_duckdb(filled: EventLog, tmp_path: Path) -> None:
    aborts = []
    for kind, source in (
        (ExportFormat.PARQUET, "read_parquet('{}/events/*/*.parquet', hive_partitioning = true)"),
        (ExportFormat.JSONL, "read_json('{}/events/*/*.jsonl.gz', hive_partitioning = true)"),
    ):
        folder = tmp_path / kind
        export(filled, folder, kind)
        rows = (
            duckdb.connect()
            .execute(
                "SELECT CAST(day AS VARCHAR), payload->>'$.rule', count(*) "
                f"FROM {source.format(folder)} WHERE type = 'context-aborted' GROUP BY ALL ORDER BY ALL"
            )
            .fetchall()
        )
        aborts.append(rows)

    assert (
        aborts[0]
        == aborts[1]
        == [
            ("2026-03-01", "request-over-budget", 1),
            ("2026-03-03", "request-over-budget", 1),
        ]
    )


def test_a_backup_is_a_log_of_its_own_while_the_log_is_in_use(tmp_path: Path) -> None:
    stop = threading.Event()
    with EventLog.open(str(tmp_path / "log.db"), LogOptions(durability="sync")) as log:
        log.append("s", 0, [status(number) for number in range(2_000)])

        def write() -> None:
            number = 2_000
            while not stop.is_set():
                number = log.append("s", number, [status(number)])

        writer = threading.Thread(target=write)
        writer.start()
        told: list[tuple[int, int]] = []
        backup(log, tmp_path / "copy.db", lambda done, of: told.append((done, of)))
        stop.set()
        writer.join()
        shutil.copy(tmp_path / "log.db.key", tmp_path / "copy.db.key")
        with EventLog.open(str(tmp_path / "copy.db")) as copy:
            found = texts(copy)
            assert found == [str(number) for number in range(len(found))]
            assert len(found) >= 2_000
            assert copy.id == log.id
            assert [(r.finding, r.unchecked_seals) for r in copy.verify()] == [(None, 0)]
        assert told[-1][0] == told[-1][1]


def test_a_backup_ends_although_another_process_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with EventLog.open(path, LogOptions(durability="sync")) as log:
        log.append(
            "s",
            0,
            [status(number)._replace(event=StatusPublished(text="y" * 1_000_000)) for number in range(40)],
        )
        script = (
            "import sys\n"
            "from context_paging.service.log import EventLog, LogOptions\n"
            "from tests.service.log.test_durability import status\n"
            "with EventLog.open(sys.argv[1], LogOptions(durability='sync')) as log:\n"
            "    print('writing', flush=True)\n"
            "    number = 0\n"
            "    while True:\n"
            "        number = log.append('w', number, [status(number, 'w')])\n"
        )
        writer = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        try:
            backup(log, tmp_path / "copy.db")
        finally:
            still = writer.poll() is None
            writer.kill()
            writer.communicate()

        assert still
    with EventLog.open(str(tmp_path / "copy.db")) as copy:
        assert copy.session("s").events == 40
        assert all(result.finding is None for result in copy.verify())


def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    with EventLog.open(str(tmp_path / "log.db")) as log:
        log.append("s", 0, small_session())
        with pytest.raises(LogUnavailable, match="there already"):
            backup(log, tmp_path / "copy.db")
        with pytest.raises(LogUnavailable, match="cannot be written"):
            backup(log, tmp_path / "nowhere" / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"
    assert not list(tmp_path.glob(".copy*"))


def test_only_a_sqlite_file_can_be_backed_up(postgres: str, tmp_path: Path) -> None:
    with EventLog.open(postgres) as log, pytest.raises(LogUnavailable, match="pg_dump"):
        backup(log, tmp_path / "copy.db")
    with EventLog.open() as log, pytest.raises(LogUnavailable, match="not a SQLite file"):
        backup(log, tmp_path / "copy.db")


def test_a_log_grows_with_its_session_and_not_faster(tmp_path: Path) -> None:
    sizes = {
        messages: session_bytes(tmp_path / f"{messages}.db", messages) for messages in (1_000, 2_000, 4_000)
    }

    first, second = sizes[2_000] - sizes[1_000], sizes[4_000] - sizes[2_000]
    assert 1.8 < second / first < 2.2, sizes
    with closing(sqlite3.connect(tmp_path / "4000.db")) as connection:
        (most,) = connection.execute("SELECT max(length(payload)) FROM events").fetchone()
    assert most < 100_000


def test_the_documented_questions_have_answers(filled: EventLog, tmp_path: Path) -> None:
    export(filled, tmp_path / "folder", ExportFormat.PARQUET)
    guide = (Path(__file__).parents[3] / "ops" / "log.md").read_text()
    found = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)

    for question in found:
        rows = duckdb.connect().execute(question.replace("'folder/", f"'{tmp_path}/folder/")).fetchall()
        assert rows, question
    assert len(found) == 3
