"""Paging inside the real Pi: cuts, prefixes, recovery, aborts, resumption, branches, models, copies."""

from __future__ import annotations

import json
from itertools import pairwise

from .agent import SMALL, Home
from .conversation import work
from .provider import Calls, Provider, Request, Text, call, text_of

BUDGET = 6_000
NOTICE = "[Context paging] Earlier history is outside this 6,000-token window."


def opening(request: Request) -> str:
    """What the first message says."""
    return text_of(request.messages[0])


def test_between_advances_every_request_continues_the_one_before(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 7)
    requests = provider.requests
    assert len(requests) == 14
    breaks = [n for n in range(1, len(requests)) if not requests[n].continues(requests[n - 1])]
    calls = json.loads(home.paging("calls", "--json"))
    rules = [entry["rule"] for entry in sorted(calls, key=lambda entry: int(entry["number"]))]
    assert breaks == [n for n, rule in enumerate(rules) if rule == "advance"] != []
    assert rpc.extension_errors() == []
    assert rpc.statuses()[0] == "paging on"


def test_the_notice_stands_at_the_front_and_stays_as_it_is_until_the_next_advance(
    home: Home, provider: Provider
) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 7)
    requests = provider.requests
    first = next(n for n, request in enumerate(requests) if NOTICE in request.text)
    assert first > 0
    for earlier, later in pairwise(requests[first:]):
        assert opening(later).startswith(NOTICE)
        assert later.messages[0]["role"] == "user"
        if later.continues(earlier):
            assert opening(later) == opening(earlier)
    assert len({opening(request) for request in requests[first:]}) > 1
    assert all(request.tokens <= BUDGET for request in requests)
    # The session file holds no notice: it is made for each request.
    assert all("[Context paging]" not in path.read_text() for path in home.agent.rglob("*.jsonl"))


def test_the_model_reads_again_exactly_what_has_left_the_window(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    pages: list[str] = []
    output = {"source": "toolResult", "limit": 2_000}

    def load(request: Request) -> Calls:
        result = json.loads(text_of(request.messages[-1]))
        return call("load_history", historyIds=[result["references"][0]["historyId"]])

    def read(request: Request) -> Calls:
        (item,) = json.loads(text_of(request.messages[-1]))["items"]
        named = item["toolResults"][0]["read_context_output"]
        output.update(historyId=named["historyId"], toolCallId=named["toolCallId"])
        return call("read_context_output", **output, offset=0)

    def turn(request: Request) -> Calls | Text:
        page = json.loads(text_of(request.messages[-1]))
        pages.append(page["text"])
        if page["nextOffset"] is None:
            return Text("read to the end")
        provider.script.append(turn)
        return call("read_context_output", **output, offset=page["nextOffset"])

    with home.rpc() as rpc:
        work(rpc, provider, home, 6)
        assert "secret-0 is here" not in provider.requests[-1].text
        provider.script = [call("search_history", query="secret-0"), load, read, turn]
        rpc.prompt("what was in the first file?")
        stored = [entry.get("message", {}) for entry in rpc.ask("get_entries")["entries"]]
    (first, *_) = [message for message in stored if message.get("toolName") == "read"]
    assert json.loads("".join(pages)) == first
    assert "secret-0 is here" in first["content"][0]["text"]
    assert len(pages) > 1
    assert rpc.extension_errors() == []


def test_a_request_that_cannot_fit_reaches_no_provider_and_the_user_is_told_why(
    home: Home, provider: Provider
) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        rpc.prompt("hello")
        rpc.prompt("far too long " * 4_000)
        (told,) = rpc.notifications()
        session = rpc.ask("get_state")["sessionId"]
        last = rpc.ask("get_messages")["messages"][-1]
        # Pi 0.87 calls an abort before the request an error.
        assert (last["stopReason"], last["content"]) in (("aborted", []), ("error", []))
        assert "aborted" in last["errorMessage"]
        assert "far too long" in json.dumps(rpc.ask("get_entries"))
    assert told[0] == "error"
    assert "ACTIVE_REQUEST_TOO_LARGE" in told[1]
    assert len(provider.requests) == 1
    postmortem = json.loads(home.paging("postmortem", session, "--last-abort", "--json"))
    assert "ACTIVE_REQUEST_TOO_LARGE" in json.dumps(postmortem)
    assert told[1].partition("). ")[2] in json.dumps(postmortem)


def test_a_resumed_session_starts_without_a_cut_and_pages_on(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 5)
        file = rpc.ask("get_state")["sessionFile"]
    before = provider.requests[-1]
    assert NOTICE in opening(before)
    with home.rpc("--session", file) as rpc:
        work(rpc, provider, home, 3, first=5)
        session = rpc.ask("get_state")["sessionId"]
        assert rpc.statuses() == ["paging on"]
        assert rpc.extension_errors() == []
    after = provider.requests[10:]
    assert all(request.tokens <= BUDGET for request in after)
    assert opening(after[0]) != opening(before)
    calls = json.loads(home.paging("calls", "--session", session, "--json"))
    resumed = next(entry for entry in calls if entry["number"] == 11)
    assert resumed["rule"] == "advance"
    assert any(later.continues(earlier) for earlier, later in pairwise(after))


def test_another_branch_gets_a_cut_of_its_own(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 5)
        entries = rpc.ask("get_entries")["entries"]
        answers = [e["id"] for e in entries if e["type"] == "message" and e["message"]["role"] == "assistant"]
        assert NOTICE in opening(provider.requests[-1])
        # Behind the first answer everything fits again, and nothing of the other branch goes out.
        rpc.prompt(f"/navigate {answers[1]}")
        rpc.prompt("on another branch")
        assert NOTICE not in provider.requests[-1].text
        assert "request 1" not in provider.requests[-1].text
        assert "on another branch" in provider.requests[-1].text
        work(rpc, provider, home, 4, first=5)
        assert NOTICE in opening(provider.requests[-1])
        session = rpc.ask("get_state")["sessionId"]
        assert rpc.extension_errors() == []
    assert "branch-navigated" in home.paging("timeline", session)


def test_a_fork_is_a_session_of_its_own(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        work(rpc, provider, home, 5)
        first = rpc.ask("get_state")["sessionId"]
        (bridge,) = rpc.bridges()
        (*_, last) = rpc.ask("get_fork_messages")["messages"]
        assert rpc.ask("fork", entryId=last["entryId"])["cancelled"] is False
        rpc.prompt("forked")
        second = rpc.ask("get_state")["sessionId"]
        # One bridge serves all sessions of a Pi.
        assert rpc.bridges() == [bridge]
        assert rpc.extension_errors() == []
    assert first != second
    sessions = {entry["session_id"] for entry in json.loads(home.paging("sessions", "--json"))}
    assert sessions == {first, second}
    assert provider.requests[-1].tokens <= BUDGET
    assert "request 4" not in provider.requests[-1].text


def test_a_smaller_model_gets_a_smaller_request(home: Home, provider: Provider) -> None:
    home.settings(tokenBudget=40_000)
    with home.rpc() as rpc:
        work(rpc, provider, home, 14)
        assert provider.requests[-1].tokens > 20_000
        assert NOTICE[:16] not in provider.requests[-1].text
        rpc.ask("set_model", provider="scripted", modelId=SMALL)
        rpc.prompt("and now?")
        session = rpc.ask("get_state")["sessionId"]
        assert rpc.extension_errors() == []
    small = provider.requests[-1]
    assert small.body["model"] == SMALL
    assert small.tokens <= 20_000
    assert "outside this 20,000-token window" in opening(small)
    assert "model-selected" in home.paging("timeline", session)


def test_a_message_that_an_extension_stored_leaves_the_window_with_its_time(
    home: Home, provider: Provider
) -> None:
    home.settings(tokenBudget=BUDGET)
    with home.rpc() as rpc:
        rpc.prompt("/inject an early note")
        work(rpc, provider, home, 4)
        rpc.prompt("/inject a late note")
        rpc.prompt("what now?")
        assert rpc.extension_errors() == []
    assert "an early note" in provider.requests[0].text
    assert "an early note" not in provider.requests[-1].text
    assert [text_of(message) for message in provider.requests[-1].messages[-2:]] == [
        "a late note",
        "what now?",
    ]
