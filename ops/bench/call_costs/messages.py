"""The conversation that everybody gets, as messages of context paging. Needs the standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

EXCHANGES = 3
"""Calls of a tool, each with its result, between a question and its answer."""
TURN = 2 + 2 * EXCHANGES


def conversation(start: int, stop: int) -> Iterator[dict[str, Any]]:
    """Messages ``start`` to ``stop`` of an endless conversation, about 55 tokens each.

    A question, three calls with a result each, an answer; again and again. Behind each odd number of messages
    a provider call is due: the last one is a question or a result.
    """
    return (message(number) for number in range(start, stop))


def message(number: int) -> dict[str, Any]:
    """One message of the conversation, by its place in it."""
    position = number % TURN
    if position == 0:
        text = f"Question {number}: " + "please look where this comes from. " * 3
        return {"role": "user", "content": text, "timestamp": number}
    if position == TURN - 1:
        said = {"type": "text", "text": f"Answer {number}: " + "it comes from the module above. " * 6}
        return {"role": "assistant", "content": [said], "stopReason": "stop", "timestamp": number}
    if position % 2:
        return {
            "role": "assistant",
            "content": [
                {"type": "text", "text": f"Step {number}: I look into the next file."},
                {
                    "type": "toolCall",
                    "id": f"call_{number}",
                    "name": "read",
                    "arguments": {"path": f"src/{number}.py"},
                },
            ],
            "stopReason": "toolUse",
            "timestamp": number,
        }
    return {
        "role": "toolResult",
        "toolCallId": f"call_{number - 1}",
        "toolName": "read",
        "content": [{"type": "text", "text": f"line {number} of the file\n" * 16}],
        "isError": False,
        "timestamp": number,
    }


def odd(length: int) -> int:
    """The length, or one more, so that a provider call is due behind so many messages."""
    return length + 1 - length % 2


def text_of(said: dict[str, Any]) -> str:
    """The text of a message's content, without thinking and pictures."""
    content = said.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def calls_of(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message."""
    content = said.get("content")
    if said["role"] != "assistant" or not isinstance(content, list):
        return []
    return [block for block in content if block.get("type") == "toolCall"]
