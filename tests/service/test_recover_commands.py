"""`search`, `browse`, `load`, `read`, `stats`, and `replay --repair`, run as a user runs them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from context_paging.domain.json_text import stringify
from context_paging.service.example import example_path
from context_paging.service.session_file import read_session_file

from .conftest import Shell


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The bundled example."""
    with example_path() as path:
        copied = tmp_path / "a day's work.jsonl.gz"
        copied.write_bytes(path.read_bytes())
    return copied


@pytest.fixture
def dead(tmp_path: Path, example: Path) -> Path:
    """The example up to its compaction, begun at a result whose call is lost: every call aborts."""
    lines = gzip.decompress(example.read_bytes()).decode().splitlines()
    entries = [json.loads(line) for line in lines]
    first = next(
        number
        for number, entry in enumerate(entries)
        if entry.get("message", {}).get("stopReason") == "toolUse"
    )
    last = next(number for number, entry in enumerate(entries) if entry["type"] == "compaction")
    path = tmp_path / "dead.jsonl"
    path.write_text("\n".join(lines[:1] + lines[first + 1 : last]) + "\n")
    return path


def test_search_shows_what_it_finds(shell: Shell, example: Path) -> None:
    shown = shell("search", example, "counter-check tests").stdout
    found = shell.json("search", example, "counter-check tests")["references"]

    assert len(found) == 5
    for reference in found:
        assert reference["historyId"] in shown
        assert reference["preview"][:20] in shown


def test_search_filters(shell: Shell, example: Path) -> None:
    found = shell.json("search", example, "--tool", "bash", "--failed", "--limit", 10)["references"]
    assert found
    assert all("bash" in reference["tools"] and reference["failed"] for reference in found)
    path = next(reference["files"][0] for reference in shell.json("search", example, "read")["references"])
    named = shell.json("search", example, "--file", path)["references"]
    assert all(path in reference["files"] for reference in named)
    assert "nothing found" in shell("search", example, "xyzzy").stderr


def test_browse_steps_through(shell: Shell, example: Path) -> None:
    forward = shell.json("browse", example, "--direction", "forward", "--count", 3)["references"]
    assert [reference["sequence"] for reference in forward] == [0, 1, 2]
    anchor = forward[-1]["historyId"]
    backward = shell.json("browse", example, "--from", anchor, "--stride", 2)["references"]
    assert [reference["sequence"] for reference in backward] == [0]
    assert anchor in shell("browse", example, "--sequence", 2, "--direction", "around").stdout


def test_load_prints_items_exactly(shell: Shell, example: Path) -> None:
    file = read_session_file(example)
    entry = next(e for e in file.entries if e.get("message", {}).get("role") == "user")
    shown = shell("load", example, entry["id"]).stdout
    content = entry["message"]["content"]
    assert (content if isinstance(content, str) else content[0]["text"]) in shown
    item = shell.json("load", example, entry["id"])["items"][0]
    assert item["userMessage"] == entry["message"]


def test_read_prints_pages_and_whole_outputs(shell: Shell, example: Path) -> None:
    file = read_session_file(example)
    results = [e for e in file.entries if e.get("message", {}).get("role") == "toolResult"]
    longest = max(results, key=lambda entry: len(json.dumps(entry)))
    turn = longest["parentId"]
    parents = {entry["id"]: entry for entry in file.entries}
    while parents[turn]["message"]["role"] != "assistant":
        turn = parents[turn]["parentId"]
    call = longest["message"]["toolCallId"]

    page = shell("read", example, turn, "--call", call)
    whole = shell("read", example, turn, "--call", call, "--all")

    assert whole.stdout == stringify(longest["message"]) + "\n"
    assert whole.stdout.startswith(page.stdout[:-1])
    assert "go on with --offset 2000" in page.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("load", "nope"), "there is no history item 'nope'"),
        (("read", "nope", "--block", 0), "there is no history item 'nope'"),
        (("browse", "--direction", "sideways"), "direction"),
        (("search", "x" * 201), "query"),
    ],
)
def test_a_refusal_is_one_clear_line(shell: Shell, example: Path, arguments: Any, told: str) -> None:
    command, *rest = arguments
    done = shell(command, example, *rest, code=1)

    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_stats_of_a_file(shell: Shell, example: Path) -> None:
    shown = shell("stats", example).stdout
    found = shell.json("stats", example, "--context-window", 16_000)

    assert f"Stored session: {example.stat().st_size:,} bytes" in shown
    assert found["stored_bytes"] == example.stat().st_size
    assert found["budget_tokens"] == 16_000
    assert found["cache_read"] > 0
    through_a_pipe = shell("stats", "-", "--json", stdin=example.read_bytes())
    assert json.loads(through_a_pipe.stdout)["stored_bytes"] is None


def test_stats_count_as_a_variable_says(shell: Shell, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = shell.json("stats", example)
    monkeypatch.setenv("CONTEXT_PAGING_ESTIMATOR", "cl100k_base")
    counted = shell.json("stats", example)

    assert counted["history_tokens"] != plain["history_tokens"]


def test_a_dead_session_lives_with_repair(shell: Shell, dead: Path) -> None:
    before = shell("replay", dead, "--log", "log.db").stdout
    after = shell("replay", "--repair", dead, "--log", "log.db").stdout
    total = next(line for line in before.splitlines() if line.startswith("calls"))

    assert total.split()[1] == total.split()[2]
    assert "aborted (INVALID_MESSAGE_STRUCTURE)" in total
    assert "aborted" not in next(line for line in after.splitlines() if line.startswith("calls"))
    assert "orphan-result" in next(line for line in after.splitlines() if line.startswith("repairs"))
    session = shell.json("sessions", "--log", "log.db")[-1]["session_id"]
    assert "structure-repaired" in shell("timeline", session, "--limit", 1_000, "--log", "log.db").stdout
    shown = shell("postmortem", session, "--call", 1, "--log", "log.db").stdout
    assert "structure-repaired: orphan-result" in shown


def test_recovery_of_a_dead_session_names_the_way_out(shell: Shell, dead: Path) -> None:
    assert "--repair" in shell("search", dead, "tests", code=1).stderr
    assert shell.json("search", dead, "tests", "--repair")["references"]
    assert shell.json("search", dead, "testing", "--repair", "--expand")["references"]


def test_a_terminal_without_unicode_gets_escapes(
    shell: Shell, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")

    assert shell("search", example, "tests").stdout.isascii()
    assert shell("browse", example, "--count", 10).stdout.isascii()
    assert shell("demo", "--log", "log.db").stdout.isascii()


def test_half_a_character_is_printed_as_its_escape(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "half.jsonl"
    message = {"role": "user", "content": "half \ud83d and whole 😀"}
    path.write_text(json.dumps({"type": "message", "id": "e0", "parentId": None, "message": message}))

    assert "half \\ud83d and whole 😀" in shell("load", path, "e0").stdout
    assert "half \\ud83d" in shell("search", path, "half").stdout
    assert json.loads(shell("load", path, "e0", "--json").stdout)["items"][0]["userMessage"] == message
