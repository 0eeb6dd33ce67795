"""`export`, `import`, `backup`: the log elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import LogOption, open_log


def export_command(
    folder: Annotated[Path, typer.Argument(help="A folder of the export's own. An earlier export goes on.")],
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Gzipped JSON Lines, the default.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Parquet; needs the export extra.")] = False,
    log: LogOption = None,
) -> None:
    """Write all events to a folder, by the day they were recorded."""
    if jsonl and parquet:
        raise typer.BadParameter("give --jsonl or --parquet, not both")
    from ..log.transfer.export import ExportFormat, export
    from .console import progress

    kind = ExportFormat.PARQUET if parquet else ExportFormat.JSONL
    with open_log(log) as event_log, progress("exporting") as told:
        total, done = event_log.last_position(), 0

        def count(events: int) -> None:
            nonlocal done
            done += events
            told(done, max(total, done))

        exported = export(event_log, folder, kind, count)
    print(f"{exported.events:,} events written; {folder} goes to position {exported.position:,}")


def import_command(
    folder: Annotated[Path, typer.Argument(help="A folder that `export` wrote.")], log: LogOption = None
) -> None:
    """Take in the events of an export, each checked against its hash. Those that are there stay."""
    from ..log.transfer.importing import import_folder
    from .console import progress

    with open_log(log) as event_log, progress("importing") as told:
        imported = import_folder(event_log, folder, told)
    print(f"{imported.events:,} events taken in; {imported.known:,} were there already")


def backup_command(
    file: Annotated[Path, typer.Argument(help="Where to write the copy.")], log: LogOption = None
) -> None:
    """Copy a SQLite log while it is in use. The key file is not in the copy."""
    from ..log.transfer.backup import backup
    from .console import progress

    with open_log(log) as event_log, progress("copying") as told:
        backup(event_log, file, told)
    print(f"copied to {file}")
