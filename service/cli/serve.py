"""`bridge`, `mcp`, `serve`: what other programs talk to."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from .options import LogOption, open_log
from .recover import RepairOption, stored_file


def mcp_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="A Pi session file, also .gz; or http://HOST:PORT/v1/sessions/ID of a live session.",
        ),
    ],
    expand: Annotated[
        bool, typer.Option("--expand", help="Search in parts of names and paths, too.")
    ] = False,
    repair: RepairOption = False,
) -> None:
    """Serve the four recovery tools over a session to an MCP client, on standard input and output.

    The token of a service comes from CONTEXT_PAGING_TOKEN.
    """
    try:
        from ..mcp_server import serve
    except ImportError:
        raise typer.BadParameter(
            "the MCP server needs the extra mcp: pip install 'context-paging[mcp]'", param_hint="mcp"
        ) from None
    if file == "-":
        raise typer.BadParameter("standard input is the client's; give a file", param_hint="FILE")
    if file.startswith(("http://", "https://")):
        from ..config import service_token
        from ..remote_session import RemoteSession

        if expand or repair:
            raise typer.BadParameter(
                "these are the host's to choose for a live session", param_hint="--expand"
            )
        with closing(RemoteSession(file, service_token())) as remote:
            serve(remote)
    else:
        serve(stored_file(file, repair=repair, expand=expand))


def bridge_command(
    log: LogOption = None,
    no_log: Annotated[bool, typer.Option("--no-log", help="Log nothing: no audit, no postmortems.")] = False,
) -> None:
    """Serve a host in another language: JSON lines on standard input and output."""
    from contextlib import nullcontext

    from ..bridge import Bridge
    from ..config import token_estimator

    estimator = token_estimator()
    with nullcontext() if no_log else open_log(log) as event_log:
        Bridge(event_log, estimator=estimator).serve(sys.stdin.buffer, sys.stdout.buffer)


TokensOption = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="The file of bearer tokens. [env: CONTEXT_PAGING_TOKENS]"),
]


def serve_command(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 8_642,
    tokens: TokensOption = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Ask for no tokens; on the loopback interface only.")
    ] = False,
    body_limit: Annotated[int, typer.Option("--body-limit", min=1, help="MiB of a request's body.")] = 32,
    body_seconds: Annotated[
        float, typer.Option("--body-seconds", min=0.1, help="How long a client may take to send it.")
    ] = 30.0,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Requests a second of one token.")] = 500.0,
    burst: Annotated[float, typer.Option("--burst", min=1, help="Requests of one token at once.")] = 2_000.0,
    sessions: Annotated[int, typer.Option("--sessions", min=1, help="Live sessions in memory.")] = 10_000,
    idle: Annotated[
        float, typer.Option("--idle", min=1, help="Seconds until an unused one is let go.")
    ] = 14_400.0,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy", metavar="ADDRESS", help="A proxy whose X-Forwarded headers hold. Repeatable."
        ),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", metavar="debug|info|warning|error")] = "info",
    log: LogOption = None,
) -> None:
    """Serve hosts over HTTP, and pages for people to look at what happened."""
    try:
        from ..http.app import ServerOptions, create_app
        from ..http.live import LiveLimits
        from ..http.serving import listen, log_to_stderr, run
        from ..http.tokens import TokenFile
    except ImportError as error:
        raise typer.BadParameter(
            f"{error.name} is missing; the service needs the extra: pip install 'context-paging[server]'",
            param_hint="serve",
        ) from None
    from ..config import log_location, log_options, token_estimator, tokens_file
    from ..log import Durability, EventLog

    if log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter("must be debug, info, warning or error", param_hint="--log-level")
    path = tokens_file(tokens)
    if no_token and host not in ("127.0.0.1", "::1", "localhost"):
        raise typer.BadParameter(
            f"{host} is not the loopback interface of this machine", param_hint="--no-token"
        )
    if not no_token and not TokenFile(path).tokens():
        raise typer.BadParameter(
            f"there are no tokens in {path}: make one with `context-paging token add NAME`, or give "
            "--no-token for this machine alone",
            param_hint="--tokens",
        )
    options = ServerOptions(
        None if no_token else TokenFile(path),
        body_limit * 2**20,
        body_seconds,
        rate,
        burst,
        LiveLimits(sessions, idle),
        token_estimator(),
    )
    log_to_stderr(log_level)
    # What was answered must be there when another worker goes on with the session.
    with EventLog.open(log_location(log), log_options(Durability.SYNC, sigterm=False)) as event_log:
        listener = listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"context-paging: serving on http://{shown}:{listener.getsockname()[1]}/", err=True)
        run(create_app(event_log, options), listener, proxy or ())
