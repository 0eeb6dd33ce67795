"""`rebuild`, `erase`, `retire`, `db`: looking after the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import LogOption, moment_of, open_log

db = typer.Typer(no_args_is_help=True, help="The schema of the log's database.")

RevisionArgument = Annotated[str, typer.Argument(help="A revision.")]
SqlOption = Annotated[
    str | None,
    typer.Option(
        "--sql", metavar="DIALECT", help="Print the SQL for sqlite or postgresql, and touch no database."
    ),
]


def rebuild_command(log: LogOption = None) -> None:
    """Make sessions and calls again from the events."""
    from .console import progress

    with open_log(log) as event_log, progress("rebuilding") as told:
        sessions = event_log.rebuild(told)
    print(f"{sessions:,} sessions made again from their events")


def erase_command(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session id.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log: LogOption = None,
) -> None:
    """Destroy the keys of a session's stored messages. Its events stay, and its chain stays valid."""
    with open_log(log) as event_log:
        event_log.session(session)
        if not yes:
            typer.confirm(f"Make the stored messages of session {session} unreadable for ever?", abort=True)
        erased = event_log.erase(session)
    print(f"{erased:,} stored contents of session {session} are gone")


def retire_command(
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="A session id.")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="All sessions without an event since: 90d, 2026-01-01."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log: LogOption = None,
) -> None:
    """Take sessions out of the log: one, or all that are old enough."""
    if (session is None) == (older_than is None):
        raise typer.BadParameter("give a session or --older-than")
    from .console import counter

    with open_log(log) as event_log:
        if session is not None:
            event_log.session(session)
            if not yes:
                typer.confirm(f"Delete session {session} from the log?", abort=True)
            event_log.retire(session)
            print(f"session {session} is gone")
            return
        before = moment_of(older_than, "--older-than")
        assert before is not None
        if not yes:
            typer.confirm(
                f"Delete all sessions without an event since {before:%Y-%m-%d %H:%M} UTC?", abort=True
            )
        with counter("retiring") as told:
            retired = event_log.retire_before(before, told)
    print(f"{retired:,} sessions are gone")


@db.command("current")
def current_command(log: LogOption = None) -> None:
    """Print the schema revision of the database, and the one this installation works with."""
    from context_paging.migrations import HEAD

    from ..config import log_location
    from ..log.schema import current

    print(f"database: {current(log_location(log)) or 'none'}\ninstallation: {HEAD}")


@db.command("check")
def check_command(log: LogOption = None) -> None:
    """See that the database has the schema this installation works with."""
    from ..config import log_location
    from ..log.schema import check

    check(log_location(log))
    print("the schema is the one this installation works with")


@db.command("key")
def key_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where the key is to be; CONTEXT_PAGING_KEY_FILE.")
    ],
) -> None:
    """Make a log's key in a file, for machines that share a log; one that is there stays."""
    from ..log import LogKey

    typer.echo(f"{file}: key {LogKey.load_or_make(file).id}")


@db.command("upgrade")
def upgrade_command(
    revision: RevisionArgument = "head", sql: SqlOption = None, log: LogOption = None
) -> None:
    """Bring the database to a newer schema. Opening a log does that too."""
    if sql is not None:
        _print_sql(sql, "base:head" if revision == "head" else revision, down=False)
        return
    from ..config import log_location
    from ..log.schema import move

    print(f"database: {move(log_location(log), revision) or 'none'}")


@db.command("downgrade")
def downgrade_command(
    revision: RevisionArgument,
    sql: SqlOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log: LogOption = None,
) -> None:
    """Take the database back to an older schema. What the older one has no place for is lost."""
    if sql is not None:
        _print_sql(sql, revision, down=True)
        return
    from ..config import log_location
    from ..log.schema import move

    if not yes:
        typer.confirm(f"Go back to schema {revision}, and lose what it has no place for?", abort=True)
    print(f"database: {move(log_location(log), revision, down=True) or 'none'}")


def _print_sql(dialect: str, span: str, *, down: bool) -> None:
    if dialect not in ("sqlite", "postgresql"):
        raise typer.BadParameter("must be sqlite or postgresql", param_hint="--sql")
    if ":" not in span:
        raise typer.BadParameter("with --sql, give the revision to start from too, as in 0001:0002")
    from alembic.util import CommandError

    from context_paging.migrations.upgrade import sql

    try:
        print(sql(dialect, span, down=down))
    except CommandError as error:
        raise typer.BadParameter(str(error)) from None
