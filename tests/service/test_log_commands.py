"""The commands that look after the log, run as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from context_paging.service.log import EventLog, LogOptions, Payloads

from .conftest import Shell
from .log.events import small_session

LOG = ("--log", "l.db")


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """A shell with a log of three sessions."""
    with EventLog.open(str(shell.home / "l.db"), LogOptions(payloads=Payloads.FULL)) as log:
        for name in ("first", "second", "third"):
            kept = [record._replace(content="text") for record in small_session(name)]
            log.append(name, 0, kept, label=f"{name}.jsonl")
    return shell


def test_verify_finds_a_byte_that_was_changed_with_the_sqlite3_shell(filled: Shell) -> None:
    assert "of them altered: 0; records: 27" in filled("verify", *LOG).stdout
    with closing(sqlite3.connect(filled.home / "l.db")) as connection:
        connection.execute("UPDATE events SET payload = replace(payload, '1000', '1001') WHERE position = 10")
        connection.commit()

    told = filled("verify", *LOG, code=1).stdout
    assert "session second: record 1 (position 10) is altered" in told
    assert "third" not in told
    (finding,) = json.loads(filled("verify", *LOG, "--json", code=1).stdout)["findings"]
    assert (finding["session_id"], finding["sequence"], finding["fault"]) == ("second", 1, "altered")
    filled("verify", "--session", "first", *LOG)
    filled("verify", "--session", "second", *LOG, code=1)
    assert "no session 'fourth'" in filled("verify", "--session", "fourth", *LOG, code=1).stderr


def test_an_anchor_is_made_kept_and_checked(filled: Shell) -> None:
    filled("anchor-key", "key.pem")
    filled("anchor", "--key", "key.pem", "--output", "anchor.json", *LOG)
    printed = filled("anchor", "--key", "key.pem", *LOG).stdout
    check = ("verify", "--anchor", "anchor.json", "--public-key", "key.pem.pub", *LOG)

    assert len(json.loads(printed)["heads"]) == 3
    assert "Nothing was rewritten" in filled(*check).stdout
    with closing(sqlite3.connect(filled.home / "l.db")) as connection:
        connection.execute("DELETE FROM events WHERE session_id = 'third'")
        connection.execute("DELETE FROM sessions WHERE session_id = 'third'")
        connection.commit()
    told = filled(*check, code=1).stdout
    assert "session third: record 9 is not what the anchor" in told
    assert "of them altered: 0" in told
    assert "cannot be read" in filled("verify", "--anchor", "nothing.json", *LOG, code=1).stderr
    filled("verify", "--public-key", "key.pem.pub", *LOG, code=2)
    assert "cannot be written" in filled("anchor-key", "key.pem", code=1).stderr


def test_pages_lead_from_one_to_the_next(filled: Shell) -> None:
    first = filled("calls", "--limit", 4, *LOG, "--json")
    cursor = first.stderr.strip().rpartition(" ")[2]
    second = filled("calls", "--limit", 5, "--cursor", cursor, *LOG, "--json")

    ids = [call["call_id"] for page in (second, first) for call in json.loads(page.stdout)]
    assert sorted(ids) == [f"{name}-call-{n}" for name in ("first", "second", "third") for n in (1, 2, 3)]
    assert "--cursor" not in second.stderr
    assert "not the cursor" in filled("calls", "--cursor", "what?", *LOG, code=1).stderr
    assert len(filled.json("timeline", "third", "--limit", 3, *LOG)) == 3
    assert "later events" in filled("timeline", "third", "--limit", 3, *LOG).stderr


def test_sessions_and_calls_are_found_by_what_they_were(filled: Shell) -> None:
    assert len(filled.json("sessions", "--host", "tests", "--aborted", *LOG)) == 3
    assert filled.json("sessions", "--not-aborted", *LOG) == []
    assert [s["session_id"] for s in filled.json("sessions", "--prefix", "th", *LOG)] == ["third"]
    assert len(filled.json("calls", "--code", "ACTIVE_REQUEST_TOO_LARGE", "--model", "m-1", *LOG)) == 3
    assert filled.json("calls", "--since", "1d", *LOG) == []
    assert len(filled.json("calls", "--before", "2026-03-02", "--host", "tests", *LOG)) == 9
    assert filled.json("calls", "--before", "2026-03-01T12:00+01:00", *LOG) == []


@pytest.mark.parametrize("time", ["", "tomorrow", "7y", "2026-13-01", "99999999999w"])
def test_what_is_no_time_is_told(filled: Shell, time: str) -> None:
    assert "is no time" in filled("calls", "--since", time, *LOG, code=2).stderr


def test_the_tail_is_printed_and_followed(filled: Shell) -> None:
    lines = filled("tail", "--last", 3, *LOG).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["25", "26", "27"]
    assert len(filled("tail", "--after", 20, "--json", *LOG).stdout.splitlines()) == 7

    # What runs in the background may have been told to ignore interruptions.
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from context_paging.service.cli import main; main()"
    )
    command = [sys.executable, "-c", script]
    follower = subprocess.Popen(
        [*command, "tail", "--follow", "--last", "1", *LOG],
        cwd=filled.home,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stdout.readline().startswith("27 ")
    with EventLog.open(str(filled.home / "l.db")) as log:
        log.append("fourth", 0, small_session("fourth"))
        log.flush()
    assert "fourth" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=30)
    assert follower.returncode == 130


def test_a_log_is_exported_and_imported(filled: Shell) -> None:
    for flag, folder in (("--jsonl", "lines"), ("--parquet", "table")):
        assert "27 events written" in filled("export", folder, flag, *LOG).stdout
        assert "0 events written" in filled("export", folder, flag, *LOG).stdout
        told = filled("import", folder, "--log", f"{folder}.db").stdout
        assert "27 events taken in; 0 were there already" in told
        told = filled("verify", "--log", f"{folder}.db", "--key-file", "l.db.key").stdout
        assert "of them altered: 0; records: 27." in told
        assert filled.json("calls", "--log", f"{folder}.db") == filled.json("calls", *LOG)
    filled("export", "both", "--jsonl", "--parquet", *LOG, code=2)
    assert "holds no export" in filled("import", "nothing", *LOG, code=1).stderr


def test_a_log_is_backed_up(filled: Shell) -> None:
    filled("backup", "copy.db", *LOG)

    assert len(filled.json("sessions", "--log", "copy.db")) == 3
    assert "there already" in filled("backup", "copy.db", *LOG, code=1).stderr


def test_read_models_are_made_again(filled: Shell) -> None:
    before = filled.json("calls", *LOG)
    with closing(sqlite3.connect(filled.home / "l.db")) as connection:
        connection.execute("DELETE FROM provider_calls")
        connection.commit()

    assert "3 sessions" in filled("rebuild", *LOG).stdout

    assert filled.json("calls", *LOG) == before


def test_contents_and_sessions_go_when_somebody_says_so(filled: Shell) -> None:
    filled("erase", "first", *LOG, code=1, stdin=b"n\n")
    assert "9 stored contents" in filled("erase", "first", *LOG, stdin=b"y\n").stdout
    assert "0 stored contents" in filled("erase", "first", "--yes", *LOG).stdout
    assert "session first is gone" in filled("retire", "first", "--yes", *LOG).stdout
    assert "no session 'first'" in filled("erase", "first", "--yes", *LOG, code=1).stderr
    assert "0 sessions" in filled("retire", "--older-than", "2026-03-01", "--yes", *LOG).stdout
    assert "2 sessions" in filled("retire", "--older-than", "1d", "--yes", *LOG).stdout
    filled("retire", "--yes", *LOG, code=2)
    filled("retire", "x", "--older-than", "1d", "--yes", *LOG, code=2)
    assert "altered: 0; records: 0" in filled("verify", *LOG).stdout


def test_the_schema_is_looked_at_and_moved(filled: Shell) -> None:
    assert "database: 0002" in filled("db", "current", *LOG).stdout
    filled("db", "check", *LOG)
    filled("db", "downgrade", "0001", *LOG, code=1, stdin=b"n\n")
    assert "database: 0001" in filled("db", "downgrade", "0001", "--yes", *LOG).stdout
    assert "db upgrade" in filled("db", "check", *LOG, code=1).stderr
    assert "database: 0002" in filled("db", "upgrade", *LOG).stdout
    assert "cannot be moved" in filled("db", "upgrade", "0404", *LOG, code=1).stderr
    assert "database: none" in filled("db", "current", "--log", "new.db").stdout
    assert "PARTITION BY LIST" in filled("db", "upgrade", "--sql", "postgresql").stdout
    assert "DROP TABLE log_keys" in filled("db", "downgrade", "0002:0001", "--sql", "sqlite").stdout
    filled("db", "downgrade", "0001", "--sql", "sqlite", code=2)
    filled("db", "upgrade", "--sql", "mysql", code=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("DURABILITY", "never"), ("AUDIT", "maybe"), ("PAYLOADS", "half"), ("LOG", "")],
)
def test_a_variable_that_says_nothing_known_is_told(
    shell: Shell, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CONTEXT_PAGING_{name}", value)

    assert f"CONTEXT_PAGING_{name}: " in shell("sessions", code=1).stderr


def test_variables_say_how_the_log_is_kept(
    shell: Shell, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LOG": "l.db",
        "DURABILITY": "sync",
        "PAYLOADS": "full",
        "SPOOL": "elsewhere",
        "KEY_FILE": "the.key",
    }.items():
        monkeypatch.setenv(f"CONTEXT_PAGING_{name}", value)

    shell("replay", broken)

    assert (shell.home / "the.key").exists()
    options = LogOptions(key_file=shell.home / "the.key")
    with EventLog.open(str(shell.home / "l.db"), options) as log:
        (session,) = log.sessions()
        kept: list[Any] = [
            log.content(session.session_id, event.sequence) for event in log.tail(follow=False)
        ]
    assert [{"role": "user", "content": "go"}] in kept
    assert os.listdir(shell.home).count("l.db.key") == 0


@pytest.mark.parametrize("name", ["[/red]x", "[red]x[/red]", "\ud800x", "a\x00b"], ids=ascii)
def test_ids_that_look_like_something_else_are_shown_as_they_are(shell: Shell, name: str) -> None:
    with EventLog.open(str(shell.home / "l.db")) as log:
        log.append(name, 0, small_session(name), label=name)

    shown = name.encode("utf-8", "backslashreplace").decode()
    assert shown.replace("\x00", "") in shell("sessions", *LOG).stdout.replace("\x00", "")
    shell("calls", *LOG)
    shell("tail", *LOG)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("tail", "--after", "99999999999999999999"), 2),
        (("timeline", "first", "--cursor", "WzEwMDAwMDAwMDAwMDAwMDAwMDAwMDBd"), 1),
        (("timeline", "first", "--cursor", "W0luZmluaXR5XQ"), 1),
        (("timeline", "FIRST"), 1),
        (("calls", "--since", "0001-01-01T00:00+05:00"), 2),
        (("anchor", "--key", "key.pem", "--output", "no/such.json"), 1),
        (("verify", "--anchor", "deep.json"), 1),
        (("db", "upgrade", "heads+1"), 1),
    ],
)
def test_odd_arguments_are_one_clear_line(filled: Shell, arguments: tuple[str, ...], code: int) -> None:
    filled("anchor-key", "key.pem")
    (filled.home / "deep.json").write_text("[" * 100_000)

    assert filled(*arguments, *LOG, code=code).stderr


@pytest.mark.parametrize(
    "location", ["~nosuch/x.db", "postgresql+psycopg://h:port/x", "sqlite:///d.db?timeout=abc"]
)
def test_odd_locations_are_one_clear_line(shell: Shell, location: str) -> None:
    assert "context-paging: " in shell("sessions", "--log", location, code=1).stderr
