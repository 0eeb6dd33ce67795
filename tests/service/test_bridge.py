"""The bridge: the same answers as a session in process, whatever lines come, and a clean end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.recovery.tools import tool_definitions
from context_paging.service.bridge import Bridge
from context_paging.service.log import Durability, EventLog, LogOptions
from context_paging.service.session import Session
from tests.conformance import DATA
from tests.conformance.answers import outgoing_messages, questions

HELLO = {"id": 0, "hello": {"version": 1, "host": "test"}}
SCRIPTS = 12


class Client:
    """A host program at the other end of a bridge in this process."""

    def __init__(self, bridge: Bridge | None = None) -> None:
        self.bridge = bridge or Bridge(None)
        self.outgoing: list[Any] = []
        assert "ok" in self.ask(HELLO)

    def ask(self, request: Any) -> Any:
        """The answer to a request."""
        answer = json.loads(json.dumps(self.bridge.answer(json.dumps(request).encode())))
        assert answer["id"] == request["id"]
        return answer

    def send(self, event: Any, session: str = "s") -> Any:
        """What an event leads to."""
        answer = self.ask({"id": 7, "session": session, "event": event})
        return answer.get("ok") or answer["error"] if "ok" not in answer else answer["ok"]

    def context(self, messages: list[Any], **options: Any) -> tuple[Any, list[Any]]:
        """A context request of which only what is new is sent; the answer, and the messages to send."""
        unchanged = 0
        while unchanged < min(len(messages), len(self.outgoing)):
            if messages[unchanged] != self.outgoing[unchanged]:
                break
            unchanged += 1
        self.outgoing = messages
        event = {"type": "context", "unchanged": unchanged, "messages": messages[unchanged:], **options}
        answer = self.send(event)
        sent: list[Any] = []
        for part in answer.get("send", ()):
            sent += [part["message"]] if "message" in part else messages[part["first"] : part["last"] + 1]
        return answer, sent


def scripts(name: str) -> Iterator[Any]:
    """Some session scripts of a conformance file."""
    return islice(questions(DATA / f"{name}.jsonl.gz"), SCRIPTS)


@pytest.mark.parametrize("name", ["sessions-events", "sessions-odd", "sessions-usage"])
def test_a_host_behind_the_bridge_gets_what_a_host_in_process_gets(name: str) -> None:
    for script in scripts(name):
        session, client = Session("s"), Client()
        for step in script["steps"]:
            play(session, client, step, script["settings"])


def play(session: Session, client: Client, step: Any, settings: Any) -> None:
    """Do one step on both sides, and compare."""
    match step["do"]:
        case "session_start":
            options = {
                "global_settings": settings.get("global"),
                "project_settings": settings.get("project"),
                "project_trusted": settings["trusted"],
            }
            reply = session.start(step["reason"], **options)
            told = client.send({"type": "session_start", "reason": step["reason"], **options})
        case "append":
            session.append(step["entries"])
            assert client.send({"type": "append", "entries": step["entries"]}).keys() == {"sequence"}
            return
        case "context":
            outgoing = outgoing_messages(session, step)
            options = {
                name: step.get(name) for name in ("system_prompt", "tools", "context_window", "usage_tokens")
            }
            reply = context = session.context(outgoing, **options)
            told, sent = client.context(outgoing, **options)
            assert told["outcome"] == ("aborted" if context.aborted else told["outcome"])
            if context.aborted is None:
                assert sent == context.messages
        case "turn_end":
            reply = session.turn_end(step["entry"])
            told = client.send({"type": "turn_end", "entry_id": step["entry"]})
        case "session_tree":
            reply = session.navigate(step["leaf"])
            told = client.send({"type": "navigate", "leaf_id": step["leaf"]})
        case "model_select":
            reply = session.select_model()
            told = client.send({"type": "select_model"})
        case "session_before_compact":
            reply = session.before_compaction(step["reason"])
            told = client.send({"type": "before_compaction", "reason": step["reason"]})
            assert told["cancel"] == reply.cancelled
        case "session_compact":
            reply = session.compacted(step["entry"])
            told = client.send({"type": "compacted", "entry_id": step["entry"]})
        case "command":
            reply = session.command(step["args"])
            told = client.send({"type": "command", "arguments": step["args"]})
        case other:
            raise AssertionError(other)
    assert told["status"] == reply.status
    assert [note["text"] for note in told["notifications"]] == [note.text for note in reply.notifications]


def user(entry_id: str, text: str) -> Any:
    """A stored request."""
    message = {"role": "user", "content": text, "timestamp": 1}
    return {"type": "message", "id": entry_id, "parentId": None, "message": message}


def test_tools_statistics_and_refusals_cross_the_bridge() -> None:
    client = Client()
    client.send({"type": "session_start"})
    client.send({"type": "append", "entries": [user("e", "needle")]})

    found = client.send({"type": "tool", "name": "search_history", "parameters": {"query": "needle"}})
    assert json.loads(found["text"]) == found["result"]
    assert client.send({"type": "command", "arguments": "stats"})["statistics"]["history_tokens"] == 2
    refused = client.send({"type": "tool", "name": "load_history", "parameters": {"historyIds": ["x"]}})
    assert refused["code"] == "UNKNOWN_HISTORY_ID"
    client.send({"type": "command", "arguments": "off"})
    off = client.send({"type": "tool", "name": "search_history", "parameters": {"query": "needle"}})
    assert off["code"] == "PAGING_DISABLED"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", "INVALID_REQUEST"),
        (b"\x00\xff\n", "INVALID_REQUEST"),
        (b"[1]", "INVALID_REQUEST"),
        (b'{"id": 1, "usage": NaN}', "INVALID_REQUEST"),
        (b'{"id": 1, "usage": -1e999}', "INVALID_REQUEST"),
        (b"[" * 100_000, "INVALID_REQUEST"),
        (b'{"id": 1, "event": {"type": "session_start"}}', "INVALID_REQUEST"),
        (b'{"id": 1, "session": "s", "event": {"type": "append", "entries": []}}', "INVALID_HOST_EVENT"),
        (b'{"id": 1, "session": "s", "event": {"type": "nonsense"}}', "INVALID_HOST_EVENT"),
        (b'{"id": 1, "session": "s", "event": null}', "INVALID_HOST_EVENT"),
        (b'{"id": 1, "session": "s", "event": {"type": "session_start", "x": 1}}', "INVALID_HOST_EVENT"),
        (b'{"id": 1, "hello": {"version": 99, "host": "x"}}', "INVALID_REQUEST"),
        (b'{"id": 1, "hello": null}', "INVALID_REQUEST"),
    ],
)
def test_a_line_that_is_no_request_is_told_and_the_next_one_read(line: bytes, code: str) -> None:
    client = Client()

    assert client.bridge.answer(line)["error"]["code"] == code
    assert client.send({"type": "session_start"})["status"] == "paging on"


def test_nothing_is_done_before_hello() -> None:
    answer = Bridge(None).answer(b'{"id": 1, "session": "s", "event": {"type": "session_start"}}')

    assert "say hello first" in answer["error"]["message"]


def test_a_prefix_that_is_not_known_is_refused_and_changes_nothing() -> None:
    client = Client()
    client.send({"type": "session_start"})
    message = {"role": "user", "content": "hi", "timestamp": 1}

    refused = client.send({"type": "context", "unchanged": 3, "messages": [message]})
    assert refused["code"] == "UNKNOWN_PREFIX"
    assert client.context([message])[1] == [message]
    assert client.send({"type": "context"})["send"] == []


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_every_line_has_an_answer(lines: list[bytes]) -> None:
    given_lines = b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines)
    answers = io.BytesIO()
    Bridge(None).serve(io.BytesIO(given_lines), answers)

    wanted = sum(bool(line.replace(b"\n", b" ").strip()) for line in lines)
    assert len(answers.getvalue().splitlines()) == wanted


def test_a_line_that_is_too_long_is_left_out() -> None:
    answers = io.BytesIO()
    lines = b"x" * 500 + b"\n" + json.dumps(HELLO).encode() + b"\n"
    Bridge(None, line_limit=100).serve(io.BytesIO(lines), answers)

    first, second = map(json.loads, answers.getvalue().splitlines())
    assert "100 bytes" in first["error"]["message"]
    assert second["ok"]["tools"] == tool_definitions()


def test_two_bridges_on_one_session_conflict_and_can_start_anew(tmp_path: Path) -> None:
    location, options = str(tmp_path / "log.db"), LogOptions(durability=Durability.SYNC)
    with EventLog.open(location, options) as log, EventLog.open(location, options) as other:
        one, two = Client(Bridge(log)), Client(Bridge(other))
        one.send({"type": "session_start"})
        two.send({"type": "session_start", "reason": "resume"})

        assert one.send({"type": "select_model"})["code"] == "SESSION_CONFLICT"
        assert "session_start" in one.send({"type": "select_model"})["message"]
        assert one.send({"type": "session_start", "reason": "resume"})["status"] == "paging on"
        assert one.send({"type": "select_model"})["notifications"] == []
        assert [checked.finding for checked in log.verify("s")] == [None]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A bridge as a host starts it."""
    command = [sys.executable, "-c", "from context_paging.service.cli import main; main()"]
    with subprocess.Popen(
        [*command, "bridge", "--log", str(tmp_path / "log.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)},
    ) as process:
        yield process
        process.kill()


def asked(process: subprocess.Popen[bytes], request: Any) -> Any:
    """One request over the pipe."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("ending", ["closed", "terminated"])
def test_the_bridge_ends_with_its_parent_and_loses_nothing(
    started: subprocess.Popen[bytes], tmp_path: Path, ending: str
) -> None:
    assert asked(started, HELLO)["ok"]["version"] == 1
    asked(started, {"id": 1, "session": "s", "event": {"type": "session_start"}})
    asked(started, {"id": 2, "session": "s", "event": {"type": "append", "entries": [user("e", "hi")]}})
    assert asked(started, {"id": 3, "session": "s", "event": {"type": "context"}})["ok"]["send"]
    assert started.stdin is not None
    if ending == "closed":
        started.stdin.close()
        assert started.wait(30) == 0
    else:
        started.send_signal(signal.SIGTERM)
        assert started.wait(30) != 0

    with EventLog.open(str(tmp_path / "log.db")) as log:
        assert [stored.type for stored in log.events("s")][-1] == "context-selected"
    assert started.stderr is not None
    assert b"Traceback" not in started.stderr.read()


def test_a_client_that_stops_reading_ends_the_bridge(started: subprocess.Popen[bytes]) -> None:
    assert asked(started, HELLO)
    assert started.stdout is not None
    assert started.stdin is not None
    started.stdout.close()
    started.stdin.write(json.dumps(HELLO).encode() + b"\n")
    started.stdin.flush()

    assert started.wait(30) == 0


def test_a_status_total_is_reckoned_from_what_is_stored_where_the_host_has_none() -> None:
    client, session = Client(), Session("s")
    session.start()
    assert "error" not in client.send({"type": "session_start"})
    usage = {"input": 900, "output": 100, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 1_000}
    said = [{"type": "text", "text": "well"}]
    messages = [
        {"role": "user", "content": "hi", "timestamp": 1},
        {"role": "assistant", "content": said, "stopReason": "stop", "usage": usage, "timestamp": 2},
        {"role": "user", "content": "and " * 100, "timestamp": 3},
    ]
    ids = ["1", "2", "3"]
    entries = [
        {"type": "message", "id": entry, "parentId": parent, "message": message}
        for entry, parent, message in zip(ids, [None, *ids], messages, strict=False)
    ]
    told, requested = [], list[Any]()
    for part in (entries[:1], entries[1:]):
        client.send({"type": "append", "entries": part})
        session.append(part)
        told.append(client.send({"type": "context", "usage_tokens": "stored"})["estimated_tokens"])
        requested += [
            e for e in session.context(usage_tokens="stored").events if e.type == "context-requested"
        ]

    assert [event.usage_tokens for event in requested] == [None, 1_000 + 100]
    # Resident input of nothing is one token: the JSON of no tools.
    assert told == [2, 103]
