"""Lines of the bridge: each is answered, in order, once, with JSON and its id; and the next one is read.

An input is what a host writes: lines. Of the answers it must hold that

- there is one for every line that is not blank, and it is strict JSON on one line;
- it has the id of its request, and either ``ok`` or ``error`` with a code and a message that is not a bug's;
- an event with an id that comes again is answered again as before, and the log does not grow;
- what the sessions logged could be stored, and reads back as it was.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

from context_paging.service.bridge import Bridge
from context_paging.service.log import EventLog
from context_paging.service.session_file import refuse_constant

from . import entry_loading
from .checked_log import CheckedLog
from .json_trees import changed, depth_of, dumped, loaded, words

MOST_BYTES = 16_384
LINE_LIMIT = 4_096
_DEEP = 500
WORDS = (*entry_loading.WORDS, *words("events"))


def check(data: bytes) -> None:
    """What has to hold for lines.

    Raises:
        Exception: it does not.
    """
    log = CheckedLog()
    bridge = Bridge(cast(EventLog, log), line_limit=LINE_LIMIT)
    answers = io.BytesIO()
    bridge.serve(io.BytesIO(data), answers)
    # Nobody looks into a line that is too long.
    requests = [line for line in io.BytesIO(data) if line.strip() or len(line.rstrip(b"\n")) >= LINE_LIMIT]
    told = answers.getvalue().split(b"\n")
    assert told.pop() == b""
    assert len(told) == len(requests), f"{len(requests)} lines, {len(told)} answers"
    parsed = [json.loads(line, parse_constant=refuse_constant) for line in told]
    for request, answer in zip(requests, parsed, strict=True):
        _check_answer(request, answer)
    if b"shut_down" in data:
        # A session that begins anew has forgotten what it answered.
        return
    for request, answer in zip(requests, parsed, strict=True):
        _check_again(bridge, log, request, answer)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Lines to begin with, by name."""
    user = {"role": "user", "content": "Where is the tide table?", "timestamp": 1}
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "docs/a.md"}}
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15}
    turn: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Let me see"}, call],
        "stopReason": "toolUse",
    }
    turn |= {"usage": usage, "timestamp": 2}
    found = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "read",
        "content": [{"type": "text", "text": "x" * 90}],
    }
    last = {
        "role": "assistant",
        "content": [{"type": "text", "text": "In docs 😀"}],
        "stopReason": "stop",
        "usage": usage,
    }
    chain = [
        {"type": "message", "id": f"e{n}", "parentId": f"e{n - 1}" if n > 1 else None, "message": message}
        for n, message in enumerate((user, turn, found, last), 1)
    ]
    start = {"type": "session_start", "global_settings": {"contextPaging": {"tokenBudget": 60}}}
    repair = {"contextPaging": {"tokenBudget": 40, "trimToTokens": 20, "onInvalidStructure": "repair"}}
    append = {"type": "append", "entries": chain}
    context = {"type": "context", "system_prompt": "You are.", "event_id": "a1", "usage_tokens": "stored"}
    tool = {"name": "read", "description": "Reads", "parameters": {"type": "object"}}
    windowed = {"type": "context", "context_window": 200, "tools": [tool], "usage_tokens": 44.5}
    yield "stored", _talk(start, append, context, {"type": "turn_end", "entry_id": "e4"}, windowed)
    yield (
        "messages",
        _talk(
            {**start, "global_settings": repair},
            {"type": "context", "messages": [user, turn, found]},
            {"type": "turn_end", "response": last},
            {"type": "context", "unchanged": 3, "messages": [last, user], "event_id": "a2"},
            {"type": "context", "unchanged": 2, "messages": [user]},
        ),
    )
    yield (
        "lifecycle",
        _talk(
            start,
            append,
            {"type": "navigate", "leaf_id": "e2"},
            {"type": "select_model", "model": "m", "context_window": 100},
            {"type": "before_compaction", "reason": "threshold"},
            {"type": "compacted", "entry_id": "e2"},
            {"type": "attempt_cancelled", "attempt": "fork"},
            {"type": "command", "arguments": "stats"},
            {"type": "command", "arguments": "off"},
            context,
            {"type": "command", "arguments": "on"},
            {"type": "shut_down", "event_id": "z"},
            {"type": "session_start", "reason": "resume", "error": "no settings"},
        ),
    )
    yield (
        "tools",
        _talk(
            start,
            append,
            *(
                {"type": "tool", "name": name, "parameters": parameters, "event_id": f"t{number}"}
                for number, (name, parameters) in enumerate(
                    (
                        (
                            "search_history",
                            {"query": "tide", "load": True, "files": ["docs/a.md"], "limit": 3},
                        ),
                        (
                            "browse_history",
                            {"direction": "around", "historyId": "e1", "count": 3, "stride": 1},
                        ),
                        ("load_history", {"historyIds": ["e1", "e2"]}),
                        (
                            "read_context_output",
                            {"historyId": "e2", "source": "toolResult", "toolCallId": "c1", "limit": 9},
                        ),
                        (
                            "read_context_output",
                            {"historyId": "e2", "source": "assistant", "contentIndex": 0, "offset": 3},
                        ),
                    )
                )
            ),
        ),
    )
    growing: list[Any] = [
        {**start, "global_settings": {"contextPaging": {"tokenBudget": 90, "trimToTokens": 45}}}
    ]
    for number in range(1, 9):
        role, rest = ("user", {}) if number % 2 else ("assistant", {"stopReason": "stop", "usage": usage})
        message = {
            "role": role,
            "content": [{"type": "text", "text": "tide " * 20}],
            "timestamp": number,
            **rest,
        }
        parent = f"e{number - 1}" if number > 1 else None
        entry = {"type": "message", "id": f"e{number}", "parentId": parent, "message": message}
        growing.append({"type": "append", "entries": [entry]})
        growing.append({"type": "context"} if number % 2 else {"type": "turn_end", "entry_id": f"e{number}"})
    yield "growing", _talk(*growing)
    edit = {"type": "context_edit", "id": "e5", "parentId": "e4", "targetId": "e2", "replacement": None}
    cut = {"type": "compaction", "id": "e6", "parentId": "e5", "summary": "s", "firstKeptEntryId": "e3"}
    said = {"type": "custom_message", "id": "e7", "parentId": "e6", "customType": "t", "content": "x" * 200}
    side = {"type": "branch_summary", "id": "e8", "parentId": "e2", "summary": "there", "fromId": "e7"}
    changes = [{"type": "append", "entries": [each]} for each in (edit, cut, said, side)]
    asked = {"type": "context"}
    yield "kinds", _talk(start, append, asked, *[each for change in changes for each in (change, asked)])
    yield (
        "odd",
        b'{"id": 1}\n\n \nnull\n{"id": [1], "hello": {"version": 2}}\n\xff\n[]\n' + b" " * 5_000 + b'{"id"',
    )


def mutate(data: bytes, most: int, random: Random, plain: Callable[[bytes, int], bytes]) -> bytes:
    """Lines that are somewhat different. ``plain`` changes bytes that are no structure."""
    if random.random() < 0.1:
        return plain(data, most)
    lines = data.split(b"\n")
    values = [value for line in lines if (value := _value(line)) is not None]
    at = random.randrange(len(lines))
    match random.choice(
        ("change", "change", "change", "change", "event", "drop", "twice", "swap", "plain", "pad")
    ):
        case "change":
            value = _value(lines[at])
            if value is not None:
                lines[at] = dumped(changed(value, random, WORDS, values))
        case "event":
            value = _value(lines[at])
            if isinstance(value, dict) and isinstance(value.get("event"), dict):
                value["event"] = changed(value["event"], random, WORDS, values)
                lines[at] = dumped(value)
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(random.randrange(len(lines) + 1), lines[at])
        case "swap":
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case "pad":
            lines[at] += b" " * random.choice(
                (1, LINE_LIMIT - len(lines[at]) - 1, LINE_LIMIT, 2 * LINE_LIMIT)
            )
        case _:
            lines[at] = plain(lines[at], most)
    return b"\n".join(lines)[:most]


def _check_answer(request: bytes, answer: Any) -> None:
    assert answer.keys() in ({"id", "ok"}, {"id", "error"}), answer
    asked = _value(request) if len(request) <= LINE_LIMIT else None
    if isinstance(asked, dict) and (depth := depth_of(asked)) < _DEEP:
        given = asked.get("id")
        # What holds a number that no answer can hold is no request.
        refused = "error" in answer and answer["error"]["code"] == "INVALID_REQUEST" and answer["id"] is None
        assert answer["id"] == given or refused, (answer["id"], given, depth)
    if "ok" in answer:
        assert isinstance(answer["ok"], dict)
        return
    assert answer["error"].keys() == {"code", "message"}
    assert answer["error"]["code"] != "INTERNAL_ERROR", "a bug"
    assert isinstance(answer["error"]["message"], str)
    assert answer["error"]["message"]


def _check_again(bridge: Bridge, log: CheckedLog, request: bytes, answer: Any) -> None:
    asked = _value(request) if len(request) <= LINE_LIMIT else None
    if "ok" not in answer or not isinstance(asked, dict) or "hello" in asked:
        return
    event, session_id = asked["event"], asked["session"]
    if event.get("event_id") is None:
        return
    before = log.last_sequence(session_id)
    again = json.loads(json.dumps(bridge.answer(request)))
    if "ok" in again:
        assert again == answer
    else:
        assert again["error"]["code"] == "EVENT_ID_REUSED", again
    assert log.last_sequence(session_id) == before


def _value(line: bytes) -> Any:
    try:
        return loaded(line)
    except ValueError:
        return None


def _talk(*events: Any) -> bytes:
    hello = {"id": 0, "hello": {"version": 1, "host": "agent"}}
    requests = [{"id": n, "session": "s", "event": event} for n, event in enumerate(events, 1)]
    return b"".join(dumped(each) + b"\n" for each in (hello, *requests))
