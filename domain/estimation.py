"""Token estimates (design, section 5): the protocol, and the heuristic of four characters a token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from .json_text import stringify, utf16_length
from .messages import Message, content_blocks, text

IMAGE_CHARACTERS = 4_800
"""What an image block counts as, in characters, whatever its size."""
CHARACTERS_PER_TOKEN = 4


class TokenEstimator(Protocol):
    """Counts tokens of messages and of resident input. Must be deterministic and do no I/O."""

    @property
    def name(self) -> str:
        """What the estimator is called in settings and in the log."""
        ...

    def message_tokens(self, message: Message) -> int:
        """Tokens of one message by itself."""
        ...

    def resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the system prompt and the active tool definitions."""
        ...


class HeuristicEstimator:
    """Four UTF-16 code units a token, rounded up; what a host written in JavaScript counts."""

    name = "heuristic"

    def message_tokens(self, message: Message) -> int:
        """Tokens of one message by itself.

        Raises:
            InvalidMessage: tool-call arguments are not JSON, or are nested too deeply.
        """
        return _tokens(_characters(message))

    def resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the system prompt and the JSON of the tool definitions, counted together.

        Raises:
            InvalidMessage: a tool definition is not JSON, or is nested too deeply.
        """
        return _tokens(utf16_length(system_prompt) + utf16_length(stringify(tool_definitions(tools))))


def tool_definitions(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parts of tool definitions that are resident input; missing parts are left out."""
    names = ("name", "description", "parameters")
    return [{name: tool[name] for name in names if name in tool} for tool in tools]


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def _characters(message: Message) -> int:
    match message.get("role"):
        case "user" | "custom" | "toolResult":
            return _content_characters(message.get("content"))
        case "assistant":
            return sum(map(_assistant_block_characters, content_blocks(message.get("content"))))
        case "bashExecution":
            return _length(message.get("command")) + _length(message.get("output"))
        case "branchSummary" | "compactionSummary":
            return _length(message.get("summary"))
        case "system":
            return _system_characters(message)
        case _:
            return 0


def _content_characters(content: Any) -> int:
    if isinstance(content, str):
        return utf16_length(content)
    characters = 0
    for block in content_blocks(content):
        if block.get("type") == "text":
            characters += _length(block.get("text"))
        elif block.get("type") == "image":
            characters += IMAGE_CHARACTERS
    return characters


def _assistant_block_characters(block: Mapping[str, Any]) -> int:
    match block.get("type"):
        case "text":
            return _length(block.get("text"))
        case "thinking":
            return _length(block.get("thinking"))
        case "toolCall":
            return _length(block.get("name")) + utf16_length(stringify(block.get("arguments", {})))
        case _:
            return 0


def _system_characters(message: Message) -> int:
    characters = _content_characters(message.get("content"))
    sections = message.get("sections")
    if isinstance(sections, Mapping):
        characters += sum(map(_length, sections.values()))
    tools = message.get("toolsAdded")
    return characters + (utf16_length(stringify(tools)) if tools is not None else 0)


def _length(value: Any) -> int:
    return utf16_length(text(value))
