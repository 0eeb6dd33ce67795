"""OpenAI message lists: what goes into ``chat.completions.create``, there or at servers that speak the same.

Needs no package: objects of the SDK are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..paging import ContextPaging
from ..replies import ContextReply
from .conversion import (
    InvalidHostMessage,
    OneMessageUnits,
    assistant_message,
    definition_parts,
    image_block,
    opaque_block,
    parsed_arguments,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    usage_counters,
    user_message,
)
from .message_list import MessageList, dictionary_of, field_of, instructions_text

ChatMessage = Mapping[str, Any]


class ChatConverter(OneMessageUnits[ChatMessage]):
    """Reads and writes messages of OpenAI's chat completions, as dictionaries or the SDK's objects."""

    def convert(self, unit: Sequence[ChatMessage], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The message that one message makes; none for instructions, which always go out."""
        message = unit[0]
        content = field_of(message, "content")
        match field_of(message, "role"):
            case "system" | "developer":
                return []
            case "user":
                return [user_message(content if isinstance(content, str) else _blocks(content))]
            case "assistant":
                return [assistant_message(_assistant_blocks(message))]
            case "tool":
                call_id = str(field_of(message, "tool_call_id"))
                return [tool_result(call_id, tool_names.get(call_id, ""), _blocks(content))]
            case "function":
                name = str(field_of(message, "name"))
                return [tool_result(name, name, _blocks(content))]
            case role:
                raise InvalidHostMessage(
                    f"a chat message is of system, developer, user, assistant or tool, not {role!r}"
                )

    def resident_text(self, unit: Sequence[ChatMessage]) -> str | None:
        """The text of instructions."""
        return instructions_text(unit[0], _blocks)

    def rebuild(
        self, unit: Sequence[ChatMessage], parts: Sequence[tuple[int, str | None]]
    ) -> Sequence[ChatMessage]:
        """The message, with a reference in place of a result."""
        return [
            unit[0] if replacement is None else {**dictionary_of(unit[0]), "content": replacement}
            for _, replacement in parts
        ]

    def notice(self, text: str) -> ChatMessage:
        """A message of the user."""
        return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What goes out in one call.

    Attributes:
        messages: for ``chat.completions.create``; the program's own objects where they go out as they are.
        tools: likewise, with the recovery tools.
        reply: the session's answer: outcome, notifications, numbers.
    """

    messages: list[ChatMessage]
    tools: list[Any]
    reply: ContextReply

    @property
    def arguments(self) -> dict[str, Any]:
        """The same, as arguments of ``chat.completions.create``."""
        given = {"messages": self.messages, "tools": self.tools}
        return {name: value for name, value in given.items() if value}


class OpenAIChat(MessageList[ChatMessage]):
    """A conversation kept as a list of chat messages. Prompts are cached by OpenAI without marks.

    Args:
        recovery_tools: offer the model the tools that read what left the window.
        session_options: see `ContextPaging.session`.
    """

    def __init__(
        self,
        paging: ContextPaging,
        session_id: str,
        *,
        recovery_tools: bool = True,
        **session_options: Any,
    ) -> None:
        options = {"host": "openai", **session_options}
        super().__init__(paging, session_id, ChatConverter(), recovery_tools, **options)
        self.tools = [{"type": "function", "function": tool} for tool in self.recovery_tools]

    def page(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Iterable[Any] = (),
        context_window: float | None = None,
        transient: Sequence[ChatMessage] = (),
    ) -> ChatRequest:
        """What goes out of the whole list of messages.

        Raises:
            ContextAbortedError: the model must not be called: why, and what to do.
            InvalidHostMessage: a message cannot be read.
        """
        offered = [*tools, *self.tools]
        paged = self.conversation.page(
            messages,
            tools=[_definition(tool) for tool in offered],
            context_window=context_window,
            transient=transient,
        )
        return ChatRequest(paged.messages, offered, paged.reply)

    def responded(self, response: Any) -> ChatMessage:
        """Take in the answer of ``chat.completions.create``; returns its message, to append to the list."""
        (choice, *_) = field_of(response, "choices")
        message = field_of(choice, "message")
        said = {name: value for name, value in dictionary_of(message).items() if value is not None}
        said.setdefault("content", None)
        self.conversation.responded([said], _usage(field_of(response, "usage")))
        return said

    def answers(self, tool_call: Any) -> dict[str, Any] | None:
        """The result of a recovery tool's call, as a message; ``None`` if the call is of another tool."""
        function = field_of(tool_call, "function")
        text = self.answer_text(field_of(function, "name"), field_of(function, "arguments"))
        if text is None:
            return None
        return {"role": "tool", "tool_call_id": field_of(tool_call, "id"), "content": text}


def _usage(usage: Any) -> dict[str, Any] | None:
    if usage is None:
        return None
    cached = field_of(field_of(usage, "prompt_tokens_details"), "cached_tokens") or 0
    return usage_counters(
        (field_of(usage, "prompt_tokens") or 0) - cached, field_of(usage, "completion_tokens"), cached, 0
    )


def _assistant_blocks(message: ChatMessage) -> list[dict[str, Any]]:
    blocks = [
        thinking_block(thought)
        for name in ("reasoning_content", "reasoning")
        if isinstance(thought := field_of(message, name), str) and thought
    ]
    blocks += _blocks(field_of(message, "content"))
    if refusal := field_of(message, "refusal"):
        blocks.append(text_block(str(refusal)))
    for call in field_of(message, "tool_calls") or ():
        # Tools without a schema take text.
        custom = field_of(call, "custom")
        function = field_of(call, "function") or custom
        given = field_of(function, "input") if custom else parsed_arguments(field_of(function, "arguments"))
        blocks.append(tool_call(str(field_of(call, "id")), str(field_of(function, "name")), given))
    if legacy := field_of(message, "function_call"):
        name = str(field_of(legacy, "name"))
        blocks.append(tool_call(name, name, parsed_arguments(field_of(legacy, "arguments"))))
    return blocks


def _blocks(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [text_block(content)]
    if not isinstance(content, Iterable):
        raise InvalidHostMessage("the content of a chat message is text or a list of parts")
    return [_block(dictionary_of(part)) for part in content]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "text" | "refusal":
            return text_block(str(part.get("text", part.get("refusal", ""))))
        case "image_url":
            return image_block(str(field_of(part.get("image_url"), "url")), "")
        case _:
            return opaque_block(part)


def _definition(tool: Any) -> dict[str, Any]:
    function = field_of(tool, "function") or field_of(tool, "custom") or tool
    return definition_parts(*(field_of(function, name) for name in ("name", "description", "parameters")))
