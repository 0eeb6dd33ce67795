"""What an adapter costs in a provider call, beside what the host itself spends on the request.

    python ops/bench/hosts.py [--messages 10000] [--json]

For each host: a conversation of so many messages, then calls with two further messages each. ``adapter`` is
what the adapter adds to the session's own work (finding what is new, reading it, putting the request
together), ``session`` that work itself (events, selection), ``host`` the host's own serialisation of the
outgoing request in the same run, all in milliseconds, medians. Google ADK and Strands copy all messages in
each call, so that everything has to be compared; that copying is a part of what they spend.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from context_paging.service.hosts.conversation import HostConversation
from context_paging.service.paging import ContextPaging

CALLS = 40
TURN = 7


@dataclass(frozen=True)
class Host:
    """How a host's messages are made, and how it serialises what goes out."""

    converter: Any
    user: Callable[[str], Any]
    call: Callable[[str, str], list[Any]]
    result: Callable[[str, str], Any]
    serialise: Callable[[list[Any]], Any]
    copied: Callable[[list[Any]], list[Any]] = list


def messages(host: Host, count: int) -> Iterator[Any]:
    """A conversation: every few calls of a tool, the user says something."""
    made = number = 0
    while made < count:
        yield host.user(f"Question {number}: " + "please look " * 10)
        made += 1
        for _ in range(TURN):
            number += 1
            said = host.call(f"call_{number}", "I will look at it. " * 3)
            yield from said
            yield host.result(f"call_{number}", f"line {number} " * 60)
            made += len(said) + 1


def measure(host: Host, count: int) -> dict[str, float]:
    """Medians in milliseconds."""
    paging = ContextPaging()
    conversation: HostConversation[Any] = HostConversation(lambda: paging.session("bench"), host.converter)
    session: Any = conversation.session
    inside = [0.0]
    context = session.context

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return context(*args, **kwargs)
        finally:
            inside[0] = time.perf_counter() - start

    session.context = timed
    passed = list(messages(host, count))
    conversation.page(passed)
    adapter, own, serialised = [], [], []
    for number in range(CALLS):
        passed = [*passed, *host.call(f"new_{number}", "And on."), host.result(f"new_{number}", "x " * 200)]
        start = time.perf_counter()
        given = host.copied(passed)
        copied = time.perf_counter() - start
        start = time.perf_counter()
        paged = conversation.page(given)
        whole = time.perf_counter() - start
        adapter.append(whole - inside[0])
        own.append(inside[0])
        start = time.perf_counter()
        host.serialise(paged.messages)
        serialised.append(time.perf_counter() - start + copied)
    return {
        "messages": len(passed),
        "sent": len(paged.messages),
        "adapter": statistics.median(adapter) * 1e3,
        "session": statistics.median(own) * 1e3,
        "host": statistics.median(serialised) * 1e3,
    }


def hosts() -> Iterator[tuple[str, Host]]:
    """All of them."""
    from context_paging.service.hosts.anthropic import AnthropicConverter
    from context_paging.service.hosts.openai_chat import ChatConverter
    from context_paging.service.hosts.openai_responses import ItemsConverter

    anthropic = Host(
        AnthropicConverter(),
        lambda text: {"role": "user", "content": text},
        lambda call, text: [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": text},
                    {"type": "tool_use", "id": call, "name": "read", "input": {"path": call}},
                ],
            }
        ],
        lambda call, text: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call, "content": text}],
        },
        json.dumps,
    )
    yield "Anthropic messages", anthropic
    yield "Anthropic messages, copies", replace(anthropic, copied=copy.deepcopy)
    yield (
        "OpenAI chat messages",
        Host(
            ChatConverter(),
            lambda text: {"role": "user", "content": text},
            lambda call, text: [
                {
                    "role": "assistant",
                    "content": text,
                    "tool_calls": [
                        {
                            "id": call,
                            "type": "function",
                            "function": {"name": "read", "arguments": f'{{"path": "{call}"}}'},
                        }
                    ],
                }
            ],
            lambda call, text: {"role": "tool", "tool_call_id": call, "content": text},
            json.dumps,
        ),
    )
    yield (
        "OpenAI items, Agents SDK",
        Host(
            ItemsConverter(),
            lambda text: {"role": "user", "content": text},
            lambda call, text: [
                {"role": "assistant", "content": text},
                {"type": "function_call", "call_id": call, "name": "read", "arguments": "{}"},
            ],
            lambda call, text: {"type": "function_call_output", "call_id": call, "output": text},
            json.dumps,
        ),
    )
    yield "LangChain", _langchain()
    yield "Pydantic AI", _pydantic_ai()
    yield "Google ADK", _google_adk()
    yield "Strands", _strands()
    yield "Agent Framework", _agent_framework()


def _langchain() -> Host:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_openai_messages

    from context_paging.service.hosts.langchain import LangChainConverter

    return Host(
        LangChainConverter(),
        HumanMessage,
        lambda call, text: [
            AIMessage(text, tool_calls=[{"name": "read", "args": {"path": call}, "id": call}])
        ],
        lambda call, text: ToolMessage(text, tool_call_id=call),
        lambda sent: json.dumps(convert_to_openai_messages(sent)),
    )


def _pydantic_ai() -> Host:
    from pydantic_ai.messages import (
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    from context_paging.service.hosts.pydantic_ai import PydanticAIConverter

    return Host(
        PydanticAIConverter(),
        lambda text: ModelRequest(parts=[UserPromptPart(text)]),
        lambda call, text: [
            ModelResponse(parts=[TextPart(text), ToolCallPart("read", {"path": call}, call)])
        ],
        lambda call, text: ModelRequest(parts=[ToolReturnPart("read", text, call)]),
        ModelMessagesTypeAdapter.dump_json,
    )


def _google_adk() -> Host:
    from google.genai import types

    from context_paging.service.hosts.google_adk import AdkConverter

    def content(role: str, *parts: Any) -> Any:
        return types.Content(role=role, parts=list(parts))

    def copied(contents: list[Any]) -> list[Any]:
        # As ADK does it: contents and their parts, not what the parts hold.
        return [
            item.model_copy(update={"parts": [part.model_copy() for part in item.parts]}) for item in contents
        ]

    return Host(
        AdkConverter(),
        lambda text: content("user", types.Part(text=text)),
        lambda call, text: [
            content(
                "model",
                types.Part(text=text),
                types.Part(function_call=types.FunctionCall(name="read", args={"path": call})),
            )
        ],
        lambda call, text: content(
            "user",
            types.Part(function_response=types.FunctionResponse(name="read", response={"result": text})),
        ),
        lambda sent: json.dumps([item.model_dump(mode="json", exclude_none=True) for item in sent]),
        copied=copied,
    )


def _strands() -> Host:
    from context_paging.service.hosts.strands import StrandsConverter

    return Host(
        StrandsConverter(),
        lambda text: {"role": "user", "content": [{"text": text}]},
        lambda call, text: [
            {
                "role": "assistant",
                "content": [
                    {"text": text},
                    {"toolUse": {"toolUseId": call, "name": "read", "input": {"path": call}}},
                ],
            }
        ],
        lambda call, text: {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": call, "status": "success", "content": [{"text": text}]}}
            ],
        },
        json.dumps,
        copied=copy.deepcopy,
    )


def _agent_framework() -> Host:
    from agent_framework import Content, Message

    from context_paging.service.hosts.agent_framework import AgentFrameworkConverter

    return Host(
        AgentFrameworkConverter(),
        lambda text: Message("user", [text]),
        lambda call, text: [
            Message("assistant", [text, Content.from_function_call(call, "read", arguments={"path": call})])
        ],
        lambda call, text: Message("tool", [Content.from_function_result(call, result=text)]),
        lambda sent: json.dumps([message.to_dict() for message in sent]),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: measure(host, options.messages) for name, host in hosts()}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    table = Table("host", "messages", "sent", "adapter", "session", "host", "adapter / host")
    for name, told in found.items():
        numbers = (told["adapter"], told["session"], told["host"], told["adapter"] / told["host"])
        table.add_row(
            name, f"{told['messages']:,}", f"{told['sent']:,}", *(f"{number:.2f}" for number in numbers)
        )
    Console().print(table)


if __name__ == "__main__":
    main()
