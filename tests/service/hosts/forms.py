"""How three kinds of message lists hold a conversation, and what their providers refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from context_paging.service.hosts.anthropic import AnthropicMessages
from context_paging.service.hosts.message_list import MessageList
from context_paging.service.hosts.openai_chat import OpenAIChat
from context_paging.service.hosts.openai_responses import OpenAIResponses

from .scripts import Model, Results, Step, User

PICTURE = "iVBORw0KGgo="


@dataclass(frozen=True)
class Form:
    """One kind of message list."""

    name: str
    open: type[Any]
    write: Callable[[Step], list[Any]]
    check: Callable[[list[Any]], None]
    sent: Callable[[Any], list[Any]]


def anthropic(step: Step) -> list[Any]:
    """A step as Anthropic messages."""
    match step:
        case User(text, image):
            source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
            blocks = [{"type": "image", "source": source}] if image else []
            return [{"role": "user", "content": [*blocks, {"type": "text", "text": text}] if image else text}]
        case Model(text, thought, calls):
            content: list[Any] = (
                [{"type": "thinking", "thinking": thought, "signature": "c2ln"}] if thought else []
            )
            content += [{"type": "text", "text": text}] if text else []
            content += [{"type": "tool_use", "id": c, "name": "read", "input": {"path": c}} for c in calls]
            return [{"role": "assistant", "content": content}]
        case Results(answers):
            blocks = [{"type": "tool_result", "tool_use_id": c, "content": text} for c, text in answers]
            return [{"role": "user", "content": blocks}]


def chat(step: Step) -> list[Any]:
    """A step as chat messages."""
    match step:
        case User(text, image):
            url = {"url": f"data:image/png;base64,{PICTURE}"}
            parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": url}]
            return [{"role": "user", "content": parts if image else text}]
        case Model(text, _, calls):
            function = [
                {"id": c, "type": "function", "function": {"name": "read", "arguments": f'{{"path":"{c}"}}'}}
                for c in calls
            ]
            message: dict[str, Any] = {"role": "assistant", "content": text or None}
            return [{**message, "tool_calls": function} if calls else message]
        case Results(answers):
            return [{"role": "tool", "tool_call_id": c, "content": text} for c, text in answers]


def items(step: Step) -> list[Any]:
    """A step as input items."""
    match step:
        case User(text, image):
            url = f"data:image/png;base64,{PICTURE}"
            parts = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]
            return [{"role": "user", "content": parts if image else text}]
        case Model(text, thought, calls):
            found: list[Any] = []
            if thought:
                found.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": thought})
            if text or not calls:
                content = [{"type": "output_text", "text": text, "annotations": []}]
                found.append({"type": "message", "role": "assistant", "content": content})
            found += [
                {"type": "function_call", "call_id": c, "name": "read", "arguments": f'{{"path":"{c}"}}'}
                for c in calls
            ]
            return found
        case Results(answers):
            return [{"type": "function_call_output", "call_id": c, "output": text} for c, text in answers]


def check_anthropic(messages: list[Any]) -> None:
    """Refuse what Anthropic's API refuses of the order of messages and blocks."""
    merged: list[tuple[str, list[Any]]] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks, "a message without content"
        if merged and merged[-1][0] == message["role"]:
            merged[-1][1].extend(blocks)
        else:
            merged.append((message["role"], list(blocks)))
    assert merged[0][0] == "user", "the first message is the user's"
    open_calls: list[str] = []
    for role, blocks in merged:
        if role == "user":
            kinds = [block["type"] == "tool_result" for block in blocks]
            assert kinds == sorted(kinds, reverse=True), "results come first"
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert sorted(answered) == sorted(open_calls), "each call has one result"
            open_calls = []
        else:
            assert not open_calls
            open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            assert blocks[-1]["type"] != "thinking"
    assert not open_calls


def check_chat(messages: list[Any]) -> None:
    """Refuse what chat completions refuse: results without a call, calls without a result behind them."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.remove(message["tool_call_id"])
            continue
        assert not open_calls
        open_calls = {call["id"] for call in message.get("tool_calls", ())}
    assert not open_calls


def check_items(sent: list[Any]) -> None:
    """Refuse what responses refuse: an output without its call before it, a call without an output."""
    open_calls: set[str] = set()
    for position, item in enumerate(sent):
        kind = item.get("type")
        if kind == "function_call":
            open_calls.add(item["call_id"])
        elif kind == "function_call_output":
            assert item["call_id"] in open_calls
            open_calls.remove(item["call_id"])
        elif item.get("role") == "user":
            assert not open_calls
        if kind == "reasoning":
            following = sent[position + 1].get("type") if position + 1 < len(sent) else None
            assert following in ("message", "function_call"), "reasoning needs what follows it"
    assert not open_calls


def wire(messages: Iterable[Any]) -> list[str]:
    """Messages as they are sent, but for the marks of the prompt cache, which are no part of the prompt."""
    return [json.dumps(_unmarked(message), ensure_ascii=False) for message in messages]


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        shown = {key: _unmarked(part) for key, part in value.items() if key != "cache_control"}
        if isinstance(shown.get("content"), str) and "role" in shown and "tool_call_id" not in shown:
            shown["content"] = [{"type": "text", "text": shown["content"]}]
        return shown
    return [_unmarked(part) for part in value] if isinstance(value, list) else value


FORMS = [
    Form("anthropic", AnthropicMessages, anthropic, check_anthropic, lambda request: request.messages),
    Form("chat", OpenAIChat, chat, check_chat, lambda request: request.messages),
    Form("responses", OpenAIResponses, items, check_items, lambda request: request.input),
]
"""All of them."""

__all__ = ["FORMS", "Form", "MessageList", "wire"]
