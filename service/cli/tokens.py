"""`token`: who may use the service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .serve import TokensOption

if TYPE_CHECKING:
    from ..http.tokens import TokenFile

tokens = typer.Typer(help="Bearer tokens of the service.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What people call the token.")]


@tokens.command("add")
def add_command(
    name: NameArgument,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", metavar="write|read|admin", help="What it allows. Repeatable; else write and read."
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only sessions whose ids begin so.")
    ] = "",
    file: TokensOption = None,
) -> None:
    """Make a token and print it. It is stored as a hash: nobody can print it again."""
    from ..http.tokens import Scope

    try:
        scopes = tuple(Scope(each) for each in scope or ["write", "read"])
    except ValueError as error:
        raise typer.BadParameter(f"{error}: write, read and admin are", param_hint="--scope") from None
    typer.echo(_file(file).add(name, scopes, prefix))


@tokens.command("list")
def list_command(file: TokensOption = None, as_json: JsonOption = False) -> None:
    """List tokens by their names."""
    known = _file(file).tokens()
    if as_json:
        told = [{"name": each.name, "scopes": each.scopes, "prefix": each.prefix} for each in known]
        print(json.dumps(told, indent=2))
        return
    for each in known:
        prefix = f"  sessions {each.prefix}…" if each.prefix else ""
        typer.echo(f"{each.name}  {', '.join(each.scopes)}{prefix}")


@tokens.command("remove")
def remove_command(name: NameArgument, file: TokensOption = None) -> None:
    """Make a token worthless, at once and for running services too."""
    _file(file).remove(name)


def _file(given: TokensOption) -> TokenFile:
    from ..config import tokens_file
    from ..http.tokens import TokenFile

    return TokenFile(tokens_file(given))
