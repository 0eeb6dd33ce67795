"""The command line: `context-paging`. One module a command group; commands import late, to start fast."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper

import typer

from . import inspect, integrity, maintain, pi, recover, replay, serve, tokens, transfer, what_if

app = typer.Typer(
    name="context-paging",
    help="Keep an agent's conversation under a token budget with a stable, exact context window.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(replay.demo_command)
app.command("replay")(replay.replay_command)
app.command("search")(recover.search_command)
app.command("browse")(recover.browse_command)
app.command("load")(recover.load_command)
app.command("read")(recover.read_command)
app.command("stats")(recover.stats_command)
app.command("bridge")(serve.bridge_command)
app.command("mcp")(serve.mcp_command)
app.command("serve")(serve.serve_command)
app.add_typer(tokens.tokens, name="token")
app.command("sessions")(inspect.sessions_command)
app.command("calls")(inspect.calls_command)
app.command("timeline")(inspect.timeline_command)
app.command("postmortem")(inspect.postmortem_command)
app.command("what-if")(what_if.what_if_command)
app.command("tail")(inspect.tail_command)
app.command("verify")(integrity.verify_command)
app.command("anchor")(integrity.anchor_command)
app.command("anchor-key")(integrity.anchor_key_command)
app.command("export")(transfer.export_command)
app.command("import")(transfer.import_command)
app.command("backup")(transfer.backup_command)
app.command("rebuild")(maintain.rebuild_command)
app.command("erase")(maintain.erase_command)
app.command("retire")(maintain.retire_command)
app.add_typer(maintain.db, name="db")
app.add_typer(pi.pi, name="pi")


def main() -> None:
    """Run the command line. Errors of this package become one line and exit status 1."""
    # A program that was started without them has nobody to print to.
    sys.stdout = sys.stdout or TextIOWrapper(BytesIO())
    sys.stderr = sys.stderr or TextIOWrapper(BytesIO())
    for stream in (sys.stdout, sys.stderr):
        # Half a character, or one that the terminal does not have, is shown as its escape.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from context_paging.domain.errors import ContextPagingError

    try:
        app()
    except ContextPagingError as error:
        print(f"context-paging: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"context-paging: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
