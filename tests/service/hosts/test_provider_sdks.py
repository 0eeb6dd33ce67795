"""The SDKs of Anthropic and OpenAI with paged message lists: real clients, a scripted server behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai

from context_paging.service.hosts.anthropic import AnthropicMessages
from context_paging.service.hosts.openai_chat import OpenAIChat
from context_paging.service.hosts.openai_responses import OpenAIResponses
from context_paging.service.paging import ContextPaging, PagingSettings

from .agents import BUDGET, QUESTION, Call, Script, as_json, check, file_text
from .forms import check_anthropic, check_chat, check_items, wire

INSTRUCTIONS = "Look things up."
READ_FILE = {
    "name": "read_file",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
}


def _paging() -> ContextPaging:
    return ContextPaging(settings=PagingSettings(token_budget=BUDGET))


def _served(answer: Callable[[Any], Any], bodies: list[Any]) -> httpx2.Client:
    def handle(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, json=answer(bodies[-1]))

    return httpx2.Client(transport=httpx2.MockTransport(handle))


def test_anthropic_messages() -> None:
    script, bodies = Script(), list[Any]()

    def answer(body: Any) -> Any:
        check_anthropic(body["messages"])
        step = script.next(wire(body["messages"]))
        thought = {"type": "thinking", "thinking": f"Step {script.turn}.", "signature": "c2lnbmF0dXJl"}
        said: Any = (
            {
                "type": "tool_use",
                "id": f"call_{script.turn}",
                "name": step.name,
                "input": step.arguments,
            }
            if isinstance(step, Call)
            else {"type": "text", "text": step}
        )
        tokens = script.input_tokens
        return {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [thought, said],
            "stop_reason": "tool_use" if isinstance(step, Call) else "end_turn",
            "usage": {"input_tokens": 0, "cache_read_input_tokens": tokens, "output_tokens": 20},
        }

    client = anthropic.Anthropic(api_key="k", http_client=_served(answer, bodies), max_retries=0)
    tool: Any = {"name": "read_file", "description": "Read a file.", "input_schema": READ_FILE["parameters"]}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    with AnthropicMessages(_paging(), "s") as chat:
        while True:
            request = chat.page(messages, system=INSTRUCTIONS, tools=[tool])
            response = client.messages.create(model="m", max_tokens=500, **request.arguments)
            messages.append(chat.responded(response))
            uses = [block for block in response.content if block.type == "tool_use"]
            if not uses:
                break
            results = [
                chat.answers(use)
                or {"type": "tool_result", "tool_use_id": use.id, "content": _read(use.input)}
                for use in uses
            ]
            messages.append({"role": "user", "content": results})
        anchor = chat.conversation.session.state.calibration.anchor
        assert anchor is not None
        assert anchor.reported_tokens == script.input_tokens + 20

    check(script)
    assert messages[-1]["content"][-1]["text"] == "Harbour 2."
    # Signatures go out as they came, in every request that holds them.
    for body in bodies:
        thoughts = [b for m in body["messages"] if m["role"] == "assistant" for b in m["content"]]
        assert all(b["signature"] == "c2lnbmF0dXJl" for b in thoughts if b["type"] == "thinking")
    _check_marks(bodies)


def _check_marks(bodies: list[Any]) -> None:
    """The marks of the prompt cache stand where the request ends, and where the one before ended."""
    for before, body in zip([None, *bodies[:-1]], bodies, strict=True):
        marked = [n for n, message in enumerate(body["messages"]) if _is_marked(message)]
        stable = before is not None and wire(body["messages"][: len(before["messages"])]) == wire(
            before["messages"]
        )
        assert marked[-1] == len(body["messages"]) - 1
        if stable:
            assert len(before["messages"]) - 1 in marked
        assert len(marked) <= 2
        assert body["system"] == [
            {"type": "text", "text": INSTRUCTIONS, "cache_control": {"type": "ephemeral"}}
        ]


def _is_marked(message: Any) -> bool:
    return isinstance(message["content"], list) and any("cache_control" in b for b in message["content"])


def test_there_are_never_more_marks_than_the_api_takes() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system: list[Any] = [{"type": "text", "text": "a", **mark}, {"type": "text", "text": "b", **mark}]
    tool = {"name": "t", "description": "", "input_schema": {}, **mark}
    chat, messages = AnthropicMessages(_paging(), "s"), [{"role": "user", "content": "hi"}]
    for _ in range(3):
        sent = chat.page(messages, system=system, tools=[tool]).messages
        assert [_is_marked(message) for message in sent] == [False] * (len(sent) - 1) + [True]
        messages = [*messages, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "hi"}]


def test_a_call_of_the_providers_own_tool_stays_with_its_result_in_a_later_message() -> None:
    chat = AnthropicMessages(
        ContextPaging(settings=PagingSettings(token_budget=700)), "s", recovery_tools=False
    )
    messages, sent = list[Any](), list[Any]()
    for number in range(12):
        use = {"type": "server_tool_use", "id": f"srv_{number}", "name": "web_search", "input": {}}
        found = [{"type": "web_search_result", "encrypted_content": "c2VjcmV0", "title": "Tides " * 30}]
        result = {"type": "web_search_tool_result", "tool_use_id": f"srv_{number}", "content": found}
        client = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": {}}
        messages += [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": [use, client]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"call_{number}", "content": "x " * 99}],
            },
            {"role": "assistant", "content": [result, {"type": "text", "text": "So."}]},
        ]
        sent = chat.page([*messages, {"role": "user", "content": "and?"}]).messages
        kinds = [b for m in sent if isinstance(m["content"], list) for b in m["content"]]
        calls = [b["id"] for b in kinds if b["type"] == "server_tool_use"]
        assert calls == [b["tool_use_id"] for b in kinds if b["type"] == "web_search_tool_result"]
    assert len(sent) < len(messages)
    shown = chat.conversation.tool("search_history", {"query": "Tides", "load": True})
    assert "Tides" in shown
    assert "c2VjcmV0" not in shown


def test_marks_of_the_program_are_left_alone() -> None:
    own: Any = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    messages: list[Any] = [{"role": "user", "content": [own]}]
    chat = AnthropicMessages(_paging(), "s")

    first = chat.page(messages, system="s")
    again = chat.page([*messages, {"role": "assistant", "content": "ho"}, messages[0]], system="s")

    assert first.messages == messages
    assert first.messages[0] is messages[0]
    assert again.system == "s"
    assert sum(map(_is_marked, again.messages)) == 2


def test_text_behind_results_is_a_request_unless_it_is_a_reminder() -> None:
    chat = AnthropicMessages(_paging(), "s")
    use = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}

    for text, roles in (("do it", "user"), ("<system-reminder>\nbe brief\n</system-reminder>", "toolResult")):
        reminder = {"type": "text", "text": text}
        chat.page(
            [
                {"role": "user", "content": text},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result, reminder]},
            ]
        )
        assert chat.conversation.session.stored.messages()[-1]["role"] == roles


def test_openai_chat() -> None:
    script, bodies = Script(), list[Any]()

    def answer(body: Any) -> Any:
        check_chat(body["messages"])
        script_step = script.next([as_json(message) for message in body["messages"]])
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if isinstance(script_step, Call):
            function = {"name": script_step.name, "arguments": as_json(script_step.arguments)}
            message["tool_calls"] = [{"id": f"call_{script.turn}", "type": "function", "function": function}]
        else:
            message["content"] = script_step
        tokens = script.input_tokens
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20},
        }

    client = openai.OpenAI(api_key="k", http_client=_served(answer, bodies), max_retries=0)
    messages: list[Any] = [
        {"role": "developer", "content": INSTRUCTIONS},
        {"role": "user", "content": QUESTION},
    ]
    with OpenAIChat(_paging(), "s") as chat:
        while True:
            request = chat.page(messages, tools=[{"type": "function", "function": READ_FILE}])
            response = client.chat.completions.create(model="m", **request.arguments)
            messages.append(chat.responded(response))
            calls: Any = response.choices[0].message.tool_calls
            if not calls:
                break
            messages += [
                chat.answers(call)
                or {"role": "tool", "tool_call_id": call.id, "content": _read(call.function.arguments)}
                for call in calls
            ]
        anchor = chat.conversation.session.state.calibration.anchor
        assert anchor is not None
        assert anchor.reported_tokens == script.input_tokens + 20

    check(script)
    assert messages[-1]["content"] == "Harbour 2."
    assert all(body["messages"][0]["content"] == INSTRUCTIONS for body in bodies)


def test_openai_responses() -> None:
    script, bodies = Script(), list[Any]()

    def answer(body: Any) -> Any:
        check_items(body["input"])
        step = script.next([as_json(item) for item in body["input"]])
        turn = script.turn
        thought = {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "c2VjcmV0"}
        said: Any = (
            {
                "type": "function_call",
                "id": f"fc_{turn}",
                "call_id": f"call_{turn}",
                "name": step.name,
                "arguments": as_json(step.arguments),
            }
            if isinstance(step, Call)
            else {
                "type": "message",
                "id": f"msg_{turn}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": step, "annotations": []}],
            }
        )
        tokens = script.input_tokens
        return {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "output": [thought, said],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": tokens,
                "input_tokens_details": {"cached_tokens": tokens // 2},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens + 20,
            },
        }

    client = openai.OpenAI(api_key="k", http_client=_served(answer, bodies), max_retries=0)
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    with OpenAIResponses(_paging(), "s") as chat:
        while True:
            request = chat.page(items, instructions=INSTRUCTIONS, tools=[{"type": "function", **READ_FILE}])
            response = client.responses.create(model="m", store=False, **request.arguments)
            items += chat.responded(response)
            calls: Any = [item for item in response.output if item.type == "function_call"]
            if not calls:
                break
            items += [
                chat.answers(call)
                or {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": _read(call.arguments),
                }
                for call in calls
            ]
        anchor = chat.conversation.session.state.calibration.anchor
        assert anchor is not None
        assert anchor.reported_tokens == script.input_tokens + 20

    check(script)
    assert items[-1]["content"][0]["text"] == "Harbour 2."
    # No reasoning item is altered or parted from what follows it.
    reasoning = [item for body in bodies for item in body["input"] if item.get("type") == "reasoning"]
    assert {item["encrypted_content"] for item in reasoning} == {"c2VjcmV0"}


def _read(arguments: Any) -> str:
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return file_text(given["number"])


def test_text_of_the_user_while_a_tool_of_the_provider_is_pending_stays_where_it_is() -> None:
    chat = AnthropicMessages(_paging(), "s", cache_marks=False, recovery_tools=False)

    def use(kind: str, number: int) -> Any:
        return {"type": kind, "id": f"{kind}_{number}", "name": "t", "input": {}}

    def result(number: int) -> Any:
        return {"type": "tool_result", "tool_use_id": f"tool_use_{number}", "content": "x"}

    found = {"type": "web_search_tool_result", "tool_use_id": "server_tool_use_1", "content": []}
    messages: list[Any] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use("server_tool_use", 1), use("tool_use", 1)]},
        {"role": "user", "content": [result(1), {"type": "text", "text": "and this"}]},
        {"role": "assistant", "content": [found, use("tool_use", 2)]},
        {"role": "user", "content": [result(2)]},
    ]

    for count in (1, 3, 5):
        assert chat.page(messages[:count]).messages == messages[:count]


def test_a_stray_result_inside_a_unit_is_left_out_by_a_repair() -> None:
    settings = PagingSettings(on_invalid_structure="repair")
    chat = AnthropicMessages(ContextPaging(settings=settings), "s", cache_marks=False, recovery_tools=False)
    search = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    call = {"type": "tool_use", "id": "call", "name": "read", "input": {}}
    results = [{"type": "tool_result", "tool_use_id": i, "content": "x"} for i in ("call", "stray")]
    found = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}

    sent = chat.page(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [search, call]},
            {"role": "user", "content": results},
            {"role": "assistant", "content": [found, {"type": "text", "text": "So."}]},
            {"role": "user", "content": "and?"},
        ]
    ).messages

    check_anthropic(sent)
    assert sent[2]["content"] == results[:1]
