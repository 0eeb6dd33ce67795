"""Host events over HTTP: the same answers as in process, once each, whatever is sent."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from context_paging.domain.recovery.tools import tool_definitions
from context_paging.service.http.live import LiveLimits
from context_paging.service.log import EventLog, LogUnavailable
from context_paging.service.session import Session
from tests.conformance import DATA
from tests.conformance.answers import questions
from tests.service.test_bridge import Client as BridgeClient
from tests.service.test_bridge import play

from .conftest import Client, answered, user

START = {"type": "session_start"}


@pytest.mark.parametrize("name", ["sessions-events", "sessions-odd", "sessions-usage"])
def test_a_host_behind_http_gets_what_a_host_in_process_gets(client: Client, name: str) -> None:
    for number, script in enumerate(islice(questions(DATA / f"{name}.jsonl.gz"), 4)):
        session = Session("s")
        host = HttpHost(client, f"{name}-{number}")
        for step in script["steps"]:
            play(session, host, step, script["settings"])


class HttpHost(BridgeClient):
    """Sends over HTTP what the bridge's client sends over the bridge."""

    def __init__(self, client: Client, session: str) -> None:
        self.client = client
        self.session = session
        self.outgoing: list[Any] = []

    def send(self, event: Any, session: str = "s") -> Any:
        """What an event leads to."""
        response = self.client.post(f"/sessions/{self.session}/events", event)
        return response.json()


def test_a_batch_is_answered_event_by_event(client: Client) -> None:
    first = user("hi", "1")
    answers = client.send("s", START, {"type": "append", "entries": [first]}, {"type": "context"})["answers"]

    assert [answer["sequence"] for answer in answers] == [2, 2, 5]
    assert answers[2]["send"] == [{"first": 0, "last": 0}]
    assert client.log.last_call("s") is not None
    assert client.log.call(answers[2]["call_id"]).number == 1


def test_a_batch_with_something_else_in_it_is_refused_whole(client: Client) -> None:
    refused = client.send("s", START, {"type": "contxt"}, status=422)

    assert refused["code"] == "INVALID_HOST_EVENT"
    assert "event 1" in refused["detail"]
    assert client.log.sessions() == []


def test_a_batch_ends_at_what_is_refused_and_says_how_far_it_came(client: Client) -> None:
    wrong = {"type": "turn_end", "entry_id": "nope"}
    refused = client.send("s", START, wrong, {"type": "shut_down"}, status=422)

    assert (refused["event"], refused["code"], len(refused["answers"])) == (1, "INVALID_ENTRY", 1)
    assert client.log.last_sequence("s") == 2


def test_an_event_that_comes_again_is_answered_again_and_not_done_again(client: Client) -> None:
    client.send("s", START, {"type": "append", "entries": [user("hi", "1")]})
    event = {"type": "context", "event_id": "e1"}
    first = client.send("s", event)

    assert client.send("s", event) == first
    assert client.log.session("s").calls == 1
    refused = client.send("s", {"type": "context", "system_prompt": "x", "event_id": "e1"}, status=409)
    assert refused["code"] == "EVENT_ID_REUSED"
    assert client.send("s", {"type": "shut_down", "event_id": "e2"})["sequence"] == 6
    # The answer is lost, so it is told again: the session is closed, and stays so.
    assert client.send("s", {"type": "shut_down", "event_id": "e2"})["sequence"] == 6
    assert client.send("s", event) == first
    assert client.send("s", {"type": "shut_down"}, status=409)["code"] == "SESSION_NOT_LIVE"


def test_only_new_messages_travel(client: Client) -> None:
    client.send("s", START)
    messages: list[dict[str, Any]] = []
    for number in range(30):
        message = {"role": "user", "content": f"message {number}", "timestamp": number}
        messages.append(message)
        event = {"type": "context", "unchanged": number, "messages": [message]}
        assert client.send("s", event)["send"] == [{"first": 0, "last": number}]

    refused = client.send("s", {"type": "context", "unchanged": 31, "messages": []}, status=409)
    assert refused["code"] == "UNKNOWN_PREFIX"


def test_a_session_that_is_not_live_says_how_to_go_on(client: Client) -> None:
    refused = client.send("s", {"type": "context"}, status=409)
    assert refused["code"] == "SESSION_NOT_LIVE"
    assert "session_start" in refused["detail"]
    assert client.get("/sessions/s/statistics").json()["code"] == "SESSION_NOT_LIVE"

    client.send("s", START, {"type": "append", "entries": [user("hi", "1")]}, {"type": "shut_down"})
    assert client.send("s", {"type": "context"}, status=409)["code"] == "SESSION_NOT_LIVE"
    resumed = client.send("s", {"type": "session_start", "reason": "resume"})
    assert resumed["sequence"] > 2
    assert client.log.verify("s")[0].finding is None


def test_a_session_that_could_not_start_is_not_live(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise LogUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "append", away)
        assert client.send("s", START, status=503)["code"] == "LOG_UNAVAILABLE"
    assert client.send("s", {"type": "context"}, status=409)["code"] == "SESSION_NOT_LIVE"


def test_a_session_that_went_on_elsewhere_has_to_start_anew(client: Client) -> None:
    client.send("s", START)
    elsewhere = Session("s", sink=client.log, sequence=client.log.last_sequence("s"))
    elsewhere.start("resume")

    assert client.send("s", {"type": "context"}, status=409)["code"] == "SESSION_CONFLICT"
    assert client.send("s", {"type": "context"}, status=409)["code"] == "SESSION_NOT_LIVE"
    assert client.send("s", {"type": "session_start", "reason": "resume"})["sequence"] == 6


def test_the_recovery_tools_and_statistics_of_a_session(client: Client) -> None:
    entries = [user("Where is the tide table?", "1"), answered("In docs/.", "2", "1")]
    client.send("s", START, {"type": "append", "entries": entries})
    found = client.post("/sessions/s/tools/search_history", {"query": "tide"})
    refused = client.post("/sessions/s/tools/search_history", {"query": 1})

    assert found.json()["result"]["references"][0]["historyId"] == "1"
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_HISTORY_NAVIGATOR_INPUT")
    assert client.post("/sessions/s/tools/nope", {}).status_code == 422
    assert client.get("/sessions/s/statistics").json()["enabled"] is True
    assert client.get("/tools").json() == tool_definitions()


def test_ids_may_hold_what_urls_escape(client: Client) -> None:
    for session in ("team%2Fchat%201", "%E2%9C%93", "a%3Fb%23c", "calls", "x/y/z"):
        client.send(session, START)
    ids = {session.session_id for session in client.log.sessions()}
    assert ids == {"team/chat 1", "✓", "a?b#c", "calls", "x/y/z"}
    assert client.get("/sessions/team%2Fchat%201").json()["session_id"] == "team/chat 1"
    assert client.get("/sessions/team/chat 1/timeline").json()["rows"][0]["type"] == "session-started"


def test_half_characters_come_back_as_they_were_sent(client: Client) -> None:
    client.send("s", START)
    body = json.dumps({"type": "append", "entries": [user("tide \ud83d!", "1")]}).encode()
    headers = {**client.headers, "content-type": "application/json"}
    assert client.http.post("/v1/sessions/s/events", content=body, headers=headers).status_code == 200
    found = client.post("/sessions/s/tools/load_history", {"historyIds": ["1"]})
    assert found.json()["result"]["items"][0]["userMessage"]["content"] == "tide \ud83d!"


def test_a_worker_lets_idle_sessions_go_and_keeps_within_its_memory(client: Client) -> None:
    live = client.http.app.state.service.live  # type: ignore[attr-defined]
    live._limits = LiveLimits(sessions=2, session_characters=1_000)
    for session in ("a", "b", "c"):
        client.send(session, START)

    assert len(live) == 2
    assert client.send("a", {"type": "context"}, status=409)["code"] == "SESSION_NOT_LIVE"
    live._limits = LiveLimits(idle_seconds=0, session_characters=1_000)
    live.let_idle_go()
    assert len(live) == 0
    client.send("c", START)
    large = {"type": "append", "entries": [user("x" * 2_000, "1")]}
    assert client.send("c", large, status=413)["code"] == "SESSION_TOO_LARGE"
    client.send("c", {"type": "context"})


def test_what_a_session_does_not_keep_does_not_fill_it(client: Client) -> None:
    live = client.http.app.state.service.live  # type: ignore[attr-defined]
    live._limits = LiveLimits(session_characters=2_000)
    client.send("s", START)
    whole = {
        "type": "context",
        "messages": [{"role": "user", "content": "x" * 1_500}],
        "system_prompt": "y" * 9_000,
    }
    more = {"type": "context", "unchanged": 1, "messages": [{"role": "user", "content": "x" * 200}]}
    for _ in range(5):
        client.send("s", whole)
        client.send("s", more)
    assert client.send("s", {**more, "unchanged": 2}, more, status=413)["event"] == 1
    client.send("s", whole)


def test_a_whole_life_that_comes_again_is_not_lived_again(client: Client) -> None:
    events: list[dict[str, Any]] = [{**START, "event_id": "start"}]
    for number in range(330):
        entry = user("hi", f"{number}", f"{number - 1}" if number else None)
        events.append({"type": "append", "entries": [entry], "event_id": f"a{number}"})
        events.append({"type": "context", "event_id": f"c{number}"})
    events.append(
        {"type": "tool", "name": "browse_history", "parameters": {"direction": "backward"}, "event_id": "t"}
    )
    events.append({"type": "shut_down", "event_id": "end"})
    first = client.send("s", *events)
    logged = client.log.last_sequence("s")

    assert client.send("s", *events) == first
    assert client.log.last_sequence("s") == logged
    # A new life knows what was answered in the one before.
    client.send("s", {**START, "event_id": "again"})
    assert client.send("s", events[2]) == first["answers"][2]
    assert client.log.last_sequence("s") == logged + 2
    # Its own start came again, while it is live and when it was let go.
    assert client.send("s", {**START, "event_id": "again"})["sequence"] == logged + 2


def test_a_refusal_that_is_in_the_log_is_told_again(client: Client) -> None:
    client.send("s", START)
    call = {"type": "tool", "name": "load_history", "parameters": {"historyIds": ["nope"]}, "event_id": "t"}
    refused = [client.send("s", call, status=422) for _ in range(3)]
    assert refused[0] == refused[1] == refused[2]
    assert [event.type for event in client.log.events("s")].count("recovery-tool-rejected") == 1
    other = {**call, "parameters": {"historyIds": ["other"]}}
    assert client.send("s", other, status=409)["code"] == "EVENT_ID_REUSED"


def test_ids_that_urls_could_not_tell_from_routes_are_refused(client: Client) -> None:
    for ending in ("calls", "calls/1", "timeline", "verify", "what-if", "compare", "statistics", "tools/x"):
        answer = client.post(f"/sessions/x%2F{ending.replace('/', '%2F')}/events", START)
        assert answer.status_code == 422
    assert client.log.sessions() == []


def test_what_was_sent_can_be_read_back_whatever_it_was(client: Client) -> None:
    message = {"role": "user", "content": "x", "timestamp": True}
    entry = {"type": "message", "id": "1", "parentId": None, "timestamp": False, "message": message}
    response = {"role": "assistant", "content": [], "stopReason": "stop", "timestamp": True}
    turn = {"type": "turn_end", "response": response}
    client.send("s", START, {"type": "append", "entries": [entry]}, {"type": "context"}, turn)
    assert client.get("/sessions/s/calls/1").status_code == 200
    assert client.log.rebuild() == 1
