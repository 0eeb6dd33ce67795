"""Settings, the command, compaction and retries inside the real Pi, and Pi without a user interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .agent import SMALL, Home
from .conversation import work
from .provider import Failure, Provider, Text, call

BUDGET = 6_000
NOTICE = "[Context paging] Earlier history"


def project_settings(home: Home, **paging: Any) -> None:
    """Write the project's settings."""
    folder = home.project / ".pi"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"contextPaging": paging}))


def test_the_command_turns_paging_off_and_on_for_the_session(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 5)
        assert NOTICE in provider.requests[-1].text
        rpc.prompt("/context-paging off")
        rpc.prompt("everything?")
        assert NOTICE not in provider.requests[-1].text
        assert "secret-0 is here" in provider.requests[-1].text
        rpc.prompt("/context-paging")
        rpc.prompt("/context-paging on")
        rpc.prompt("paged again?")
        assert NOTICE in provider.requests[-1].text
        rpc.prompt("/context-paging status")
        rpc.prompt("/context-paging perhaps")
        rpc.prompt("/context-paging stats")
        told = rpc.notifications()
        commands = {command["name"] for command in rpc.ask("get_commands")["commands"]}
        assert rpc.extension_errors() == []
    off, on = "Context paging is off for this session.", "Context paging is on for this session."
    assert [text for _, text in told[:4]] == [off, off, on, on]
    assert told[4] == ("warning", "Usage: /context-paging [on|off|status|stats]")
    assert "Budget: 6,000 tokens" in told[5][1]
    # Status, stats and what is no choice leave the footer alone; the end of the session clears it.
    assert rpc.statuses() == ["paging on", "paging off", "paging on", None]
    assert "context-paging" in commands


def test_statistics_count_what_pi_stored(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 2)
        rpc.prompt("/context-paging stats")
        ((_, text),) = rpc.notifications()
        file = rpc.ask("get_state")["sessionFile"]
        usage = rpc.ask("get_messages")["messages"][-1]["usage"]
        requests = len(provider.requests)
    assert f"Stored session: {Path(file).stat().st_size:,} bytes" in text
    assert (
        f"Latest request: {usage['input'] + usage['cacheRead'] + usage['cacheWrite']:,} tokens (measured"
        in text
    )
    assert requests == 4


def test_recovery_tools_refuse_while_paging_is_off(home: Home, provider: Provider) -> None:
    home.settings(enabled=False)
    with home.rpc() as rpc:
        provider.script = [call("search_history", query="x"), Text("ok")]
        rpc.prompt("search")
        assert rpc.statuses() == ["paging off"]
        (result,) = [m for m in rpc.ask("get_messages")["messages"] if m["role"] == "toolResult"]
    assert result["isError"]
    assert "paging is off" in result["content"][0]["text"]


@pytest.mark.parametrize(("trust", "budget"), [("--no-approve", 6_000), ("--approve", 9_000)])
def test_only_a_trusted_project_has_settings(home: Home, provider: Provider, trust: str, budget: int) -> None:
    home.settings(tokenBudget=BUDGET)
    project_settings(home, tokenBudget=9_000)
    with home.rpc(trust) as rpc:
        rpc.prompt("/context-paging stats")
        ((_, text),) = rpc.notifications()
    assert f"Budget: {budget:,} tokens" in text


def test_settings_that_cannot_be_read_leave_paging_off(home: Home, provider: Provider) -> None:
    home.settings()
    project_settings(home)
    (home.project / ".pi" / "settings.json").write_text("{")
    with home.rpc("--approve") as rpc:
        rpc.prompt("hello")
        rpc.prompt("/context-paging status")
        assert rpc.notifications()[-1] == ("info", "Context paging is off for this session.")
        assert rpc.statuses() == ["paging off"]
        (error,) = rpc.extension_errors()
    assert "settings.json is not JSON" in error["error"]
    assert len(provider.requests) == 1


def test_pi_does_not_compact_by_itself_while_paging_is_on(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=40_000)
    with home.rpc(model=SMALL) as rpc:
        work(rpc, provider, home, 12)
        ended = [event for event in rpc.events if event["type"] == "compaction_end"]
        assert ended
        assert all(event["reason"] == "threshold" and not event.get("result") for event in ended)
        types = {entry["type"] for entry in rpc.ask("get_entries")["entries"]}
        assert "compaction" not in types
        session = rpc.ask("get_state")["sessionId"]
        assert rpc.extension_errors() == []
        # The other way round: what was cancelled happens once paging is off.
        rpc.prompt("/context-paging off")
        work(rpc, provider, home, 1, first=12)
        assert "compaction" in {entry["type"] for entry in rpc.ask("get_entries")["entries"]}
    assert "compaction-cancelled" in home.paging("timeline", session)
    assert all(request.tokens <= 20_000 for request in provider.requests[:24])


def test_a_manual_compaction_works_and_begins_without_a_cut(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 5)
        assert NOTICE in provider.requests[-1].text
        provider.script = [Text("the summary of it all")] * 2
        compacted = rpc.ask("compact")
        assert "the summary of it all" in compacted["summary"]
        provider.script = []
        rpc.prompt("go on")
        session = rpc.ask("get_state")["sessionId"]
        assert rpc.extension_errors() == []
    assert "the summary of it all" in provider.requests[-1].text
    assert NOTICE not in provider.requests[-1].text
    assert "compaction-succeeded" in home.paging("timeline", session)


def test_the_edit_that_a_retry_makes_keeps_the_cut(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 3)
        assert NOTICE in provider.requests[-1].text
        before = provider.requests[-1]
        provider.script = [Failure(503), Text("now it works")]
        rpc.prompt("again")
        failed, retried = provider.requests[-2:]
        rpc.prompt("more")
        entries = rpc.ask("get_entries")["entries"]
        session = rpc.ask("get_state")["sessionId"]
        assert rpc.extension_errors() == []
        assert any(event["type"] == "auto_retry_start" for event in rpc.events)
    edits = [entry for entry in entries if entry["type"] == "context_edit"]
    assert [edit["replacement"] for edit in edits] == [None]
    assert isinstance(failed.reply, Failure)
    assert failed.continues(before)
    assert retried.body["messages"] == failed.body["messages"]
    assert provider.requests[-1].continues(retried)
    calls = json.loads(home.paging("calls", "--session", session, "--json"))
    assert [entry["rule"] for entry in calls[-3:]] == ["cut-holds"] * 3


def test_pi_without_a_user_interface_pages_and_prints_what_it_has_to_say(
    home: Home, provider: Provider
) -> None:
    home.settings(tokenBudget=BUDGET)
    done = home.run("-p", "hello")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "ok", "")
    too_long = home.run("--mode", "json", "-p", "far too long " * 4_000)
    assert "ACTIVE_REQUEST_TOO_LARGE" in too_long.stderr
    assert "setStatus" not in too_long.stdout
    assert len(provider.requests) == 1
    calls = json.loads(home.paging("calls", "--json"))
    assert sorted(entry["outcome"] for entry in calls) == ["aborted", "within-budget"]
