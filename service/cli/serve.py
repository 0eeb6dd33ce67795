"""`bridge`, `mcp`: what other programs talk to."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .options import LogOption, open_log
from .recover import FileArgument, RepairOption, stored_file


def mcp_command(
    file: FileArgument,
    expand: Annotated[
        bool, typer.Option("--expand", help="Search in parts of names and paths, too.")
    ] = False,
    repair: RepairOption = False,
) -> None:
    """Serve the four recovery tools over a session file to an MCP client, on standard input and output."""
    try:
        from ..mcp_server import serve
    except ImportError:
        raise typer.BadParameter(
            "the MCP server needs the extra mcp: pip install 'context-paging[mcp]'", param_hint="mcp"
        ) from None
    if file == "-":
        raise typer.BadParameter("standard input is the client's; give a file", param_hint="FILE")
    opened = stored_file(file, repair=repair, expand=expand)
    serve(opened)


def bridge_command(
    log: LogOption = None,
    no_log: Annotated[bool, typer.Option("--no-log", help="Log nothing: no audit, no postmortems.")] = False,
) -> None:
    """Serve a host in another language: JSON lines on standard input and output."""
    from contextlib import nullcontext

    from ..bridge import Bridge

    with nullcontext() if no_log else open_log(log) as event_log:
        Bridge(event_log).serve(sys.stdin.buffer, sys.stdout.buffer)
