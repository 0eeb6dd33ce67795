"""`pi`: context paging inside Pi."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption

pi = typer.Typer(help="Context paging inside Pi: the extension.", no_args_is_help=True)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="DIR", help="Pi's extensions folder. Else the global one of this user."),
]
ProjectOption = Annotated[
    bool, typer.Option("--project", help="The .pi/extensions folder of the working directory.")
]


@pi.command("install")
def install_command(folder: FolderOption = None, project: ProjectOption = False) -> None:
    """Put the extension into Pi's extension folder, or update it there. Pi loads it at its next start."""
    from ..hosts.pi.installer import install

    typer.echo(f"installed in {install(_folder(folder, project))}; start Pi anew, or type /reload")


@pi.command("uninstall")
def uninstall_command(folder: FolderOption = None, project: ProjectOption = False) -> None:
    """Take the extension out of Pi's extension folder. Sessions and the log stay as they are."""
    from ..hosts.pi.installer import uninstall

    removed = uninstall(_folder(folder, project))
    kept = f"; not ours and kept: {', '.join(removed.left)}" if removed.left else ""
    typer.echo(f"removed from {removed.folder}{kept}")


@pi.command("doctor")
def doctor_command(
    folder: FolderOption = None,
    project: ProjectOption = False,
    program: Annotated[str, typer.Option("--pi", metavar="PROGRAM", help="Pi's program.")] = "pi",
    as_json: JsonOption = False,
) -> None:
    """Check Pi, the extension, the bridge, the settings and the log. Exit status 1 if one is not well."""
    from ..hosts.pi.doctor import examine

    checks = examine(_folder(folder, project), program)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.told}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _folder(folder: Path | None, project: bool) -> Path:
    from ..hosts.pi.folders import extensions_folder

    if folder is not None and project:
        raise typer.BadParameter("give a folder or --project, not both", param_hint="--folder")
    return extensions_folder(folder, project=project)
