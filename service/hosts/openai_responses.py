"""OpenAI input items: what goes into ``responses.create``, and what the OpenAI Agents SDK keeps.

One response comes in several items (reasoning, messages, calls), which belong together: the API refuses a
reasoning item without what follows it. They are one unit here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..paging import ContextPaging
from ..replies import ContextReply
from .conversion import (
    InvalidHostMessage,
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

Item = Mapping[str, Any]
_APPROVAL = ("mcp_approval_request", "mcp_approval_response")


class ItemsConverter:
    """Reads and writes items of OpenAI's Responses API, as dictionaries or the SDK's objects."""

    look_back = 1

    def extent(self, messages: Sequence[Item], start: int) -> int:
        """Where the unit that starts at ``start`` ends: items of the model go together."""
        end = start + 1
        if _is_of_model(messages[start]):
            while end < len(messages) and _is_of_model(messages[end]):
                end += 1
        return end

    def convert(self, unit: Sequence[Item], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The message that a unit makes; none for instructions, which always go out."""
        item = unit[0]
        if _is_of_model(item):
            return [assistant_message([block for part in unit for block in _model_blocks(part)])]
        call_id = _answered_call(item)
        if call_id is not None:
            return [tool_result(call_id, tool_names.get(call_id, ""), _output(item))]
        match field_of(item, "role"):
            case "user":
                content = field_of(item, "content")
                return [user_message(content if isinstance(content, str) else _blocks(content))]
            case "system" | "developer":
                return []
            case role:
                raise InvalidHostMessage(
                    f"there is no way to read an item of type {field_of(item, 'type')!r} and role {role!r}"
                )

    def resident_text(self, unit: Sequence[Item]) -> str | None:
        """The text of instructions."""
        return instructions_text(unit[0], _blocks)

    def residue(self, unit: Sequence[Item]) -> Sequence[Item]:
        """Instructions as they are."""
        return unit

    def rebuild(self, unit: Sequence[Item], parts: Sequence[tuple[int, str | None]]) -> Sequence[Item]:
        """The unit, with a reference in place of a result."""
        (_, replacement), *_ = parts
        return unit if replacement is None else [{**dictionary_of(unit[0]), "output": replacement}]

    def notice(self, text: str) -> Item:
        """A message of the user."""
        return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """What goes out in one call.

    Attributes:
        input: for ``responses.create``; the program's own objects where they go out as they are.
        instructions: likewise.
        tools: likewise, with the recovery tools.
        reply: the session's answer: outcome, notifications, numbers.
    """

    input: list[Item]
    instructions: str | None
    tools: list[Any]
    reply: ContextReply

    @property
    def arguments(self) -> dict[str, Any]:
        """The same, as arguments of ``responses.create``."""
        given = {"input": self.input, "instructions": self.instructions, "tools": self.tools}
        return {name: value for name, value in given.items() if value}


class OpenAIResponses(MessageList[Item]):
    """A conversation kept as a list of input items, with nothing stored at the provider (``store=False``).

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
        super().__init__(paging, session_id, ItemsConverter(), recovery_tools, **options)
        self.tools = [{"type": "function", "strict": False, **tool} for tool in self.recovery_tools]

    def page(
        self,
        items: Sequence[Item],
        *,
        instructions: str | None = None,
        tools: Iterable[Any] = (),
        context_window: float | None = None,
        transient: Sequence[Item] = (),
    ) -> ResponsesRequest:
        """What goes out of the whole list of items.

        Raises:
            ContextAbortedError: the model must not be called: why, and what to do.
            InvalidHostMessage: an item cannot be read.
        """
        offered = [*tools, *self.tools]
        paged = self.conversation.page(
            items,
            system_prompt=instructions or "",
            tools=[definition_of(tool) for tool in offered],
            context_window=context_window,
            transient=transient,
        )
        return ResponsesRequest(paged.messages, instructions, offered, paged.reply)

    def responded(self, response: Any) -> list[Item]:
        """Take in the answer of ``responses.create``, and return its items, to append to the list."""
        items: list[Item] = [dictionary_of(item) for item in field_of(response, "output")]
        self.conversation.responded(items, response_usage(field_of(response, "usage")))
        return items

    def answers(self, call: Any) -> dict[str, Any] | None:
        """The result of a recovery tool's call, as an item; ``None`` if the call is of another tool."""
        text = self.answer_text(field_of(call, "name"), field_of(call, "arguments"))
        if text is None:
            return None
        return {"type": "function_call_output", "call_id": field_of(call, "call_id"), "output": text}


def response_usage(usage: Any) -> dict[str, Any] | None:
    """What a response reported, for `HostConversation.responded`."""
    if usage is None:
        return None
    cached = field_of(field_of(usage, "input_tokens_details"), "cached_tokens") or 0
    return usage_counters(
        (field_of(usage, "input_tokens") or 0) - cached, field_of(usage, "output_tokens"), cached, 0
    )


def definition_of(tool: Any) -> dict[str, Any]:
    """What is counted of a tool; of the provider's own ones, their type."""
    if field_of(tool, "name") is None:
        return {"name": str(field_of(tool, "type"))}
    return definition_parts(*(field_of(tool, name) for name in ("name", "description", "parameters")))


def _is_of_model(item: Item) -> bool:
    if _answered_call(item) is not None:
        return False
    return field_of(item, "role") in (None, "assistant")


def _answered_call(item: Item) -> str | None:
    """The call that an item answers; ``None`` if it answers none, or one of the provider's own."""
    kind = field_of(item, "type")
    if kind == _APPROVAL[1]:
        return str(field_of(item, "approval_request_id"))
    if not isinstance(kind, str) or not kind.endswith("_output"):
        return None
    # The output of a local shell names its call as its own id.
    call_id = field_of(item, "call_id") or field_of(item, "id")
    return str(call_id) if call_id else None


def _model_blocks(item: Item) -> list[dict[str, Any]]:
    kind = field_of(item, "type")
    if field_of(item, "role") == "assistant":
        content = field_of(item, "content")
        return [text_block(content)] if isinstance(content, str) else _blocks(content)
    if kind == "reasoning":
        texts = [*(field_of(item, "summary") or ()), *(field_of(item, "content") or ())]
        thoughts = [thinking_block(str(field_of(text, "text") or "")) for text in texts]
        encrypted = field_of(item, "encrypted_content")
        return [*thoughts, thinking_block(encrypted)] if isinstance(encrypted, str) else thoughts
    call_id = field_of(item, "id") if kind == _APPROVAL[0] else field_of(item, "call_id")
    if call_id and isinstance(kind, str) and (kind.endswith("_call") or kind == _APPROVAL[0]):
        name = str(field_of(item, "name") or kind)
        given = field_of(item, "arguments")
        given = field_of(item, "input") if given is None else parsed_arguments(given)
        if given is None:
            given = field_of(item, "action") or field_of(item, "operation") or {}
        return [tool_call(str(call_id), name, given)]
    return [opaque_block(dictionary_of(item))]


def _output(item: Item) -> list[dict[str, Any]]:
    output = field_of(item, "output")
    if isinstance(output, str):
        return [text_block(output)]
    if isinstance(output, list | tuple):
        return _blocks(output)
    return [opaque_block(dictionary_of(item))]


def _blocks(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, Iterable) or isinstance(content, str | Mapping):
        raise InvalidHostMessage("the content of an item is text or a list of parts")
    return [_block(dictionary_of(part)) for part in content]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return text_block(str(part.get("text", "")))
        case "refusal":
            return text_block(str(part.get("refusal", "")))
        case "input_image" if part.get("image_url"):
            return image_block(str(part["image_url"]), "")
        case _:
            return opaque_block(part)
