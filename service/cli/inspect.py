"""`sessions`, `calls`, `timeline`, `postmortem`, `tail`: what the log says by itself."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..outcomes import OUTCOMES
from .options import (
    BeforeOption,
    CursorOption,
    JsonOption,
    LogOption,
    SinceOption,
    moment_of,
    open_log,
)

if TYPE_CHECKING:
    from ..log import EventLog, StoredCall, StoredEvent, StoredSession

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="So many.")]


def sessions_command(
    prefix: Annotated[str | None, typer.Option("--prefix", help="Ids that begin so.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="One host.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Those that used this model last.")] = None,
    aborted: Annotated[
        bool | None, typer.Option("--aborted/--not-aborted", help="With or without aborted calls.")
    ] = None,
    search: Annotated[str | None, typer.Option("--search", help="What the id or the label holds.")] = None,
    since: SinceOption = None,
    before: BeforeOption = None,
    limit: LimitOption = 200,
    cursor: CursorOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest sessions in the log, the newest last."""
    from ..log import SessionQuery

    times = moment_of(since, "--since"), moment_of(before, "--before")
    query = SessionQuery(prefix, host, model, *times, aborted, search=search)
    with open_log(log) as event_log:
        page = event_log.find_sessions(query, cursor=cursor, limit=limit)
    sessions = page.rows[::-1]
    if as_json:
        _print_json([_jsonable(session._asdict()) for session in sessions])
    else:
        rows = [
            [
                session.session_id,
                session.label or "",
                session.host or "",
                f"{session.started_at:%Y-%m-%d %H:%M}",
                f"{session.calls:,}",
                f"{session.cuts:,}",
                f"{session.aborted_calls:,}",
            ]
            for session in sessions
        ]
        _print_table(["session", "label", "host", "started (UTC)", "calls", "cuts", "aborts"], rows)
    _tell_next(page.next, "older sessions")


def calls_command(
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="One session.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", metavar="|".join(OUTCOMES), help="One outcome.")
    ] = None,
    code: Annotated[str | None, typer.Option("--code", help="One error code.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="One host.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="One model.")] = None,
    since: SinceOption = None,
    before: BeforeOption = None,
    limit: LimitOption = 200,
    cursor: CursorOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest provider calls, the newest last."""
    if outcome is not None and outcome not in OUTCOMES:
        raise typer.BadParameter(f"must be one of {', '.join(OUTCOMES)}", param_hint="--outcome")
    from ..log import CallQuery

    times = moment_of(since, "--since"), moment_of(before, "--before")
    with open_log(log) as event_log:
        session_id = None if session is None else session_named(event_log, session).session_id
        query = CallQuery(session_id, outcome, code, host, model, *times)
        page = event_log.find_calls(query, cursor=cursor, limit=limit)
    calls = page.rows[::-1]
    if as_json:
        _print_json([_jsonable(call._asdict()) for call in calls])
    else:
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
    _tell_next(page.next, "older calls")


def timeline_command(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session id, or its beginning.")],
    limit: LimitOption = 200,
    cursor: CursorOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the events of a session, the oldest first."""
    with open_log(log) as event_log:
        found = session_named(event_log, session)
        page = event_log.timeline(found.session_id, cursor=cursor, limit=limit)
    if as_json:
        _print_json([_event_json(event) for event in page.rows])
    else:
        rows = [
            [f"{event.sequence:,}", f"{event.recorded_at:%Y-%m-%d %H:%M:%S}", event.type, event.call_id or ""]
            for event in page.rows
        ]
        _print_table(["event", "recorded (UTC)", "type", "provider call"], rows)
    _tell_next(page.next, "later events")


def tail_command(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with events as they come.")] = False,
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, max=2**63 - 1, metavar="POSITION", help="Begin behind this position."),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=0, help="Without --after: begin with the newest so many.")
    ] = 10,
    log: LogOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object an event.")] = False,
) -> None:
    """Print the newest events of all sessions by position, each once and without gaps."""
    with open_log(log) as event_log:
        begin = max(0, event_log.last_position() - last) if after is None else after
        for event in event_log.tail(begin, follow=follow):
            if as_json:
                print(json.dumps(_event_json(event)), flush=follow)
            else:
                moment = f"{event.recorded_at:%Y-%m-%d %H:%M:%S}"
                call = f"  {event.call_id}" if event.call_id else ""
                line = f"{event.position}  {moment}  {event.session_id}  {event.sequence}  {event.type}{call}"
                print(_printable(line), flush=follow)


def postmortem_command(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session id, or its beginning.")],
    call: Annotated[str | None, typer.Option("--call", metavar="ID", help="A call's id or number.")] = None,
    last_abort: Annotated[bool, typer.Option("--last-abort", help="The newest aborted call.")] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="ID", help="Put another call beside it, by id or number."),
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a provider call: the newest one, unless another is named."""
    if call is not None and last_abort:
        raise typer.BadParameter("give --call or --last-abort, not both")
    from ..comparison import compared
    from ..postmortem import explain
    from ..postmortem_report import postmortem_json, print_comparison, print_postmortem

    with open_log(log) as event_log:
        session_id = session_named(event_log, session).session_id
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
        other = None if compare is None else explain(event_log, _call(event_log, session_id, compare))
    differences = None if other is None else compared(postmortem, other)
    if as_json:
        told = {} if differences is None else {"compared": [asdict(row) for row in differences]}
        _print_json({**postmortem_json(postmortem), **told})
        return
    from .console import output

    if other is None or differences is None:
        print_postmortem(output(), postmortem)
    else:
        print_comparison(output(), differences, postmortem.call.number, other.call.number)


def session_named(event_log: EventLog, given: str) -> StoredSession:
    """The session with an id, or the only one whose id begins so.

    Raises:
        UnknownSession: there is none, or there are several.
    """
    from ..log import SessionQuery, UnknownSession

    with suppress(UnknownSession):
        return event_log.session(given)
    found = event_log.find_sessions(SessionQuery(prefix=given), limit=5)
    if len(found.rows) == 1:
        return found.rows[0]
    if found.rows:
        names = ", ".join(session.session_id for session in found.rows)
        raise UnknownSession(f"{given!r} begins several session ids ({names}); give more of it.")
    raise UnknownSession(f"the log has no session {given!r}; `context-paging sessions` lists them.")


def _call(event_log: EventLog, session_id: str, given: str) -> StoredCall:
    from ..log import UnknownCall

    call = event_log.call_named(session_id, given)
    if call.session_id != session_id:
        raise UnknownCall(f"call {given!r} belongs to session {call.session_id!r}.")
    return call


def _event_json(event: StoredEvent) -> dict[str, Any]:
    from ..log.transfer.export import line_of

    return line_of(event)


def _jsonable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _tell_next(cursor: str | None, what: str) -> None:
    if cursor is not None:
        from .console import messages

        messages().print(f"{what}: --cursor {cursor}", markup=False, style="dim")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


_TEXT_COLUMNS = frozenset(
    {
        "session",
        "label",
        "host",
        "started (UTC)",
        "recorded (UTC)",
        "type",
        "provider call",
        "outcome",
        "rule",
    }
)


def _print_table(names: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

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
        # What hosts chose is no markup, and may hold what no terminal shows.
        table.add_row(*(Text(_printable(cell)) for cell in row))
    console.print(table)
