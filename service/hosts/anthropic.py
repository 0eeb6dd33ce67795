"""Anthropic message lists: what goes into ``messages.create``.

Needs no package: objects of the SDK are read as they are.

A user message may hold tool results and text; each result is a message of its own here, and text behind
results is a request of the user, unless it is marked up as a reminder of the program (``<tag>…</tag>``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..paging import ContextPaging
from ..replies import ContextReply
from .conversion import (
    InvalidHostMessage,
    add_said,
    assistant_message,
    definition_parts,
    image_block,
    opaque_block,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    usage_counters,
    user_message,
)
from .message_list import MessageList, dictionary_of, field_of

AnthropicMessage = Mapping[str, Any]
_REMINDER = re.compile(r"\s*<([a-zA-Z][\w-]*)[^>]*>.*</\1>\s*", re.DOTALL)
_MARK = {"type": "ephemeral"}
MOST_MARKS = 4
"""How many marks of the prompt cache the API takes in a request."""
_UNMARKED = frozenset({"thinking", "redacted_thinking"})
"""Blocks that cannot hold a mark of the prompt cache."""


class AnthropicConverter:
    """Reads and writes messages of Anthropic's Messages API, as dictionaries or the SDK's objects.

    A call of a tool of the provider's own that is answered in a later message, as in a paused turn, makes all
    messages up to there one unit: the API refuses one without the other.
    """

    look_back = 40

    def extent(self, messages: Sequence[AnthropicMessage], start: int) -> int:
        """Where the unit that starts at ``start`` ends."""
        waiting = _waiting_server_calls(messages[start], set())
        calls = _client_calls(messages[start])
        end = start + 1
        while waiting and end < len(messages) and not _is_request(messages[end]):
            waiting = _waiting_server_calls(messages[end], waiting)
            further = _client_calls(messages[end])
            if calls & further:
                break
            calls |= further
            end += 1
        # What nothing answers, so far, holds nothing together.
        return start + 1 if waiting else end

    def convert(
        self, unit: Sequence[AnthropicMessage], tool_names: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """The messages that a unit makes."""
        match field_of(unit[0], "role"):
            case "assistant":
                said = [message for message in unit if field_of(message, "role") == "assistant"]
                blocks = [_assistant_block(block) for message in said for block in _blocks(message)]
                names = {**tool_names, **{b["id"]: b["name"] for b in blocks if b["type"] == "toolCall"}}
                answers = [message for message in unit if field_of(message, "role") == "user"]
                results: list[dict[str, Any]] = []
                for made in (made for message in answers for made, _ in _user_parts(message, names)):
                    if made["role"] == "toolResult" or not results:
                        results.append(made)
                    else:
                        # What the user says in between cannot leave the unit.
                        results[-1]["content"] += _shown_blocks(made["content"])
                return [assistant_message(blocks), *results]
            case "user":
                return [made for made, _ in _user_parts(unit[0], tool_names)]
            case "system":
                return []
            case role:
                raise InvalidHostMessage(
                    f"an Anthropic message is of the user or the assistant, not {role!r}"
                )

    def resident_text(self, unit: Sequence[AnthropicMessage]) -> str | None:
        """The text of a system message."""
        instructs = field_of(unit[0], "role") == "system"
        return _text_of(field_of(unit[0], "content")) if instructs else None

    def residue(self, unit: Sequence[AnthropicMessage]) -> Sequence[AnthropicMessage]:
        """Instructions as they are."""
        return unit

    def rebuild(
        self, unit: Sequence[AnthropicMessage], parts: Sequence[tuple[int, str | None]]
    ) -> Sequence[AnthropicMessage]:
        """A user message with some of its blocks, or with references in place of results."""
        if field_of(unit[0], "role") == "assistant":
            return _with_references(unit, dict(parts))
        held = [blocks for _, blocks in _user_parts(unit[0], {})]
        content: list[Any] = []
        for part, replacement in parts:
            if replacement is None:
                content += held[part]
            else:
                content.append({**dictionary_of(held[part][0]), "content": replacement})
        return [_results_first(content)]

    def notice(self, text: str) -> AnthropicMessage:
        """A message of the user."""
        return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class AnthropicRequest:
    """What goes out in one call.

    Attributes:
        messages: for ``messages.create``; the program's own objects where they go out as they are.
        system: likewise, if there is a system prompt.
        tools: likewise, with the recovery tools.
        reply: the session's answer: outcome, notifications, numbers.
    """

    messages: list[AnthropicMessage]
    system: str | list[Any] | None
    tools: list[Any]
    reply: ContextReply

    @property
    def arguments(self) -> dict[str, Any]:
        """The same, as arguments of ``messages.create``."""
        given = {"messages": self.messages, "system": self.system, "tools": self.tools}
        return {name: value for name, value in given.items() if value}


class AnthropicMessages(MessageList[AnthropicMessage]):
    """A conversation with a model of Anthropic's, kept as a list of messages.

    Args:
        session_options: see `ContextPaging.session`.
        cache_marks: put ``cache_control`` marks where the stable prefix ends: on the system prompt, on the
            last message of the call before while it is part of the prefix, and on the last message. Messages
            that are marked already are left alone.
        recovery_tools: offer the model the tools that read what left the window.
    """

    def __init__(
        self,
        paging: ContextPaging,
        session_id: str,
        *,
        cache_marks: bool = True,
        recovery_tools: bool = True,
        **session_options: Any,
    ) -> None:
        options = {"host": "anthropic", **session_options}
        super().__init__(paging, session_id, AnthropicConverter(), recovery_tools, **options)
        self._cache_marks = cache_marks
        self._own_marks = False
        self.tools = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in self.recovery_tools
        ]

    def page(
        self,
        messages: Sequence[AnthropicMessage],
        *,
        system: str | Sequence[Any] | None = None,
        tools: Iterable[Any] = (),
        context_window: float | None = None,
        transient: Sequence[AnthropicMessage] = (),
    ) -> AnthropicRequest:
        """What goes out of the whole list of messages.

        Raises:
            ContextAbortedError: the model must not be called: why, and what to do.
            InvalidHostMessage: a message cannot be read.
        """
        offered = [*tools, *self.tools]
        paged = self.conversation.page(
            messages,
            system_prompt=_text_of(system),
            tools=[_definition(tool) for tool in offered],
            context_window=context_window,
            transient=transient,
        )
        sent = list(paged.messages)
        prompt: Any = system if system is None or isinstance(system, str) else list(system)
        # What is as it was in the call before was looked at then.
        own_marks = any(map(_marked, sent[paged.stable :])) or (self._own_marks and paged.stable > 0)
        self._own_marks = own_marks
        if self._cache_marks and not own_marks:
            prompt = _marked_system(prompt)
            left = MOST_MARKS - _marks(prompt) - _marks(offered)
            places = dict.fromkeys((len(sent) - len(transient) - 1, paged.stable - 1))
            for position in [place for place in places if place >= 0][: max(0, left)]:
                sent[position] = _with_mark(sent[position])
        return AnthropicRequest(sent, prompt, offered, paged.reply)

    def responded(self, response: Any) -> AnthropicMessage:
        """Take in the answer of ``messages.create``, and return it as the message to append to the list."""
        usage = field_of(response, "usage")
        message = {"role": "assistant", "content": [dictionary_of(b) for b in field_of(response, "content")]}
        counters = None
        if usage is not None:
            counters = usage_counters(
                field_of(usage, "input_tokens"),
                field_of(usage, "output_tokens"),
                field_of(usage, "cache_read_input_tokens"),
                field_of(usage, "cache_creation_input_tokens"),
            )
        self.conversation.responded([message], counters)
        return message

    def answers(self, tool_use: Any) -> dict[str, Any] | None:
        """The result of a recovery tool's call, as a block; ``None`` if the call is of another tool."""
        text = self.answer_text(field_of(tool_use, "name"), field_of(tool_use, "input"))
        if text is None:
            return None
        return {"type": "tool_result", "tool_use_id": field_of(tool_use, "id"), "content": text}


def _blocks(message: AnthropicMessage) -> list[dict[str, Any]]:
    content = field_of(message, "content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, Iterable):
        raise InvalidHostMessage("the content of an Anthropic message is text or a list of blocks")
    return [dictionary_of(block) for block in content]


def _listed(content: Any) -> Iterable[Any]:
    """The blocks of a content as they are; text has none."""
    return () if content is None or isinstance(content, str) else content


def _is_request(message: AnthropicMessage) -> bool:
    """Whether the user says something that is no tool result."""
    content = field_of(message, "content")
    if field_of(message, "role") != "user":
        return False
    return isinstance(content, str) or not any(
        block.get("type") == "tool_result" for block in _blocks(message)
    )


def _waiting_server_calls(message: AnthropicMessage, waiting: set[str]) -> set[str]:
    """Ids of calls of the provider's own tools that are not answered after a message."""
    waiting = set(waiting)
    if field_of(message, "role") != "assistant":
        return waiting
    for block in _listed(field_of(message, "content")):
        kind = str(field_of(block, "type"))
        if kind in ("server_tool_use", "mcp_tool_use"):
            waiting.add(str(field_of(block, "id")))
        elif kind.endswith("_tool_result"):
            waiting.discard(str(field_of(block, "tool_use_id")))
    return waiting


def _client_calls(message: AnthropicMessage) -> set[str]:
    if field_of(message, "role") != "assistant":
        return set()
    blocks = _listed(field_of(message, "content"))
    return {str(field_of(block, "id")) for block in blocks if field_of(block, "type") == "tool_use"}


def _with_references(
    unit: Sequence[AnthropicMessage], parts: Mapping[int, str | None]
) -> Sequence[AnthropicMessage]:
    """All messages of a unit that cannot be taken apart, with references in place of results."""
    rebuilt: list[AnthropicMessage] = []
    position = 0
    for message in unit:
        if field_of(message, "role") == "assistant":
            rebuilt.append(message)
            continue
        content: list[Any] = []
        for made, blocks in _user_parts(message, {}):
            position += made["role"] == "toolResult"
            if position not in parts:
                continue
            replacement = parts[position] if made["role"] == "toolResult" else None
            first = blocks[0] if replacement is None else {**dictionary_of(blocks[0]), "content": replacement}
            content += [first, *blocks[1:]]
        if content:
            rebuilt.append(_results_first(content))
    return rebuilt


def _results_first(content: list[Any]) -> AnthropicMessage:
    # The API wants results first, whatever order repair brings.
    return {"role": "user", "content": sorted(content, key=lambda b: field_of(b, "type") != "tool_result")}


def _marks(blocks: Any) -> int:
    return sum(bool(field_of(block, "cache_control")) for block in _listed(blocks))


def _assistant_block(block: dict[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return text_block(str(block.get("text", "")))
        case "thinking":
            return thinking_block(str(block.get("thinking", "")))
        case "redacted_thinking":
            return thinking_block(str(block.get("data", "")))
        case "tool_use":
            return tool_call(str(block.get("id")), str(block.get("name")), block.get("input"))
        case _:
            # Calls of the provider's own tools come with their results, in the same message.
            return opaque_block(block)


def _user_parts(
    message: AnthropicMessage, tool_names: Mapping[str, str]
) -> list[tuple[dict[str, Any], list[Any]]]:
    """The messages a user message makes, and the blocks of each."""
    parts: list[tuple[dict[str, Any], list[Any]]] = []
    content = field_of(message, "content")
    if isinstance(content, str):
        return [(user_message(content), [{"type": "text", "text": content}])]
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            call_id = str(block.get("tool_use_id"))
            shown = _shown_blocks(block.get("content"))
            result = tool_result(
                call_id, tool_names.get(call_id, ""), shown, failed=bool(block.get("is_error"))
            )
            parts.append((result, [block]))
        elif parts and _is_reminder(block):
            parts[-1][0]["content"].append(_shown_block(block))
            parts[-1][1].append(block)
        else:
            add_said(parts, _shown_block(block), block)
    return parts or [(user_message([]), [])]


def _is_reminder(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and _REMINDER.fullmatch(str(block.get("text"))) is not None


def _shown_blocks(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [text_block(content)]
    return [_shown_block(dictionary_of(block)) for block in content]


def _shown_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") == "text":
        return text_block(str(block.get("text", "")))
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, Mapping):
        return image_block(str(source.get("data") or source.get("url")), str(source.get("media_type", "")))
    return opaque_block(block)


def _text_of(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(field_of(block, "text") or "") for block in content)


def _definition(tool: Any) -> dict[str, Any]:
    return definition_parts(*(field_of(tool, name) for name in ("name", "description", "input_schema")))


def _marked(message: AnthropicMessage) -> bool:
    blocks = _listed(field_of(message, "content"))
    return any(field_of(block, "cache_control") or _has_marks(block) for block in blocks)


def _has_marks(block: Any) -> bool:
    inside = field_of(block, "content") if field_of(block, "type") == "tool_result" else None
    return isinstance(inside, list) and any(field_of(part, "cache_control") for part in inside)


def _with_mark(message: AnthropicMessage) -> AnthropicMessage:
    content = _blocks(message)
    markable = [
        n for n, block in enumerate(content) if block.get("type") not in _UNMARKED and block.get("text") != ""
    ]
    if not markable:
        return message
    content[markable[-1]]["cache_control"] = _MARK
    return {"role": field_of(message, "role"), "content": content}


def _marked_system(system: Any) -> Any:
    if not system:
        return system
    if isinstance(system, str):
        return [{"type": "text", "text": system, "cache_control": _MARK}]
    if any(field_of(block, "cache_control") for block in system):
        return system
    return [*system[:-1], {**dictionary_of(system[-1]), "cache_control": _MARK}]
