"""Lengths and texts as the host, a JavaScript program, has them (design, section 5)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

Json = Any
Message = dict[str, Any]

IMAGE_CHARACTERS = 4_800
ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def length(text: str) -> int:
    """UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def stringify(value: Json) -> str:
    """What `JSON.stringify` makes of it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "null"
        return _number(value)
    if isinstance(value, str):
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{stringify(key)}:{stringify(item)}" for key, item in value.items()) + "}"
    return "[" + ",".join(stringify(item) for item in value) + "]"


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    written = "".join(str(digit) for digit in digits).rstrip("0")
    point = len(digits) + exponent
    prefix = "-" if sign else ""
    if -6 < point <= 0:
        return f"{prefix}0.{'0' * -point}{written}"
    if 0 < point <= 21:
        return f"{prefix}{written[:point]}.{written[point:]}"
    mantissa = written[0] + (f".{written[1:]}" if len(written) > 1 else "")
    return f"{prefix}{mantissa}e{point - 1:+d}"


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if ord(character) < 0x20 or 0xD800 <= ord(character) <= 0xDFFF:
        return f"\\u{ord(character):04x}"
    return character


def same(one: Json, other: Json) -> bool:
    """Whether two values are equal as JSON: 1 is 1.0, but not true; the order of keys does not matter."""
    return bool(one == other) and _typed(one) == _typed(other)


def _typed(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return [_typed(item) for item in value] if isinstance(value, list) else isinstance(value, bool)


def place(message: Message, others: list[Message]) -> int | None:
    """Where the first message equal to another one is."""
    return next((index for index, other in enumerate(others) if same(message, other)), None)


def tokens(characters: int) -> int:
    """Four characters are a token."""
    return -(-characters // 4)


def content_length(content: Json) -> int:
    """Text of the content; an image counts 4,800."""
    if isinstance(content, str):
        return length(content)
    total = 0
    for block in content if isinstance(content, list) else []:
        if block.get("type") == "text":
            total += length(block["text"])
        elif block.get("type") == "image":
            total += IMAGE_CHARACTERS
    return total


def message_tokens(message: Message) -> int:
    """The heuristic estimate of a message."""
    match message.get("role"):
        case "user" | "custom" | "toolResult":
            return tokens(content_length(message.get("content")))
        case "assistant":
            total = 0
            for block in blocks(message):
                match block.get("type"):
                    case "text":
                        total += length(block["text"])
                    case "thinking":
                        total += length(block["thinking"])
                    case "toolCall":
                        total += length(block["name"]) + length(stringify(block["arguments"]))
            return tokens(total)
        case "bashExecution":
            return tokens(length(message["command"]) + length(message["output"]))
        case "branchSummary" | "compactionSummary":
            return tokens(length(message["summary"]))
        case "system":
            sections = [text for text in (message.get("sections") or {}).values() if text]
            added = message.get("toolsAdded") or []
            total = content_length(message.get("content")) + sum(length(text) for text in sections)
            return tokens(total + (length(stringify(added)) if added else 0))
        case _:
            return 0


def resident_tokens(system_prompt: str, tools: list[dict[str, Any]]) -> int:
    """The system prompt and the tools, counted once."""
    told = [
        {key: tool[key] for key in ("name", "description", "parameters") if key in tool} for tool in tools
    ]
    return tokens(length(system_prompt) + length(stringify(told)))


def blocks(message: Message) -> list[dict[str, Any]]:
    """The content blocks of a message."""
    content = message.get("content")
    return content if isinstance(content, list) else []


def calls(message: Message) -> list[str]:
    """The ids of an assistant's tool calls, in order."""
    if message.get("role") != "assistant":
        return []
    return [block["id"] for block in blocks(message) if block.get("type") == "toolCall"]


def failed(message: Message) -> bool:
    """An interrupted assistant."""
    return message.get("stopReason") in ("aborted", "error")
