"""Strands Agents: a conversation manager that takes nothing out of an agent's messages (extra ``strands``).

It pages each model call by a middleware; the agent's messages stay whole.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AgentInitializedEvent, HookRegistry
from strands.middleware.stages import InvokeModelContext, InvokeModelStage
from strands.tools.tools import PythonAgentTool
from strands.types.content import Message

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
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    usage_counters,
    user_message,
)

_UNNAMED = "default"


class StrandsConverter(OneMessageUnits[Message]):
    """Reads and writes messages of Strands, which has Bedrock's form of them."""

    def convert(self, unit: Sequence[Message], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The messages that one message makes."""
        message = unit[0]
        match message["role"]:
            case "assistant":
                return [assistant_message(_assistant_blocks(message), _usage(message))]
            case "user":
                return [made for made, _ in _user_parts(message, tool_names)]
            case role:
                raise InvalidHostMessage(
                    f"a message of Strands is of the user or the assistant, not {role!r}"
                )

    def resident_text(self, unit: Sequence[Message]) -> str | None:
        """Nothing: the system prompt is no message."""
        return None

    def rebuild(self, unit: Sequence[Message], parts: Sequence[tuple[int, str | None]]) -> Sequence[Message]:
        """A user message with some of its blocks, or with references in place of results."""
        held = [blocks for _, blocks in _user_parts(unit[0], {})]
        content: list[Any] = []
        for part, replacement in parts:
            if replacement is None:
                content += held[part]
            else:
                result = {**held[part][0]["toolResult"], "content": [{"text": replacement}]}
                content.append({"toolResult": result})
        return [{**unit[0], "content": content}]

    def notice(self, text: str) -> Message:
        """A message of the user."""
        return {"role": "user", "content": [{"text": text}]}


class ContextPagingConversationManager(ConversationManager):
    """Pages the model calls of an agent, and gives it the recovery tools.

    A call that is aborted raises `ContextAbortedError`. Should a provider refuse what fits by all estimates,
    its error is raised: set the token budget lower.

    Args:
        session_id: names the session in the log; unless given, the agent's id does, if it has one.
        context_window: the model's window in tokens; unless given, what the model says.
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
        super().__init__()
        self._conversations: Conversations[Message] = Conversations(
            paging, StrandsConverter(), host="strands", settings=settings, recovery_tools=recovery_tools
        )
        self._session_id = session_id
        self._unnamed: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._context_window = context_window

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Wait for the agent to be there."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._attach)

    def apply_management(self, agent: Any, **kwargs: Any) -> None:
        """Nothing: an agent's messages stay."""

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:
        """Nothing can be taken out: the provider's error is raised again."""
        if e is not None:
            raise e

    def close(self) -> None:
        """Shut all sessions down."""
        self._conversations.close()

    def _attach(self, event: AgentInitializedEvent) -> None:
        agent: Any = event.agent
        agent.add_middleware(InvokeModelStage.Input, self._page)
        for definition in self._conversations.recovery_tools:
            agent.tool_registry.register_tool(self._tool(agent, definition))

    def _conversation(self, agent: Any) -> HostConversation[Message]:
        return self._conversations.of(self._session_id or self._named(agent))

    def _named(self, agent: Any) -> str:
        # Agents without a name all have the same id, and must not read each other's history.
        if agent.agent_id != _UNNAMED:
            return str(agent.agent_id)
        return self._unnamed.setdefault(agent, f"strands-{uuid4().hex[:12]}")

    async def _page(self, context: InvokeModelContext) -> InvokeModelContext:
        conversation = await asyncio.to_thread(self._conversation, context.agent)
        window = self._context_window or getattr(context.model, "context_window_limit", None)
        paged = await asyncio.to_thread(
            conversation.page,
            context.messages,
            system_prompt=_text_of(context.system_prompt),
            tools=[_definition(spec) for spec in context.tool_specs],
            context_window=window if isinstance(window, int) else None,
        )
        return context.replace(messages=paged.messages)

    def _tool(self, agent: Any, definition: dict[str, Any]) -> PythonAgentTool:
        name: str = definition["name"]

        def answer(tool: Any, **_: Any) -> Any:
            text = self._conversation(agent).tool(name, tool["input"])
            return {"toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": text}]}

        spec: Any = {
            "name": name,
            "description": definition["description"],
            "inputSchema": {"json": definition["parameters"]},
        }
        return PythonAgentTool(name, spec, answer)


def _text_of(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(block.get("text", "") for block in prompt or ())


def _definition(spec: Any) -> dict[str, Any]:
    schema = spec["inputSchema"]
    return {
        "name": spec["name"],
        "description": spec["description"],
        "parameters": schema.get("json", schema),
    }


def _usage(message: Any) -> dict[str, Any] | None:
    usage = (message.get("metadata") or {}).get("usage")
    if usage is None:
        return None
    given, made, total = (usage.get(name) or 0 for name in ("inputTokens", "outputTokens", "totalTokens"))
    read, written = usage.get("cacheReadInputTokens") or 0, usage.get("cacheWriteInputTokens") or 0
    # Some providers count what came from a cache as input, too; the total tells.
    own = given - read - written if total == given + made and given >= read + written else given
    return usage_counters(own, made, read, written)


def _assistant_blocks(message: Message) -> list[dict[str, Any]]:
    blocks = []
    for given in message["content"]:
        block: Any = given
        if "text" in block:
            blocks.append(text_block(block["text"]))
        elif "reasoningContent" in block:
            thought = block["reasoningContent"].get("reasoningText") or {}
            blocks.append(thinking_block(str(thought.get("text", ""))))
        elif "toolUse" in block:
            use = block["toolUse"]
            blocks.append(tool_call(use["toolUseId"], use["name"], use["input"]))
        elif "cachePoint" not in block:
            blocks.append(opaque_block(block))
    return blocks


def _user_parts(message: Message, tool_names: Mapping[str, str]) -> list[tuple[dict[str, Any], list[Any]]]:
    """The messages that a user message makes, and the blocks of each."""
    parts: list[tuple[dict[str, Any], list[Any]]] = []
    for given in message["content"]:
        block: Any = given
        if "toolResult" in block:
            answer = block["toolResult"]
            call_id = answer["toolUseId"]
            content = [_shown_block(shown) for shown in answer["content"]]
            failed = answer.get("status") == "error"
            made = tool_result(call_id, tool_names.get(call_id, ""), content, failed=failed)
            parts.append((made, [block]))
        elif "cachePoint" in block and parts:
            parts[-1][1].append(block)
        else:
            add_said(parts, _shown_block(block), block)
    return parts or [(user_message([]), [])]


def _shown_block(block: Any) -> dict[str, Any]:
    if "text" in block:
        return text_block(block["text"])
    if "image" in block:
        image = block["image"]
        source = image.get("source") or {}
        data = source.get("bytes")
        shown = b64encode(data).decode() if isinstance(data, bytes) else str(data or source)
        return image_block(shown, str(image.get("format", "")))
    return opaque_block(block.get("json", block))
