"""Google ADK: a plugin that pages each model request (extra ``google-adk``).

The runner's session keeps all events; what the model is sent is the window. ADK takes its own ids out of
calls and responses before the model sees them, so that they are paired by their names, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from ..paging import ContextPaging, PagingSettings
from ..replies import ContextAbortedError
from .conversation import HostConversation
from .conversations import Conversations
from .conversion import (
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

_Place = tuple[int, int]


class AdkConverter:
    """Reads and writes contents of Gemini. Calls of functions and their responses are one unit."""

    look_back = 1

    def extent(self, messages: Sequence[types.Content], start: int) -> int:
        """Where the unit that starts at ``start`` ends: responses go with the calls before them."""
        end = start + 1
        if messages[start].role == "model":
            while end < len(messages) and _has_responses(messages[end]):
                end += 1
        return end

    def convert(self, unit: Sequence[types.Content], tool_names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The messages that a unit makes."""
        return [message for message, _ in _parts(unit)]

    def resident_text(self, unit: Sequence[types.Content]) -> str | None:
        """Nothing: instructions are no contents."""
        return None

    def residue(self, unit: Sequence[types.Content]) -> Sequence[types.Content]:
        """Nothing."""
        return ()

    def rebuild(
        self, unit: Sequence[types.Content], parts: Sequence[tuple[int, str | None]]
    ) -> Sequence[types.Content]:
        """Contents with some of their parts, or with references in place of responses."""
        held = [places for _, places in _parts(unit)]
        rebuilt: list[tuple[int, list[types.Part]]] = []
        for position, replacement in parts:
            for content, part in held[position]:
                given = (unit[content].parts or [])[part]
                chosen = given if replacement is None else _with_response(given, replacement)
                if not rebuilt or rebuilt[-1][0] != content:
                    rebuilt.append((content, []))
                rebuilt[-1][1].append(chosen)
        return [types.Content(role=unit[content].role, parts=chosen) for content, chosen in rebuilt]

    def notice(self, text: str) -> types.Content:
        """A content of the user."""
        return types.Content(role="user", parts=[types.Part(text=text)])


class ContextPagingPlugin(BasePlugin):
    """Pages each model request of a runner's agents, and offers their models the recovery tools.

    An agent of a session has a window of its own. A request that is aborted is answered with an error
    response, whose code and message say why and what to do.

    Args:
        context_window: the models' window in tokens.
        settings: other settings than those of ``paging``.
    """

    def __init__(
        self,
        paging: ContextPaging,
        *,
        context_window: int | None = None,
        settings: PagingSettings | None = None,
        recovery_tools: bool = True,
    ) -> None:
        super().__init__("context_paging")
        self._conversations: Conversations[types.Content] = Conversations(
            paging, AdkConverter(), host="google-adk", settings=settings, recovery_tools=recovery_tools
        )
        self._context_window = context_window
        self._tools: list[BaseTool] = [
            _RecoveryTool(self._conversations, definition)
            for definition in self._conversations.recovery_tools
        ]

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Send the window, or answer with the reason why nothing can be sent."""
        if self._tools:
            llm_request.append_tools(self._tools)
        config = llm_request.config
        conversation = await asyncio.to_thread(self._conversations.of, _session_id(callback_context))
        try:
            paged = await asyncio.to_thread(
                conversation.page,
                llm_request.contents,
                system_prompt=_instruction(config.system_instruction),
                tools=_definitions(config.tools),
                context_window=self._context_window,
            )
        except ContextAbortedError as error:
            return LlmResponse(error_code=error.aborted.code.value, error_message=error.aborted.message)
        llm_request.contents = paged.messages
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Learn what the provider counted."""
        if llm_response.partial or llm_response.content is None or llm_response.error_code:
            return None
        content = types.Content(role="model", parts=llm_response.content.parts)
        conversation = await asyncio.to_thread(self._conversations.of, _session_id(callback_context))
        usage = _usage(llm_response.usage_metadata)
        await asyncio.to_thread(conversation.responded, [content], usage)
        return None

    async def close(self) -> None:
        """Shut all sessions down."""
        await asyncio.to_thread(self._conversations.close)


class _RecoveryTool(BaseTool):
    def __init__(self, conversations: Conversations[types.Content], definition: dict[str, Any]) -> None:
        super().__init__(name=definition["name"], description=definition["description"])
        self._conversations = conversations
        self._definition = definition

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._definition["parameters"],
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """What the tool answers."""

        def answer() -> str:
            conversation: HostConversation[types.Content] = self._conversations.of(_session_id(tool_context))
            return conversation.tool(self.name, args)

        return {"result": await asyncio.to_thread(answer)}


def _session_id(context: CallbackContext) -> str:
    return f"{context.session.id}:{context.agent_name}"


def _instruction(instruction: Any) -> str:
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    parts = instruction if isinstance(instruction, list) else getattr(instruction, "parts", None) or []
    return "\n".join(part if isinstance(part, str) else getattr(part, "text", None) or "" for part in parts)


def _definitions(tools: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for tool in tools or ():
        for declared in getattr(tool, "function_declarations", None) or ():
            schema = declared.parameters_json_schema
            if schema is None and declared.parameters is not None:
                schema = declared.parameters.model_dump(mode="json", exclude_none=True)
            found.append(definition_parts(declared.name, declared.description, schema))
    return found


def _usage(usage: types.GenerateContentResponseUsageMetadata | None) -> dict[str, Any] | None:
    if usage is None or not usage.prompt_token_count:
        return None
    read = usage.cached_content_token_count or 0
    made = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return usage_counters(usage.prompt_token_count - read, made, read, 0)


def _has_responses(content: types.Content) -> bool:
    return any(part.function_response is not None for part in content.parts or ())


def _parts(unit: Sequence[types.Content]) -> list[tuple[dict[str, Any], list[_Place]]]:
    """The messages that a unit makes, and the places of the parts of each."""
    made: list[tuple[dict[str, Any], list[_Place]]] = []
    waiting: list[tuple[str, str]] = []
    for number, content in enumerate(unit):
        if content.role == "model":
            blocks = []
            for part in content.parts or ():
                blocks.append(_model_block(part, len(waiting)))
                if blocks[-1]["type"] == "toolCall":
                    waiting.append((blocks[-1]["id"], blocks[-1]["name"]))
            made.append((assistant_message(blocks), [(number, n) for n in range(len(blocks))]))
            continue
        for place, part in enumerate(content.parts or ()):
            if part.function_response is not None:
                made.append((_result(part.function_response, waiting), [(number, place)]))
            else:
                add_said(made, _user_block(part), (number, place))
    return made or [(user_message([]), [])]


def _result(response: types.FunctionResponse, waiting: list[tuple[str, str]]) -> dict[str, Any]:
    """A response, paired with the first call still waiting that has its id, or its name."""
    name = response.name or ""
    named = (call for call in waiting if response.id in (None, call[0]) and call[1] == name)
    call = next(named, (response.id or f"unasked {name}", name))
    if call in waiting:
        waiting.remove(call)
    given = response.response or {}
    alone = given.get("result") if len(given) == 1 else None
    content = [text_block(alone) if isinstance(alone, str) else opaque_block(given)]
    return tool_result(call[0], name, content, failed="error" in given)


def _with_response(part: types.Part, text: str) -> types.Part:
    response = part.function_response
    assert response is not None
    return types.Part(
        function_response=types.FunctionResponse(
            id=response.id, name=response.name, response={"result": text}
        )
    )


def _model_block(part: types.Part, calls: int) -> dict[str, Any]:
    if part.function_call is not None:
        call = part.function_call
        name = call.name or ""
        return tool_call(call.id or f"{name} {calls + 1}", name, call.args or {})
    if part.text is not None:
        return thinking_block(part.text) if part.thought else text_block(part.text)
    return opaque_block(part.model_dump(mode="json", exclude_none=True))


def _user_block(part: types.Part) -> dict[str, Any]:
    if part.text is not None:
        return text_block(part.text)
    blob, file = part.inline_data, part.file_data
    if blob is not None and (blob.mime_type or "").startswith("image/"):
        data = part.model_dump(mode="json")["inline_data"]["data"]
        return image_block(str(data), blob.mime_type or "")
    if file is not None and (file.mime_type or "").startswith("image/"):
        return image_block(file.file_uri or "", file.mime_type or "")
    return opaque_block(part.model_dump(mode="json", exclude_none=True))
