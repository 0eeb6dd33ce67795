"""`sessions`, `calls`, `postmortem`: what the log says, without the host and its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .replay import LogOption

if TYPE_CHECKING:
    from ..log import EventLog, StoredCall, StoredSession

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OUTCOMES = ("within-budget", "paged", "protected-overflow", "recovery", "aborted", "inactive")


def sessions_command(log: LogOption = None, as_json: JsonOption = False) -> None:
    """List the sessions in the log, the newest last."""
    with _open_log(log) as event_log:
        sessions = event_log.sessions()
    if as_json:
        _print_json([session._asdict() for session in sessions])
        return
    rows = [
        [
            session.session_id,
            session.label or "",
            f"{session.started_at:%Y-%m-%d %H:%M}",
            f"{session.calls:,}",
            f"{session.cuts:,}",
            f"{session.aborted_calls:,}",
        ]
        for session in sessions
    ]
    _print_table(["session", "label", "started (UTC)", "calls", "cuts", "aborts"], rows)


def calls_command(
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="One session.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", metavar="|".join(OUTCOMES), help="One outcome.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 200,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List provider calls, the newest last."""
    if outcome is not None and outcome not in OUTCOMES:
        raise typer.BadParameter(f"must be one of {', '.join(OUTCOMES)}", param_hint="--outcome")
    with _open_log(log) as event_log:
        session_id = None if session is None else _session(event_log, session).session_id
        newest = event_log.calls(session_id=session_id, outcome=outcome, limit=limit, newest_first=True)
    calls = list(newest)[::-1]
    if as_json:
        _print_json([call._asdict() for call in calls])
        return
    rows = [
        [
            *([call.session_id] if session_id is None else []),
            f"{call.number:,}",
            call.code or call.outcome,
            call.fallback or call.rule or "",
            _number(call.estimated_tokens),
            _number(call.budget_tokens),
            f"{call.evicted_units or ''}",
        ]
        for call in calls
    ]
    names = ["call", "outcome", "rule", "estimate", "budget", "left"]
    if session_id is None:
        names.insert(0, "session")
    _print_table(names, rows)


def postmortem_command(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session id, or its beginning.")],
    call: Annotated[str | None, typer.Option("--call", metavar="ID", help="A call's id or number.")] = None,
    last_abort: Annotated[bool, typer.Option("--last-abort", help="The newest aborted call.")] = False,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a provider call: the newest one, unless another is named."""
    if call is not None and last_abort:
        raise typer.BadParameter("give --call or --last-abort, not both")
    from ..postmortem import explain
    from ..postmortem_report import postmortem_json, print_postmortem

    with _open_log(log) as event_log:
        session_id = _session(event_log, session).session_id
        found: StoredCall | None
        if call is not None:
            found = _call(event_log, session_id, call)
        else:
            found = event_log.last_call(session_id, outcome="aborted" if last_abort else None)
        if found is None:
            wanted = "aborted provider call" if last_abort else "provider call"
            typer.echo(f"context-paging: session {session_id} has no {wanted}.", err=True)
            raise typer.Exit(1)
        postmortem = explain(event_log, found)
    if as_json:
        _print_json(postmortem_json(postmortem))
        return
    from .console import output

    print_postmortem(output(), postmortem)


def _open_log(log: str | None) -> EventLog:
    from ..config import log_location
    from ..log import EventLog

    return EventLog.open(log_location(log))


def _session(event_log: EventLog, given: str) -> StoredSession:
    from ..log import UnknownSession

    matching = [session for session in event_log.sessions() if session.session_id.startswith(given)]
    exact = [session for session in matching if session.session_id == given]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    if matching:
        names = ", ".join(session.session_id for session in matching[:5])
        raise UnknownSession(f"{given!r} begins several session ids ({names}); give more of it.")
    raise UnknownSession(f"the log has no session {given!r}; `context-paging sessions` lists them.")


def _call(event_log: EventLog, session_id: str, given: str) -> StoredCall:
    from ..log import UnknownCall

    if given.isdecimal():
        number = int(given)
        for call in event_log.calls(session_id=session_id, limit=None):
            if call.number == number:
                return call
    call = event_log.call(given)
    if call.session_id != session_id:
        raise UnknownCall(f"call {given!r} belongs to session {call.session_id!r}.")
    return call


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


_TEXT_COLUMNS = frozenset({"session", "label", "started (UTC)", "outcome", "rule"})


def _print_table(names: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table

    from .console import output

    console = output()
    if not rows:
        console.print("none")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in names:
        is_text = name in _TEXT_COLUMNS
        # What identifies a row must stay whole, so that it can be copied.
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if name == "label" else "fold"
        table.add_column(
            name, justify="left" if is_text else "right", no_wrap=name != "outcome", overflow=overflow
        )
    for row in rows:
        table.add_row(*row)
    console.print(table)
