"""Token estimates (design, section 5): the protocol, and the heuristic of four characters a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from .json_text import stringify, utf16_length
from .messages import Message, content_blocks, text

IMAGE_CHARACTERS = 4_800
"""What an image block counts as, in characters, whatever its size."""
CHARACTERS_PER_TOKEN = 4
HEURISTIC = "heuristic"


class TokenEstimator(Protocol):
    """Counts tokens of messages and of resident input. Must be deterministic and do no I/O."""

    @property
    def name(self) -> str:
        """What the estimator is called in settings and in the log."""
        ...

    def message_tokens(self, message: Message, fingerprint: bytes | None = None) -> int:
        """Tokens of one message by itself. Its fingerprint, where it is known, names it in a cache."""
        ...

    def resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the system prompt and the active tool definitions."""
        ...


class HeuristicEstimator:
    """Four UTF-16 code units a token, rounded up; what a host written in JavaScript counts."""

    name = HEURISTIC

    def message_tokens(self, message: Message, fingerprint: bytes | None = None) -> int:
        """Tokens of one message by itself.

        Raises:
            InvalidMessage: tool-call arguments are not JSON, or are nested too deeply.
        """
        return _tokens(measured(message, utf16_length, IMAGE_CHARACTERS))

    def resident_tokens(self, system_prompt: str, tools: Iterable[Mapping[str, Any]]) -> int:
        """Tokens of the system prompt and the JSON of the tool definitions, counted together.

        Raises:
            InvalidMessage: a tool definition is not JSON, or is nested too deeply.
        """
        return _tokens(utf16_length(system_prompt) + utf16_length(tools_text(tools)))


def tool_definitions(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parts of tool definitions that are resident input; missing parts are left out."""
    names = ("name", "description", "parameters")
    return [{name: tool[name] for name in names if name in tool} for tool in tools]


def tools_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """The JSON of tool definitions, as it is counted."""
    return stringify(tool_definitions(tools))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def measured(message: Message, size: Callable[[str], int], image: int) -> int:
    """The sizes of what is counted of a message, summed up; a picture's is ``image`` (design, section 5).

    Raises:
        InvalidMessage: tool-call arguments are not JSON, or are nested too deeply.
    """
    match message.get("role"):
        case "user" | "custom" | "toolResult":
            return _content_size(message.get("content"), size, image)
        case "assistant":
            return sum(_block_size(block, size) for block in content_blocks(message.get("content")))
        case "bashExecution":
            return size(text(message.get("command"))) + size(text(message.get("output")))
        case "branchSummary" | "compactionSummary":
            return size(text(message.get("summary")))
        case "system":
            return _system_size(message, size, image)
        case _:
            return 0


def _content_size(content: Any, size: Callable[[str], int], image: int) -> int:
    if isinstance(content, str):
        return size(content)
    total = 0
    for block in content_blocks(content):
        if block.get("type") == "text":
            total += size(text(block.get("text")))
        elif block.get("type") == "image":
            total += image
    return total


def _block_size(block: Mapping[str, Any], size: Callable[[str], int]) -> int:
    match block.get("type"):
        case "text":
            return size(text(block.get("text")))
        case "thinking":
            return size(text(block.get("thinking")))
        case "toolCall":
            return size(text(block.get("name"))) + size(stringify(block.get("arguments", {})))
        case _:
            return 0


def _system_size(message: Message, size: Callable[[str], int], image: int) -> int:
    total = _content_size(message.get("content"), size, image)
    sections = message.get("sections")
    if isinstance(sections, Mapping):
        total += sum(size(text(section)) for section in sections.values())
    tools = message.get("toolsAdded")
    return total + (size(stringify(tools)) if tools is not None else 0)
