"""`what-if` and what would have saved a call, from a real log and as commands."""

from __future__ import annotations

from pathlib import Path

from context_paging.domain.what_if import Change
from context_paging.service.example import example_path
from context_paging.service.log import EventLog
from context_paging.service.replay import ReplayOptions, replay
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file
from context_paging.service.what_if import call_json, differs, what_if

from .conftest import Shell


def settings(budget: int) -> ReplayOptions:
    """A replay with a budget."""
    return ReplayOptions(global_settings={"contextPaging": {"tokenBudget": budget}})


def test_a_logged_session_is_decided_as_a_replay_with_those_settings_would_be(tmp_path: Path) -> None:
    with example_path() as path:
        file = read_session_file(path)
    with EventLog.open(str(tmp_path / "log.db")) as log:
        for name, budget in (("small", 3_000), ("large", 16_000)):
            for _ in replay(file, Session(name, sink=log), settings(budget)):
                pass
        same = list(what_if(log, "small", Change()))
        changed = list(what_if(log, "small", Change(token_budget=16_000)))
        large = list(what_if(log, "large", Change()))

    assert not any(map(differs, same))
    assert [call_json(call)["after"] for call in changed] == [call_json(call)["before"] for call in large]
    assert any(map(differs, changed))


def test_the_command_shows_what_differs(shell: Shell, broken: Path) -> None:
    shell("replay", broken, "--log", "log.db")
    session = shell.json("sessions", "--log", "log.db")[0]["session_id"]

    shown = shell("what-if", session, "--repair", "--log", "log.db").stdout
    lines = shell("what-if", session, "--log", "log.db", "--json").stdout.splitlines()

    assert "aborted (INVALID_MESSAGE_STRUCTURE)" in shown
    assert "1 differ" in shown
    assert len(lines) == 2
    assert all('"differs": false' in line for line in lines)
    assert "no session" in shell("what-if", "nope", "--log", "log.db", code=1).stderr


def test_a_postmortem_says_what_would_have_saved_the_call(shell: Shell, broken: Path) -> None:
    shell("replay", broken, "--log", "log.db")
    session = shell.json("sessions", "--log", "log.db")[0]["session_id"]
    assert 'onInvalidStructure set to "repair"' in shell("postmortem", session, "--log", "log.db").stdout

    with example_path() as path:
        shell("replay", path, "--token-budget", 300, "--log", "small.db")
    session = shell.json("sessions", "--log", "small.db")[0]["session_id"]
    saved = shell.json("postmortem", session, "--last-abort", "--log", "small.db")["would_have_saved"]
    assert saved[0].startswith("a token budget of ")
