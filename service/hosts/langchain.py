"""LangChain and LangGraph: a middleware for ``create_agent`` (extra ``langchain``).

The agent's state keeps all messages; what the model is sent is the window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import is_not
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from ..paging import ContextPaging, PagingSettings
from .conversation import HostConversation, Paged
from .conversations import Conversations
from .conversion import (
    InvalidHostMessage,
    OneMessageUnits,
    assistant_message,
    image_block,
    opaque_block,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    usage_counters,
    user_message,
)

_CALLS = frozenset({"tool_use", "function_call", "tool_call"})
"""Blocks of content that repeat a message's tool calls."""


class LangChainConverter(OneMessageUnits[BaseMessage]):
    """Reads and writes messages of LangChain."""

    def convert(self, unit: Sequence[BaseMessage], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The message that one message makes; none for instructions, which always go out."""
        message = unit[0]
        match message:
            case SystemMessage():
                return []
            case HumanMessage():
                content = message.content
                return [user_message(content if isinstance(content, str) else _blocks(content))]
            case AIMessage():
                return [assistant_message(_assistant_blocks(message), _usage(message))]
            case ToolMessage():
                name = message.name or tool_names.get(message.tool_call_id, "")
                failed = message.status == "error"
                return [tool_result(message.tool_call_id, name, _blocks(message.content), failed=failed)]
            case FunctionMessage():
                return [tool_result(message.name, message.name, _blocks(message.content))]
            case _:
                raise InvalidHostMessage(f"there is no way to page a message of type {message.type!r}")

    def resident_text(self, unit: Sequence[BaseMessage]) -> str | None:
        """The text of instructions."""
        return str(unit[0].text) if isinstance(unit[0], SystemMessage) else None

    def rebuild(
        self, unit: Sequence[BaseMessage], parts: Sequence[tuple[int, str | None]]
    ) -> Sequence[BaseMessage]:
        """The message, with a reference in place of a result."""
        (_, replacement), *_ = parts
        return unit if replacement is None else [unit[0].model_copy(update={"content": replacement})]

    def notice(self, text: str) -> BaseMessage:
        """A message of the user."""
        return HumanMessage(text)


class ContextPagingMiddleware(AgentMiddleware[Any, Any, Any]):
    """Pages each model call of an agent, and offers its model the recovery tools.

    Put it last, so that it sees what goes out; messages that other middleware adds behind those of the state
    are taken as belonging to that call alone. A call that is aborted raises `ContextAbortedError`.

    Args:
        session_id: names the session in the log, or makes its name of the runtime (of its ``context``, say);
            unless given, the thread of the checkpointer does, or else the id of the first message.
        context_window: the model's window in tokens; unless given, what the model's profile says.
        settings: other settings than those of ``paging``.
    """

    def __init__(
        self,
        paging: ContextPaging,
        *,
        session_id: str | Callable[[Any], str] | None = None,
        context_window: int | None = None,
        settings: PagingSettings | None = None,
        recovery_tools: bool = True,
    ) -> None:
        super().__init__()
        self._conversations: Conversations[BaseMessage] = Conversations(
            paging, LangChainConverter(), host="langchain", settings=settings, recovery_tools=recovery_tools
        )
        self._session_id = session_id
        self._context_window = context_window
        self.tools: Sequence[BaseTool] = [
            StructuredTool.from_function(
                _unreachable,
                name=tool["name"],
                description=tool["description"],
                args_schema=tool["parameters"],
                infer_schema=False,
            )
            for tool in self._conversations.recovery_tools
        ]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the window, and learn what the provider counted."""
        conversation = self._conversation(request.runtime, request.state)
        paged = self._page(conversation, request)
        response = handler(request.override(messages=_any(paged.messages)))
        conversation.responded(response.result)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same on an event loop."""
        conversation = await asyncio.to_thread(self._conversation, request.runtime, request.state)
        paged = await asyncio.to_thread(self._page, conversation, request)
        response = await handler(request.override(messages=_any(paged.messages)))
        await asyncio.to_thread(conversation.responded, response.result)
        return response

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Answer calls of recovery tools."""
        if not self._conversations.answers(request.tool_call["name"]):
            return handler(request)
        return self._answer(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The same on an event loop."""
        if not self._conversations.answers(request.tool_call["name"]):
            return await handler(request)
        return await asyncio.to_thread(self._answer, request)

    def close(self) -> None:
        """Shut all sessions down."""
        self._conversations.close()

    def _conversation(self, runtime: Any, state: Any) -> HostConversation[BaseMessage]:
        if self._session_id is None:
            return self._conversations.of(_session_id(runtime, state))
        chosen = self._session_id
        return self._conversations.of(chosen(runtime) if callable(chosen) else chosen)

    def _page(
        self, conversation: HostConversation[BaseMessage], request: ModelRequest[Any]
    ) -> Paged[BaseMessage]:
        outgoing = request.messages
        stored: Sequence[AnyMessage] = request.state.get("messages", [])
        count = len(stored)
        if count > len(outgoing) or any(map(is_not, stored, outgoing)):
            count = len(outgoing)
        return conversation.page(
            outgoing[:count],
            system_prompt=request.system_prompt or "",
            tools=[_definition(tool) for tool in request.tools],
            context_window=self._context_window or _profile_window(request.model),
            transient=outgoing[count:],
        )

    def _answer(self, request: ToolCallRequest) -> ToolMessage:
        call = request.tool_call
        conversation = self._conversation(request.runtime, request.state)
        text = conversation.tool(call["name"], call["args"])
        return ToolMessage(text, tool_call_id=str(call["id"]), name=call["name"])


def _session_id(runtime: Any, state: Any) -> str:
    execution = getattr(runtime, "execution_info", None)
    thread = getattr(execution, "thread_id", None)
    if thread:
        # An agent that is a part of another one's graph shares its thread, but not its messages.
        places = str(getattr(execution, "checkpoint_ns", "")).split("|")[:-1]
        return "/".join([str(thread), *(place.partition(":")[0] for place in places)])
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
    if messages and messages[0].id:
        return str(messages[0].id)
    raise InvalidHostMessage(
        "a conversation without a thread and without message ids has no name; "
        "give ContextPagingMiddleware a session_id, or the agent a checkpointer"
    )


def _profile_window(model: Any) -> int | None:
    profile = getattr(model, "profile", None)
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) and window > 0 else None


def _definition(tool: BaseTool | dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool, dict) and "name" not in tool and "function" not in tool:
        return {"name": str(tool.get("type", ""))}
    definition: dict[str, Any] = convert_to_openai_tool(tool)["function"]
    return definition


def _unreachable(**_: Any) -> str:
    raise NotImplementedError("the middleware answers this tool")


def _usage(message: AIMessage) -> dict[str, Any] | None:
    usage = message.usage_metadata
    if usage is None:
        return None
    details = usage.get("input_token_details") or {}
    read, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
    own = max(0, usage["input_tokens"] - read - written)
    return usage_counters(own, usage["output_tokens"], read, written)


def _assistant_blocks(message: AIMessage) -> list[dict[str, Any]]:
    blocks = _blocks(message.content)
    for call in message.tool_calls:
        blocks.append(tool_call(str(call["id"]), call["name"], call["args"]))
    for broken in message.invalid_tool_calls:
        # It goes over the wire like the others, and needs its result like them.
        blocks.append(tool_call(str(broken["id"]), str(broken["name"]), broken["args"]))
    return blocks


def _blocks(content: str | Sequence[str | dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [text_block(content)] if content else []
    return [made for block in content if (made := _block(block)) is not None]


def _block(block: str | Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(block, str):
        return text_block(block)
    match block.get("type"):
        case "text":
            return text_block(str(block.get("text", "")))
        case "thinking" | "reasoning" | "redacted_thinking":
            return thinking_block(_thought(block))
        case "image_url":
            address = block.get("image_url")
            return image_block(str(address.get("url") if isinstance(address, Mapping) else address), "")
        case "image":
            source = block.get("source")
            held = source if isinstance(source, Mapping) else block
            data = held.get("base64") or held.get("data") or held.get("url") or held.get("file_id")
            return image_block(str(data), str(held.get("mime_type") or held.get("media_type") or ""))
        case "reasoning_content":
            thought = block.get("reasoning_content")
            return thinking_block(str(thought.get("text", "")) if isinstance(thought, Mapping) else "")
        case "non_standard" if isinstance(block.get("value"), Mapping):
            return _block(block["value"])
        case kind if kind in _CALLS:
            return None
        case _:
            return opaque_block(block)


def _thought(block: Mapping[str, Any]) -> str:
    for name in ("thinking", "reasoning", "data"):
        if isinstance(block.get(name), str):
            return str(block[name])
    summary = block.get("summary")
    parts = summary if isinstance(summary, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _any(messages: list[BaseMessage]) -> list[Any]:
    return messages
