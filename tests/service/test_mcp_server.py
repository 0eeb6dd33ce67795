"""The MCP server, asked by the official client over a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from context_paging.domain.recovery.tools import tool_definitions
from context_paging.service.example import example_path
from context_paging.service.http.app import ServerOptions, create_app
from context_paging.service.http.tokens import Scope, TokenFile
from context_paging.service.log import EventLog
from context_paging.service.stored_file import StoredFile

from .conftest import Shell
from .http.serving import serving


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A session file that grows."""
    path = tmp_path / "session.jsonl"
    append(path, "e0", None, "user", "where is the tide table?")
    return path


def append(path: Path, entry_id: str, parent: str | None, role: str, text: str) -> None:
    """Store a message at the end of a file."""
    message = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1}
    with path.open("a") as lines:
        entry = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "", "message": message}
        lines.write(json.dumps(entry) + "\n")


def asked(
    path: Path | str, ask: Callable[[Client], Awaitable[Any]], *options: str, **environment: str
) -> Any:
    """What a client gets from the server of a file, or of a live session."""
    command = ["-c", "from context_paging.service.cli import main; main()", "mcp", str(path), *options]
    parameters = StdioServerParameters(
        command=sys.executable, args=command, env={**os.environ, **environment}
    )

    async def run() -> Any:
        with anyio.fail_after(60):
            async with Client(parameters) as client:
                return await ask(client)

    return anyio.run(run)


def test_a_client_sees_the_four_tools_with_their_schemas(file: Path) -> None:
    listed = asked(file, lambda client: client.list_tools())

    shown = [
        {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        for tool in listed.tools
    ]
    assert shown == tool_definitions()
    assert all(tool.annotations.read_only_hint for tool in listed.tools)


def test_a_client_reads_what_is_stored_while_the_file_grows(file: Path) -> None:
    async def ask(client: Client) -> list[Any]:
        replies = [await client.call_tool("search_history", {"query": "tide"})]
        append(file, "e1", "e0", "assistant", "the tide table is in docs")
        replies.append(await client.call_tool("search_history", {"query": "docs"}))
        replies.append(await client.call_tool("load_history", {"historyIds": ["e1"]}))
        replies.append(await client.call_tool("load_history", {"historyIds": ["nope"]}))
        return replies

    first, second, loaded, refused = asked(file, ask)

    assert [r["historyId"] for r in json.loads(first.content[0].text)["references"]] == ["e0"]
    assert [r["historyId"] for r in json.loads(second.content[0].text)["references"]] == ["e1"]
    assert json.loads(loaded.content[0].text)["items"][0]["id"] == "e1"
    assert refused.is_error
    assert refused.content[0].text.startswith("UNKNOWN_HISTORY_ID: ")


def test_a_file_that_vanishes_or_is_begun_anew_is_told_and_read(file: Path) -> None:
    stored = StoredFile(file)
    assert stored.tool("search_history", {"query": "tide"}).result["references"]
    file.unlink()
    append(file, "e0", None, "user", "another question")

    assert not stored.tool("search_history", {"query": "tide"}).result["references"]
    assert stored.tool("search_history", {"query": "another"}).result["references"]

    async def ask(client: Client) -> Any:
        file.unlink()
        return await client.call_tool("browse_history", {"direction": "forward"})

    gone = asked(file, ask)
    assert gone.is_error
    assert gone.content[0].text.startswith("SESSION_FILE: ")


def test_the_server_ends_with_its_client_and_survives_garbage(file: Path) -> None:
    command = [sys.executable, "-c", "from context_paging.service.cli import main; main()", "mcp", str(file)]
    done = subprocess.run(command, input=b"garbage\n{}\n\x00\n", capture_output=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        json.loads(line)


def test_a_file_that_cannot_be_read_is_one_line(shell: Shell) -> None:
    assert "cannot be read" in shell("mcp", "nope.jsonl", code=1).stderr
    assert "give a file" in shell("mcp", "-", code=2).stderr


def test_long_outputs_of_the_example_come_in_pages() -> None:
    with example_path() as path:
        stored = StoredFile(path)
        found = stored.tool("search_history", {"query": "test", "limit": 10, "load": True})
    assert len(found.text) <= 8_000


def test_a_client_reads_a_live_session_of_a_service(tmp_path: Path, shell: Shell) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, reader = tokens.add("w", (Scope.WRITE,)), tokens.add("r", (Scope.READ,))

    async def ask(client: Client) -> list[Any]:
        return [
            await client.call_tool("search_history", {"query": "tide"}),
            await client.call_tool("load_history", {"historyIds": ["nope"]}),
        ]

    with EventLog.open() as log, serving(create_app(log, ServerOptions(tokens))) as running:
        message = {"role": "user", "content": "where is the tide table?", "timestamp": 1}
        entry = {"type": "message", "id": "e0", "parentId": None, "message": message}
        events = [{"type": "session_start"}, {"type": "append", "entries": [entry]}]
        request = urllib.request.Request(
            f"{running.url}/v1/sessions/team%2F1/events",
            json.dumps(events).encode(),
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        url = f"{running.url}/v1/sessions/team%2F1"
        found, refused = asked(url, ask, CONTEXT_PAGING_TOKEN=secret)
        other, _ = asked(f"{running.url}/sessions/none", ask, CONTEXT_PAGING_TOKEN=secret)
        forbidden, _ = asked(url, ask, CONTEXT_PAGING_TOKEN=reader)
    away, _ = asked(url, ask)

    assert [r["historyId"] for r in json.loads(found.content[0].text)["references"]] == ["e0"]
    assert refused.content[0].text.startswith("UNKNOWN_HISTORY_ID: ")
    for answer, told in ((other, "SESSION_NOT_LIVE"), (forbidden, "FORBIDDEN"), (away, "does not answer")):
        assert answer.is_error
        assert told in answer.content[0].text
    for wrong in (
        "http://",
        "https://host/x",
        "http://u:p@host/v1/sessions/1",
        "http://host/v1/sessions/1?a=b",
    ):
        assert "context-paging: " in shell("mcp", wrong, code=1).stderr
