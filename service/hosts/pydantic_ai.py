"""Pydantic AI: a capability that pages each model request (extra ``pydantic-ai``).

The run's messages are all kept; what the model is sent is the window. (A ``ProcessHistory`` capability would
change the kept messages, too.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CompactionPart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryFeedbackPart,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from ..paging import ContextPaging, PagingSettings
from .conversation import HostConversation
from .conversations import Conversations
from .conversion import (
    OneMessageUnits,
    assistant_message,
    image_block,
    opaque_block,
    parsed_arguments,
    program_message,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    usage_counters,
    user_message,
)


class PydanticAIConverter(OneMessageUnits[ModelMessage]):
    """Reads and writes messages of Pydantic AI. One request may hold instructions, results and prompts."""

    def convert(self, unit: Sequence[ModelMessage], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The messages that one message makes."""
        message = unit[0]
        if isinstance(message, ModelResponse):
            return [assistant_message([_response_block(part) for part in message.parts], _usage(message))]
        return [made for made, _ in _request_parts(message)]

    def resident_text(self, unit: Sequence[ModelMessage]) -> str | None:
        """The text of system prompts, and of what else tells the model of its instructions and tools."""
        message = unit[0]
        if isinstance(message, ModelResponse):
            return None
        parts = _resident(message)
        texts = [part.content if isinstance(part, SystemPromptPart) else str(part) for part in parts]
        return "\n".join(texts) if parts else None

    def residue(self, unit: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        """A request with the instructions alone."""
        message = unit[0]
        return unit if isinstance(message, ModelResponse) else [replace(message, parts=_resident(message))]

    def rebuild(
        self, unit: Sequence[ModelMessage], parts: Sequence[tuple[int, str | None]]
    ) -> Sequence[ModelMessage]:
        """A request with the instructions and some of its parts, or with references in place of results."""
        message = unit[0]
        if isinstance(message, ModelResponse):
            return unit
        held = [given for _, given in _request_parts(message)]
        chosen = _resident(message)
        for position, replacement in parts:
            if replacement is None:
                chosen += held[position]
            else:
                chosen += [
                    ToolReturnPart(part.tool_name, replacement, part.tool_call_id, timestamp=part.timestamp)
                    for part in held[position]
                    if isinstance(part, ToolReturnPart)
                ]
        return [replace(message, parts=chosen)]

    def notice(self, text: str) -> ModelMessage:
        """A prompt of the user."""
        return ModelRequest(parts=[UserPromptPart(text)])


class ContextPagingCapability(AbstractCapability[Any]):
    """Pages each model request of an agent, and offers its model the recovery tools.

    A request that is aborted raises `ContextAbortedError`.

    Args:
        session_id: names the session in the log; unless given, the run's conversation does.
        context_window: the model's window in tokens.
        settings: other settings than those of ``paging``.
    """

    def __init__(
        self,
        paging: ContextPaging,
        *,
        session_id: str | None = None,
        context_window: int | None = None,
        settings: PagingSettings | None = None,
        recovery_tools: bool = True,
    ) -> None:
        self._conversations: Conversations[ModelMessage] = Conversations(
            paging,
            PydanticAIConverter(),
            host="pydantic-ai",
            settings=settings,
            recovery_tools=recovery_tools,
        )
        self._session_id = session_id
        self._context_window = context_window

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """The recovery tools."""
        tools = [self._tool(tool) for tool in self._conversations.recovery_tools]
        return FunctionToolset(tools) if tools else None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the window."""
        messages = request_context.messages
        parameters = request_context.model_request_parameters
        conversation = await asyncio.to_thread(self._conversation, ctx)
        paged = await asyncio.to_thread(
            conversation.page,
            messages,
            system_prompt=_instructions(messages),
            tools=[_definition(t) for t in (*parameters.function_tools, *parameters.output_tools)],
            context_window=self._context_window,
        )
        return replace(request_context, messages=paged.messages)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Learn what the provider counted."""
        conversation = await asyncio.to_thread(self._conversation, ctx)
        await asyncio.to_thread(conversation.responded, [response])
        return response

    def close(self) -> None:
        """Shut all sessions down."""
        self._conversations.close()

    def _conversation(self, ctx: RunContext[Any]) -> HostConversation[ModelMessage]:
        return self._conversations.of(self._session_id or str(ctx.conversation_id))

    def _tool(self, definition: dict[str, Any]) -> Tool[Any]:
        name: str = definition["name"]

        async def answer(ctx: RunContext[Any], **arguments: Any) -> str:
            conversation = await asyncio.to_thread(self._conversation, ctx)
            return await asyncio.to_thread(conversation.tool, name, arguments)

        return Tool.from_schema(
            answer, name, definition["description"], definition["parameters"], takes_ctx=True
        )


def _instructions(messages: Sequence[ModelMessage]) -> str:
    requests = (message for message in reversed(messages) if isinstance(message, ModelRequest))
    newest = next(requests, None)
    return "" if newest is None else newest.instructions or ""


def _definition(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.parameters_json_schema,
    }


def _usage(response: ModelResponse) -> dict[str, Any] | None:
    usage = response.usage
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return usage_counters(usage.input_tokens - read - written, usage.output_tokens, read, written)


def _resident(message: ModelRequest) -> list[ModelRequestPart]:
    """The parts that always go out: whatever is not said by the user, a tool, or about an answer."""
    said = (UserPromptPart, SpeechPart, ToolReturnPart, RetryFeedbackPart)
    return [part for part in message.parts if not isinstance(part, said) and not _is_retry(part)]


def _is_retry(part: object) -> bool:
    # Older messages have prompts to try again that are tool results, or are not.
    return getattr(part, "part_kind", None) == "retry-prompt"


def _request_parts(message: ModelRequest) -> list[tuple[dict[str, Any], list[ModelRequestPart]]]:
    """The messages that a request makes, and its parts that each of them is made of."""
    made: list[tuple[dict[str, Any], list[ModelRequestPart]]] = []
    for part in message.parts:
        match part:
            case UserPromptPart():
                blocks = _user_blocks(part.content)
                if made and made[-1][0]["role"] == "user":
                    made[-1][0]["content"].extend(blocks)
                    made[-1][1].append(part)
                else:
                    made.append((user_message(blocks), [part]))
            case ToolReturnPart():
                failed = part.outcome != "success"
                content = [text_block(part.model_response_str()), *map(_user_block, part.files)]
                result = tool_result(part.tool_call_id, part.tool_name, content, failed=failed)
                made.append((result, [part]))
            case SpeechPart():
                made.append((user_message([text_block(part.transcript or "")]), [part]))
            case RetryFeedbackPart():
                made.append((program_message(part.model_response()), [part]))
            case _ if _is_retry(part):
                made.append((_retried(part), [part]))
    return made


def _retried(part: Any) -> dict[str, Any]:
    text = part.model_response()
    if part.tool_name is None:
        return program_message(text)
    return tool_result(part.tool_call_id, part.tool_name, text, failed=True)


def _user_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [text_block(content)]
    return [_user_block(item) for item in content if not isinstance(item, CachePoint)]


def _user_block(item: Any) -> dict[str, Any]:
    match item:
        case str():
            return text_block(item)
        case TextContent():
            return text_block(item.content)
        case ImageUrl():
            return image_block(item.url, "")
        case BinaryContent() if item.is_image:
            return image_block(item.base64, item.media_type)
        case BinaryContent():
            return opaque_block({"media_type": item.media_type, "data": item.base64})
        case _:
            return opaque_block(str(item))


def _response_block(part: Any) -> dict[str, Any]:
    match part:
        case TextPart():
            return text_block(part.content)
        case ThinkingPart():
            return thinking_block(part.content)
        case ToolCallPart():
            return tool_call(part.tool_call_id, part.tool_name, parsed_arguments(part.args or {}))
        case CompactionPart():
            return thinking_block(part.content or "")
        case SpeechPart():
            return text_block(part.transcript or "")
        case _:
            # Calls of the provider's own tools, and files, without what is the provider's alone.
            shown = {
                name: getattr(part, name, None) for name in ("part_kind", "tool_name", "args", "content")
            }
            if isinstance(shown["content"], BinaryContent):
                shown["content"] = _user_block(shown["content"])
            return opaque_block({name: value for name, value in shown.items() if value is not None})
