"""The commands, run as a user runs them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from context_paging.service.example import example_path
from context_paging.service.log import EventLog

from .conftest import Shell


def test_the_demo_shows_cuts_a_picture_and_totals(shell: Shell) -> None:
    shown = shell("demo")

    for text in ("Cuts and aborts", "advance", "Window over time", "█", "░", "budget", "prefix reuse"):
        assert text in shown.stdout
    assert "log: " in shown.stderr
    assert (shell.home / "data" / "context-paging" / "log.db").exists()


def test_a_stable_cut_reuses_more_than_a_sliding_window(shell: Shell) -> None:
    lines = shell("demo").stdout.splitlines()

    at = next(number for number, line in enumerate(lines) if line.startswith("prefix reuse"))
    stable, sliding = (float(lines[n].replace("prefix reuse", "").split("%")[0]) for n in (at, at + 1))
    assert stable > sliding


def test_replay_prints_one_object_a_context_request(shell: Shell) -> None:
    with example_path() as path:
        printed = shell("replay", path, "--token-budget", 8_000, "--json", "--log", "log.db").stdout

    answers = [json.loads(line) for line in printed.splitlines()]
    assert [answer["number"] for answer in answers] == list(range(1, len(answers) + 1))
    assert {answer["budget_tokens"] for answer in answers if answer["outcome"] != "aborted"} == {8_000}
    paged = next(answer for answer in answers if answer["outcome"] == "paged")
    assert {
        "estimated_tokens",
        "kept",
        "notice",
        "replaced",
        "frontier",
        "fallback",
        "outgoing_count",
    } <= set(paged)
    assert shell.json("sessions", "--log", "log.db")[0]["calls"] == len(answers)


def test_replay_reads_standard_input_plain_and_compressed(shell: Shell, broken: Path) -> None:
    for data in (broken.read_bytes(), gzip.compress(broken.read_bytes())):
        shown = shell("replay", "-", "--log", "log.db", stdin=data)
        assert "standard input" in shown.stdout


def test_replay_stops_at_the_limit(shell: Shell) -> None:
    with example_path() as path:
        printed = shell("replay", path, "--limit", 7, "--json", "--log", "log.db").stdout
        assert len(printed.splitlines()) == 7
        shell("replay", path, "--limit", 0, "--log", "log.db")


def test_the_target_and_the_window_are_taken(shell: Shell) -> None:
    with example_path() as path:
        shell(
            "replay",
            path,
            "--token-budget",
            9_000,
            "--trim-to",
            3_000,
            "--context-window",
            6_000,
            "--log",
            "l.db",
        )

    (call, *_) = shell.json("calls", "--log", "l.db")
    assert (call["budget_tokens"], call["target_tokens"], call["context_window"]) == (6_000, 2_000, 6_000)


def test_recorded_usage_calibrates(shell: Shell) -> None:
    with example_path() as path:
        plain = shell("replay", path, "--json", "--log", "l.db").stdout.splitlines()
        usage = shell("replay", path, "--json", "--recorded-usage", "--log", "l.db").stdout.splitlines()

    assert {json.loads(line)["context_tokens"] for line in plain} == {None}
    assert any(json.loads(line).get("context_tokens") for line in usage)


def test_a_postmortem_explains_an_abort_from_the_log_alone(shell: Shell, broken: Path) -> None:
    shell("replay", broken, "--log", "l.db")
    broken.unlink()
    (session,) = shell.json("sessions", "--log", "l.db")

    told = shell("postmortem", session["session_id"], "--last-abort", "--log", "l.db").stdout

    for text in ("INVALID_MESSAGE_STRUCTURE", "entry e1", "frontier before", "Events around the call"):
        assert text in told
    same = shell.json("postmortem", session["session_id"][:9], "--call", "2", "--log", "l.db")
    assert same["outcome"]["code"] == "INVALID_MESSAGE_STRUCTURE"


def test_a_postmortem_of_a_cut_splits_the_estimate(shell: Shell) -> None:
    with example_path() as path:
        shell("replay", path, "--token-budget", 8_000, "--log", "l.db")
    cut = next(call for call in shell.json("calls", "--log", "l.db") if call["advanced"])

    told = shell("postmortem", cut["session_id"], "--call", cut["call_id"], "--log", "l.db").stdout

    for text in (
        "resident input",
        "request",
        "units",
        "notice",
        "calibration",
        "frontier after",
        "Largest units",
    ):
        assert text in told
    parts = shell.json("postmortem", cut["session_id"], "--call", cut["call_id"], "--log", "l.db")["outcome"][
        "parts"
    ]
    assert sum(parts.values()) == pytest.approx(cut["estimated_tokens"])


def test_calls_are_listed_by_session_and_outcome(shell: Shell, broken: Path) -> None:
    shell("replay", broken, broken, "--log", "l.db")
    first, second = shell.json("sessions", "--log", "l.db")

    aborted = shell.json("calls", "--outcome", "aborted", "--session", first["session_id"], "--log", "l.db")

    assert [call["session_id"] for call in aborted] == [first["session_id"]]
    assert len(shell.json("calls", "--log", "l.db")) == 4
    assert second["label"] == "broken.jsonl"
    assert "INVALID_MESSAGE_STRUCTURE" in shell("calls", "--log", "l.db").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay", "nothing.jsonl"), "nothing.jsonl cannot be read: No such file"),
        (("replay", "."), "cannot be read"),
        (("replay", "empty.jsonl"), "holds no session entries"),
        (("postmortem", "nobody"), "no session 'nobody'"),
        (("calls", "--session", "nobody"), "no session 'nobody'"),
        (("sessions", "--log", "nowhere/log.db"), "does not exist"),
        (("sessions", "--log", "empty.txt"), "cannot be used"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line_and_exit_status_1(
    shell: Shell, arguments: tuple[str, ...], told: str
) -> None:
    (shell.home / "empty.jsonl").touch()
    (shell.home / "empty.txt").write_text(
        "not a database, but a text that is long enough to be looked at " * 20
    )

    shown = shell(*arguments, code=1)

    assert told in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay",),
        ("replay", "x", "--token-budget", "0"),
        ("replay", "x", "--token-budget", "many"),
        ("replay", "x", "--limit", "-1"),
        ("calls", "--outcome", "perfect"),
        ("postmortem", "x", "--call", "1", "--last-abort"),
    ],
)
def test_wrong_arguments_are_exit_status_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    shell(*arguments, code=2)


def test_a_session_without_aborts_has_no_last_abort(shell: Shell) -> None:
    with example_path() as path:
        shell("replay", path, "--limit", 2, "--log", "l.db")
    (session,) = shell.json("sessions", "--log", "l.db")

    assert (
        "no aborted provider call"
        in shell("postmortem", session["session_id"], "--last-abort", "--log", "l.db", code=1).stderr
    )


def test_one_bad_file_does_not_stop_the_others(shell: Shell, broken: Path) -> None:
    shown = shell("replay", "nothing.jsonl", broken, "--log", "l.db", code=1)

    assert "broken.jsonl" in shown.stdout


def test_problems_of_a_file_are_told_with_line_numbers(shell: Shell, broken: Path) -> None:
    broken.write_text(broken.read_text() + '{"type": "mess\n')

    assert "broken.jsonl: line 6: not JSON" in shell("replay", broken, "--log", "l.db").stderr


def test_what_was_logged_before_a_failure_stays(shell: Shell, broken: Path) -> None:
    shell("replay", broken, "--log", "l.db")
    shell("replay", "nothing.jsonl", "--log", "l.db", code=1)

    with EventLog.open(str(shell.home / "l.db")) as log:
        assert log.sessions()[0].calls == 2


def test_the_log_may_be_named_by_the_environment(
    shell: Shell, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_PAGING_LOG", "named.db")

    shell("replay", broken)

    assert (shell.home / "named.db").exists()
