"""What an adapter says about its host's messages, and the messages that context paging makes of them.

A unit is a stretch of the host's list that is read together: one message, or several items that one model
response came in. It makes no messages (a system prompt), one, or several (tool results that the host keeps in
one message). What a unit has of instructions is resident input: it always goes out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.messages import Message, text_content

H = TypeVar("H")
"""A message, or an item, of the host."""
P = TypeVar("P")


class InvalidHostMessage(ContextPagingError):
    """A host's message cannot be read."""

    code = "INVALID_HOST_MESSAGE"


class Converter(Protocol[H]):
    """How one kind of host message is read and written. Nothing the host passed is changed."""

    @property
    def look_back(self) -> int:
        """How many of the newest units may end elsewhere when further messages come."""
        ...

    def extent(self, messages: Sequence[H], start: int) -> int:
        """Where the unit that starts at ``start`` ends."""
        ...

    def convert(self, unit: Sequence[H], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The messages a unit makes, in the form of `domain.messages`, without timestamps.

        ``tool_names`` are the names of the tools called so far by the ids of the calls.

        Raises:
            InvalidHostMessage: the unit cannot be read.
        """
        ...

    def resident_text(self, unit: Sequence[H]) -> str | None:
        """The text of what always goes out of a unit: resident input. ``None`` if there is nothing."""
        ...

    def residue(self, unit: Sequence[H]) -> Sequence[H]:
        """What goes out of a unit with resident text when all its messages have left the window."""
        ...

    def rebuild(self, unit: Sequence[H], parts: Sequence[tuple[int, str | None]]) -> Sequence[H]:
        """The host messages of some of a unit's messages, in the given order, with what always goes out.

        A part is the position of a message in what `convert` made of the unit, and the text that replaces the
        content of that tool result, or ``None`` to leave it as it is.
        """
        ...

    def notice(self, text: str) -> H:
        """A message of the user that says ``text``."""
        ...


class OneMessageUnits(Generic[H]):
    """The part of a converter whose units are single messages, instructions or not."""

    look_back = 0

    def extent(self, messages: Sequence[H], start: int) -> int:
        """Where the unit that starts at ``start`` ends."""
        return start + 1

    def residue(self, unit: Sequence[H]) -> Sequence[H]:
        """Instructions as they are."""
        return unit


def user_message(content: Any) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": content}


def add_said(parts: list[tuple[dict[str, Any], list[P]]], block: dict[str, Any], held: P) -> None:
    """Add what the user says to the messages that one host message makes, each with what it is made of.

    It belongs to what the user said right before it.
    """
    if parts and parts[-1][0]["role"] == "user":
        parts[-1][0]["content"].append(block)
        parts[-1][1].append(held)
    else:
        parts.append((user_message([block]), [held]))


def program_message(content: str) -> dict[str, Any]:
    """What the program tells the model by itself: no request of the user, and evicted when its turn comes."""
    return {"role": "bashExecution", "command": "", "output": content}


def assistant_message(
    content: list[dict[str, Any]], usage: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A message of the model."""
    calls = any(block["type"] == "toolCall" for block in content)
    message = {"role": "assistant", "content": content, "stopReason": "toolUse" if calls else "stop"}
    return message if usage is None else {**message, "usage": usage}


def tool_result(call_id: str, name: str, content: Any, *, failed: bool = False) -> dict[str, Any]:
    """What a tool answered. Content is text, or a list of blocks."""
    blocks = text_content(content) if isinstance(content, str) else content
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": name,
        "content": blocks,
        "isError": failed,
    }


def text_block(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


def image_block(data: str, media_type: str) -> dict[str, Any]:
    """An image: its data in base64, or its address."""
    return {"type": "image", "data": data, "mimeType": media_type}


def opaque_block(value: Any) -> dict[str, Any]:
    """What the user or a tool passed and no other block can hold: searched and counted as its JSON.

    Raises:
        InvalidHostMessage: it is nested too deeply.
    """
    try:
        return text_block(json.dumps(_public(value), ensure_ascii=False, default=str))
    except RecursionError:
        raise InvalidHostMessage("a part of a message is nested too deeply") from None


def _public(value: Any) -> Any:
    """A value without what only the model's provider may read."""
    if isinstance(value, Mapping):
        return {key: _public(part) for key, part in value.items() if not _is_private(key)}
    return [_public(part) for part in value] if isinstance(value, list | tuple) else value


def _is_private(key: Any) -> bool:
    name = str(key).lower()
    return name.startswith("encrypted") or name.endswith("signature")


def thinking_block(text: str) -> dict[str, Any]:
    """What only the model's provider reads: counted, and never shown by recovery tools."""
    return {"type": "thinking", "thinking": text}


def tool_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call of a tool. Arguments that are no JSON object stay what they are."""
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def definition_parts(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    """What is counted of a tool's definition, without what it lacks."""
    given = {"name": name, "description": description, "parameters": parameters}
    return {part: value for part, value in given.items() if value is not None}


def parsed_arguments(text: Any) -> Any:
    """Arguments of a call that a host keeps as JSON text; what is none stays text."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return text


def usage_counters(
    input_tokens: int | None, output_tokens: int | None, cache_read: int | None, cache_write: int | None
) -> dict[str, Any] | None:
    """What a provider reported, in tokens; ``input_tokens`` without those read from or written to a cache.

    A report without any input is none: servers that do not count report zeros, and would make every request
    look small.
    """
    if not (input_tokens or cache_read or cache_write):
        return None
    return {
        "input": input_tokens or 0,
        "output": output_tokens or 0,
        "cacheRead": cache_read or 0,
        "cacheWrite": cache_write or 0,
    }


def same_content(one: Message, other: Message) -> bool:
    """Whether two messages say the same, whatever their timestamps and usage."""
    return _said(one) == _said(other)


def _said(message: Message) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in ("timestamp", "usage")}
