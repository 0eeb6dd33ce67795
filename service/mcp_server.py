"""The recovery tools as an MCP server on standard input and output, with the official SDK (extra ``mcp``)."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from context_paging.domain.errors import ContextPagingError
from context_paging.domain.recovery.errors import RecoveryRefused
from context_paging.domain.recovery.tools import tool_definitions

from .replies import ToolReply
from .telemetry import logger

_INSTRUCTIONS = (
    "Read the stored history of one agent session exactly: find items with search_history or browse_history, "
    "load them with load_history, and read long outputs in pages with read_context_output."
)
_log = logger(__name__)


class Recoverable(Protocol):
    """A session whose history can be read: `StoredFile`, `RemoteSession`."""

    def tool(self, name: str, parameters: Any) -> ToolReply:
        """Call a recovery tool."""
        ...


def serve(session: Recoverable) -> None:
    """Serve one session until standard input ends."""
    anyio.run(_serve, session)


def server(session: Recoverable) -> Server[Any]:
    """The server of one session. Calls wait for each other."""
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(definition) for definition in tool_definitions()])

    async def call_tool(_: Any, call: types.CallToolRequestParams) -> types.CallToolResult:
        answer = partial(_answer, session, call.name, call.arguments or {})
        return await anyio.to_thread.run_sync(answer, limiter=one_at_a_time)

    return Server(
        "context-paging", instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _serve(session: Recoverable) -> None:
    running = server(session)
    async with stdio_server() as (incoming, outgoing):
        await running.run(incoming, outgoing, running.create_initialization_options())


def _tool(definition: dict[str, Any]) -> types.Tool:
    return types.Tool(
        name=definition["name"],
        description=definition["description"],
        input_schema=definition["parameters"],
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def _answer(session: Recoverable, name: str, parameters: dict[str, Any]) -> types.CallToolResult:
    try:
        text, refused = session.tool(name, parameters).text, False
    except RecoveryRefused as refusal:
        text, refused = f"{refusal.reason}: {refusal}", True
    except ContextPagingError as error:
        _log.warning("the session cannot be read", code=error.code, error=str(error))
        text, refused = f"{error.code}: {error}", True
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=refused)
