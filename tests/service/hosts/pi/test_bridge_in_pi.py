"""The bridge as a process of the real Pi: what it is sent, and what happens when it is gone or says no."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from context_paging.service.log import EventLog
from context_paging.service.session import Session

from .agent import Home, Rpc
from .conversation import work
from .provider import Calls, Provider, Text, call

BUDGET = 6_000
NOTICE = "[Context paging] Earlier history"
BRIDGE = [sys.executable, "-P", "-m", "context_paging.service.cli", "bridge"]


def told_of(rpc: Rpc, words: str) -> list[str]:
    """What the user was told with these words in it, as an error."""
    return [text for level, text in rpc.notifications() if level == "error" and words in text]


def test_a_killed_bridge_is_told_once_and_pi_goes_on_without_paging(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 4)
        assert NOTICE in provider.requests[-1].text
        (bridge,) = rpc.bridges()
        os.kill(bridge, signal.SIGKILL)
        provider.script = [call("browse_history", direction="backward"), Text("it is gone")]
        rpc.prompt("go on")
        rpc.prompt("and on")
        (told,) = told_of(rpc, "")
        assert "Context paging is off: the bridge is gone, it ended with SIGKILL." in told
        assert rpc.statuses() == ["paging on", "paging off"]
        for request in provider.requests[-3:]:
            assert NOTICE not in request.text
            assert "secret-0 is here" in request.text
        refused = [m for m in rpc.ask("get_messages")["messages"] if m.get("toolName") == "browse_history"]
        assert [message["isError"] for message in refused] == [True]
        assert "/context-paging on tries again" in refused[0]["content"][0]["text"]
        rpc.prompt("/context-paging on")
        rpc.prompt("paged again?")
        assert NOTICE in provider.requests[-1].text
        assert rpc.statuses() == ["paging on", "paging off", "paging on", "paging on"]
        assert len(rpc.bridges()) == 1
        assert rpc.extension_errors() == []


def test_the_next_session_tries_a_killed_bridge_again(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        rpc.prompt("hello")
        (bridge,) = rpc.bridges()
        os.kill(bridge, signal.SIGKILL)
        rpc.prompt("/context-paging off")
        rpc.prompt("/context-paging stats")
        assert [level for level, _ in rpc.notifications()] == ["error", "warning", "warning"]
        rpc.ask("new_session")
        work(rpc, provider, home, 4)
        assert NOTICE in provider.requests[-1].text
        assert rpc.statuses()[-1] == "paging on"
        assert rpc.bridges() not in ([], [bridge])


def test_a_bridge_that_does_not_answer_in_time_is_given_up(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    home.environment["CONTEXT_PAGING_BRIDGE_TIMEOUT"] = "5"
    with home.rpc() as rpc:
        rpc.prompt("hello")
        (bridge,) = rpc.bridges()
        os.kill(bridge, signal.SIGSTOP)
        rpc.prompt("go on")
        rpc.prompt("and on")
        assert len(told_of(rpc, "it did not answer within 5 seconds")) == 1
        assert rpc.statuses() == ["paging on", "paging off"]
        assert rpc.bridges() == []
    assert len(provider.requests) == 3


def test_a_bridge_that_does_not_start_is_told_with_what_it_printed(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    home.log.write_text("this is no log")
    with home.rpc() as rpc:
        rpc.prompt("hello")
        (told,) = told_of(rpc, "it ended with exit status 1: context-paging: ")
        assert rpc.statuses() == ["paging off"]
    assert str(home.log) in told
    assert len(provider.requests) == 1
    home.environment["CONTEXT_PAGING_BRIDGE"] = str(home.root / "nowhere")
    done = home.run("-p", "hello")
    assert done.stdout.strip() == "ok"
    assert done.stderr.count("Context paging is off: the bridge is gone, it could not be started") == 1


def test_the_bridge_ends_with_pi(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        rpc.prompt("hello")
        (bridge,) = rpc.bridges()
        session = rpc.ask("get_state")["sessionId"]
    assert not Path(f"/proc/{bridge}").exists()
    assert "session-shut-down" in home.paging("timeline", session)


def test_what_a_provider_call_sends_to_the_bridge_does_not_grow_with_the_session(
    home: Home, provider: Provider, tmp_path: Path
) -> None:
    home.settings(tokenBudget=BUDGET)
    record = tmp_path / "lines"
    recorder = str(Path(__file__).with_name("recorder.py"))
    home.environment["CONTEXT_PAGING_BRIDGE"] = json.dumps([sys.executable, recorder, str(record), *BRIDGE])
    with home.rpc() as rpc:
        work(rpc, provider, home, 16)
        assert rpc.extension_errors() == []
    events = [json.loads(line).get("event", {}) for line in record.read_bytes().splitlines()]
    contexts = [event for event in events if event.get("type") == "context"]
    assert len(contexts) == len(provider.requests) == 32
    assert [len(event["messages"]) for event in contexts] == [1, *[2] * 31]
    appended = [
        entry["id"] for event in events if event.get("type") == "append" for entry in event["entries"]
    ]
    assert len(appended) == len(set(appended))
    sizes = [len(json.dumps(event)) for event in events]
    half = len(sizes) // 2
    assert max(sizes[half:]) < 1.1 * max(sizes[:half])


def test_when_another_program_went_on_with_the_session_it_starts_anew(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 4)
        session = rpc.ask("get_state")["sessionId"]
        with EventLog.open(home.log) as log:
            Session(session, sink=log, sequence=log.last_sequence(session)).start("resume")
        work(rpc, provider, home, 2, first=4)
        assert rpc.notifications() == []
        assert rpc.extension_errors() == []
    assert all(request.tokens <= BUDGET for request in provider.requests)
    assert NOTICE in provider.requests[-1].text
    assert home.paging("timeline", session).count("session-started") == 3


def test_a_call_that_the_bridge_cannot_read_is_aborted(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    deep = "[" * 1_200 + "]" * 1_200
    provider.script = [Calls((("bash", f'{{"command": "true", "deep": {deep}}}'),))]
    done = home.run("-p", "dig")
    assert len(provider.requests) == 1
    assert "Context paging cannot read a stored entry (INVALID_REQUEST)" in done.stderr
    assert "Context paging aborted this provider call (INVALID_REQUEST)" in done.stderr
    assert "nested too deeply" in done.stderr
