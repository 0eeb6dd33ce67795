"""Microsoft Agent Framework: a context provider whose agents are paged (extra ``agent-framework``).

It brings a chat middleware, so that the window is taken anew before each model call of a run, and the
recovery tools. Sessions and history providers keep all messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    ContextProvider,
    FunctionTool,
    Message,
    SessionContext,
)

from ..paging import ContextPaging, PagingSettings
from .conversation import HostConversation
from .conversations import Conversations
from .conversion import (
    InvalidHostMessage,
    OneMessageUnits,
    add_said,
    assistant_message,
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


class AgentFrameworkConverter(OneMessageUnits[Message]):
    """Reads and writes messages of the Agent Framework. A tool message may hold several results."""

    def convert(self, unit: Sequence[Message], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The messages that one message makes; none for instructions, which always go out."""
        message = unit[0]
        match str(message.role):
            case "system" | "developer":
                return []
            case "assistant":
                # Tools of the provider's own come with their results.
                own = {c.call_id for c in message.contents if c.type == "function_result"}
                blocks = (_assistant_block(content, own) for content in message.contents)
                return [assistant_message([block for block in blocks if block is not None])]
            case "user" | "tool":
                return [made for made, _ in _parts(message, tool_names)]
            case role:
                raise InvalidHostMessage(f"there is no way to page a message of role {role!r}")

    def resident_text(self, unit: Sequence[Message]) -> str | None:
        """The text of instructions."""
        return unit[0].text if str(unit[0].role) in ("system", "developer") else None

    def rebuild(self, unit: Sequence[Message], parts: Sequence[tuple[int, str | None]]) -> Sequence[Message]:
        """The message with some of its contents, or with references in place of results."""
        message = unit[0]
        held = [contents for _, contents in _parts(message, {})]
        contents: list[Content] = []
        for part, replacement in parts:
            if replacement is None:
                contents += held[part]
            else:
                call_id = held[part][0].call_id or ""
                contents.append(Content.from_function_result(call_id, result=replacement))
        return [
            Message(
                message.role,
                contents,
                author_name=message.author_name,
                message_id=message.message_id,
                additional_properties=dict(message.additional_properties),
            )
        ]

    def notice(self, text: str) -> Message:
        """A message of the user."""
        return Message("user", [text])


class ContextPagingProvider(ContextProvider):
    """Pages each model call of an agent, and offers its model the recovery tools.

    A call that is aborted raises `ContextAbortedError`.

    Args:
        session_id: names the session in the log; unless given, the agent's session does.
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
        super().__init__("context-paging")
        self._conversations: Conversations[Message] = Conversations(
            paging,
            AgentFrameworkConverter(),
            host="agent-framework",
            settings=settings,
            recovery_tools=recovery_tools,
        )
        self._session_id = session_id
        self._context_window = context_window

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Bring the middleware and the tools."""
        session_id = self._session_id or session.session_id
        conversation = await asyncio.to_thread(self._conversations.of, session_id)
        context.extend_middleware(self.source_id, [_PagingMiddleware(conversation, self._context_window)])
        tools = [_tool(conversation, definition) for definition in self._conversations.recovery_tools]
        context.extend_tools(self.source_id, tools)

    def close(self) -> None:
        """Shut all sessions down."""
        self._conversations.close()


class _PagingMiddleware(ChatMiddleware):
    def __init__(self, conversation: HostConversation[Message], context_window: int | None) -> None:
        self._conversation = conversation
        self._context_window = context_window

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Send the window, and learn what the provider counted."""
        options = context.options or {}
        paged = await asyncio.to_thread(
            self._conversation.page,
            context.messages,
            system_prompt=str(options.get("instructions") or ""),
            tools=[_definition(tool) for tool in options.get("tools") or ()],
            context_window=self._context_window,
        )
        context.messages = paged.messages
        if context.stream:
            context.stream_result_hooks.append(self._responded)
        await call_next()
        if isinstance(context.result, ChatResponse):
            await self._responded(context.result)

    async def _responded(self, response: ChatResponse[Any]) -> None:
        usage = _usage(response.usage_details)
        await asyncio.to_thread(self._conversation.responded, response.messages, usage)


def _tool(conversation: HostConversation[Message], definition: dict[str, Any]) -> FunctionTool:
    name: str = definition["name"]

    async def answer(**arguments: Any) -> str:
        return await asyncio.to_thread(conversation.tool, name, arguments)

    return FunctionTool(
        name=name,
        description=definition["description"],
        func=answer,
        input_model=definition["parameters"],
        approval_mode="never_require",
    )


def _definition(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, FunctionTool):
        return {"name": str(getattr(tool, "name", type(tool).__name__))}
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters()}


def _usage(usage: Any) -> dict[str, Any] | None:
    if not usage:
        return None
    if any(str(name).startswith("anthropic.") for name in usage):
        # That client reports input as the API does: without what went to the cache or came from it.
        read = usage.get("anthropic.cache_read_input_tokens") or 0
        written = usage.get("cache_creation_input_token_count") or 0
        return usage_counters(usage.get("input_token_count"), usage.get("output_token_count"), read, written)
    read = usage.get("cache_read_input_token_count") or 0
    written = usage.get("cache_creation_input_token_count") or 0
    given = usage.get("input_token_count") or 0
    return usage_counters(max(0, given - read - written), usage.get("output_token_count"), read, written)


def _assistant_block(content: Content, own: set[str | None]) -> dict[str, Any] | None:
    match content.type:
        case "text":
            return text_block(content.text or "")
        case "text_reasoning":
            return thinking_block(content.text or content.protected_data or "")
        case "function_call" if not content.informational_only and content.call_id not in own:
            arguments = parsed_arguments(content.arguments) if content.arguments is not None else {}
            return tool_call(content.call_id or "", content.name or "", arguments)
        case "usage":
            return None
        case _:
            return opaque_block(content.to_dict())


def _parts(message: Message, tool_names: Mapping[str, str]) -> list[tuple[dict[str, Any], list[Content]]]:
    """The messages that a message makes, and the contents of each."""
    parts: list[tuple[dict[str, Any], list[Content]]] = []
    for content in message.contents:
        if content.type == "function_result":
            call_id = content.call_id or ""
            shown = _result_blocks(content)
            failed = content.exception is not None
            made = tool_result(call_id, tool_names.get(call_id, ""), shown, failed=failed)
            parts.append((made, [content]))
        else:
            add_said(parts, _shown_block(content), content)
    return parts or [(user_message([]), [])]


def _result_blocks(content: Content) -> list[dict[str, Any]]:
    items = content.items
    if items:
        return [_shown_block(item) for item in items]
    result = content.result if content.exception is None else content.exception
    return [text_block(result)] if isinstance(result, str) else [opaque_block(result)]


def _shown_block(content: Content) -> dict[str, Any]:
    if content.type == "text":
        return text_block(content.text or "")
    if content.type in ("data", "uri") and (content.media_type or "").startswith("image/"):
        return image_block(content.uri or "", content.media_type or "")
    return opaque_block(content.to_dict())
