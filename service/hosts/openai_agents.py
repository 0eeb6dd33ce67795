"""OpenAI Agents SDK: a session whose runs are paged (extra ``openai-agents``).

The session keeps all items, in the SDK's own store; what the model is sent is the window.
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from functools import partial
from typing import Any

from agents import Agent, FunctionTool, ModelResponse, RunConfig, RunContextWrapper, RunHooks, SQLiteSession
from agents.items import TResponseInputItem
from agents.memory import Session, SessionSettings
from agents.run import CallModelData, ModelInputData

from context_paging.domain.recovery.tools import tool_definitions

from ..paging import ContextPaging, PagingSettings
from .conversation import HostConversation
from .conversion import parsed_arguments
from .openai_responses import Item, ItemsConverter, definition_of, response_usage


class PagedSession:
    """A session of the SDK, paged: pass it to ``Runner.run`` with its `run_config` and `hooks`, and give
    the agents its `tools`.

    Handoffs go on in the same window. Calls that are aborted raise `ContextAbortedError`. History that the
    provider keeps (``conversation_id``, ``previous_response_id``) cannot be paged.

    Args:
        session: where the items are kept; in memory unless given.
        context_window: the model's window in tokens.
        settings: other settings than those of ``paging``.

    Attributes:
        tools: the tools that read what left the window.
        hooks: feed what the provider counted back. Call their ``on_llm_end`` from hooks of your own.
    """

    def __init__(
        self,
        paging: ContextPaging,
        session_id: str,
        *,
        session: Session | None = None,
        context_window: int | None = None,
        settings: PagingSettings | None = None,
        recovery_tools: bool = True,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = getattr(session, "session_settings", None)
        self._items: Session = session or SQLiteSession(session_id)
        start = partial(paging.session, session_id, settings=settings, host="openai-agents")
        self.conversation: HostConversation[Item] = HostConversation(start, ItemsConverter())
        self._context_window = context_window
        self.tools = [self._tool(tool) for tool in tool_definitions()] if recovery_tools else []
        self.hooks: RunHooks[Any] = _UsageHooks(self.conversation)

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """A configuration with which a run is paged, after its own filter of the model's input."""
        given = config or RunConfig()
        own = given.call_model_input_filter

        async def paged(data: CallModelData[Any]) -> ModelInputData:
            if own is not None:
                filtered = own(data)
                data = replace(data, model_data=await filtered if inspect.isawaitable(filtered) else filtered)
            return await self.page(data)

        return replace(given, call_model_input_filter=paged)

    async def page(self, data: CallModelData[Any]) -> ModelInputData:
        """The window of a model's input: a ``call_model_input_filter``.

        Raises:
            ContextAbortedError: the model must not be called.
        """
        items, instructions = data.model_data.input, data.model_data.instructions
        paged = await asyncio.to_thread(
            self.conversation.page,
            _read(items),
            system_prompt=instructions or "",
            tools=[_definition(tool) for tool in data.agent.tools],
            context_window=self._context_window,
        )
        return ModelInputData(input=_written(paged.messages), instructions=instructions)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """All items, or the newest ones."""
        return await self._items.get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Keep further items."""
        await self._items.add_items(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out."""
        return await self._items.pop_item()

    async def clear_session(self) -> None:
        """Forget all items. The log still tells what happened to them."""
        await self._items.clear_session()

    def close(self) -> None:
        """Shut the session down; its items stay where they are."""
        self.conversation.close()

    def _tool(self, definition: dict[str, Any]) -> FunctionTool:
        async def answer(_: Any, arguments: str) -> str:
            return await asyncio.to_thread(
                self.conversation.tool, definition["name"], parsed_arguments(arguments)
            )

        return FunctionTool(
            name=definition["name"],
            description=definition["description"],
            params_json_schema=definition["parameters"],
            on_invoke_tool=answer,
            strict_json_schema=False,
        )


class _UsageHooks(RunHooks[Any]):
    def __init__(self, conversation: HostConversation[Item]) -> None:
        self._conversation = conversation

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        items = _read(response.to_input_items())
        await asyncio.to_thread(self._conversation.responded, items, response_usage(response.usage))


def _definition(tool: Any) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        return {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
    return definition_of({"name": getattr(tool, "name", type(tool).__name__)})


def _read(items: list[TResponseInputItem]) -> list[Any]:
    return list(items)


def _written(items: list[Item]) -> list[Any]:
    return list(items)
