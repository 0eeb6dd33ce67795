"""A postmortem for people, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from context_paging.domain.events import ContextAborted, ContextBypassed, ContextSelected, Parts

from .log.records import StoredEvent
from .postmortem import Postmortem, frontier_text

BAR_WIDTH = 40
SHOWN_REPAIRS = 5
"""How many repairs in a row are shown."""


def print_postmortem(console: Console, postmortem: Postmortem, saved: Sequence[str] = ()) -> None:
    """Print the explanation of a call; ``saved`` is what would have saved it."""
    call, outcome = postmortem.call, postmortem.outcome
    style = "bold red" if isinstance(outcome, ContextAborted) else "bold"
    console.print(
        Text.assemble(
            f"call {call.number} of session {call.session_id}  ",
            (call.code or call.outcome, style),
            f"\n{call.call_id}  {call.requested_at:%Y-%m-%d %H:%M:%S} UTC",
        )
    )
    console.print(postmortem.sentence)
    if isinstance(outcome, ContextAborted):
        console.print(outcome.message)
    console.print()
    _print_limits(console, postmortem)
    if not isinstance(outcome, ContextBypassed):
        if outcome.parts is not None:
            console.print(_waterfall(outcome.parts, outcome.budget_tokens))
        console.print(f"frontier before  {frontier_text(postmortem.frontier_before)}")
        console.print(f"frontier after   {frontier_text(postmortem.frontier_after)}")
        if outcome.fallback is not None:
            console.print(f"fallback         {outcome.fallback.value}")
        console.print()
        _print_largest(console, postmortem)
    if saved:
        console.print("Any of these would have let it through", style="italic")
        for line in saved:
            console.print(f"  {line}", markup=False)
        console.print()
    _print_events(console, postmortem)


def postmortem_json(postmortem: Postmortem) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "call": postmortem.call._asdict(),
        "explanation": postmortem.sentence,
        "outcome": asdict(postmortem.outcome),
        "frontier_before": frontier_text(postmortem.frontier_before),
        "frontier_after": frontier_text(postmortem.frontier_after),
        "largest_units": [asdict(unit) for unit in postmortem.largest],
        "events": [
            {"sequence": stored.sequence, "type": stored.type, "recorded_at": stored.recorded_at}
            for stored in (*postmortem.before, *postmortem.during)
        ],
    }


def _print_limits(console: Console, postmortem: Postmortem) -> None:
    call, request = postmortem.call, postmortem.request
    table = _table()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    outcome = postmortem.outcome
    if isinstance(outcome, ContextSelected | ContextAborted):
        _add(table, "estimate", outcome.estimated_tokens, "tokens of what would go out")
    _add(table, "budget", call.budget_tokens, "token budget, capped by the model's window")
    _add(table, "target", call.target_tokens, "where an advance of the cut stops")
    if request is not None:
        _add(table, "window", request.context_window, "context window of the model")
        _add(table, "status", request.usage_tokens, "total the host reported")
    _add(table, "response", call.response_tokens, "total the provider reported afterwards")
    console.print(table)
    console.print()


def _waterfall(parts: Parts, budget: float | None) -> Table:
    table = _table(title="Estimate")
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    rows = [
        ("resident input", parts.resident),
        ("request", parts.request),
        ("units", parts.units),
        ("notice", parts.notice),
        ("calibration", parts.calibration),
    ]
    total = sum(tokens for _, tokens in rows)
    scale = max(abs(total), budget or 0, *(abs(tokens) for _, tokens in rows)) or 1
    reached = 0.0
    for name, tokens in rows:
        reached += tokens
        table.add_row(name, f"{tokens:,.0f}", _bar(reached - max(tokens, 0), abs(tokens), scale))
    table.add_row("sum", f"{total:,.0f}", _bar(0, total, scale))
    if budget is not None:
        table.add_row("budget", f"{budget:,.0f}", " " * max(0, round(budget / scale * BAR_WIDTH) - 1) + "│")
    return table


def _bar(start: float, length: float, scale: float) -> str:
    before = round(max(0, start) / scale * BAR_WIDTH)
    return " " * before + "█" * max(1 if length > 0 else 0, round(max(0, length) / scale * BAR_WIDTH))


def _print_largest(console: Console, postmortem: Postmortem) -> None:
    if not postmortem.largest:
        return
    table = _table(title="Largest units in the window")
    for name in ("tokens", "messages", "unit", "history id", "tools"):
        table.add_column(name, justify="right" if name == "tokens" else "left")
    table.show_header = True
    for unit in postmortem.largest:
        kind = unit.kind.value + (" (unread, protected)" if unit.protected else "")
        span = f"{unit.first}–{unit.last}"
        table.add_row(f"{unit.tokens:,.0f}", span, kind, unit.history_id or "", ", ".join(unit.tools))
    console.print(table)
    console.print()


def _print_events(console: Console, postmortem: Postmortem) -> None:
    table = _table(title="Events around the call")
    table.add_column(justify="right")
    table.add_column()
    table.add_column()
    inside = {stored.sequence for stored in postmortem.during}
    for event_type, group in groupby((*postmortem.before, *postmortem.during), lambda stored: stored.type):
        run = list(group)
        shown = run if event_type != "structure-repaired" else run[:SHOWN_REPAIRS]
        for stored in shown:
            marker = "→" if stored.sequence in inside else ""
            table.add_row(str(stored.sequence), marker, _event_text(stored))
        if len(run) > len(shown):
            table.add_row("…", "", f"{len(run) - len(shown):,} more repairs")
    console.print(table)


def _event_text(stored: StoredEvent) -> str:
    event = stored.event
    match event.type:
        case "branch-refreshed":
            return f"{event.type}: {event.kept} entries kept, {len(event.appended)} new"
        case "context-requested":
            return f"{event.type}: {event.reused} messages as before, {len(event.appended)} new"
        case "context-selected":
            return f"{event.type}: {event.mode.value}, {event.rule.value}"
        case "context-aborted":
            return f"{event.type}: {event.code.value}"
        case "history-unavailable":
            return f"{event.type}: {event.code.value}"
        case "structure-repaired":
            ids = [*event.entry_ids, *(f"call {call_id}" for call_id in event.call_ids)]
            unstored = f"; {event.unstored} in the request only" if event.unstored else ""
            return f"{event.type}: {event.kind.value}: {', '.join(ids) or 'no stored entry'}{unstored}"
        case "recovery-tool-called":
            return f"{event.type}: {event.tool} {', '.join(event.history_ids)}".rstrip()
        case "recovery-tool-answered":
            return f"{event.type}: {event.tool}, {event.characters:,} characters"
        case "recovery-tool-rejected":
            return f"{event.type}: {event.tool}, {event.code}"
        case "turn-ended":
            return f"{event.type}: {event.response.stop_reason or 'no stop reason'}"
        case _:
            return event.type


def _table(title: str | None = None) -> Table:
    return Table(box=None, show_header=False, padding=(0, 2, 0, 0), title=title, title_justify="left")


def _add(table: Table, name: str, value: float | None, meaning: str) -> None:
    if value is not None:
        table.add_row(name, f"{value:,.0f}", meaning)
