"""A postmortem for people, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from context_paging.domain.events import ContextAborted, ContextBypassed, ContextSelected
from context_paging.domain.hindsight import Fate, WindowPart

from .comparison import Difference
from .log.records import StoredEvent
from .postmortem import FrontierChange, Postmortem, WaterfallRow, frontier_text
from .what_if_report import savings_lines

BAR_WIDTH = 40
SHOWN_REPAIRS = 5
"""How many repairs in a row are shown."""
SHOWN_CHANGES = 8
"""How many of the newest changes of the frontier are shown."""


def print_postmortem(console: Console, postmortem: Postmortem) -> None:
    """Print the explanation of a call."""
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
        if postmortem.waterfall:
            console.print(_waterfall(postmortem.waterfall, outcome.budget_tokens))
        console.print(f"frontier before  {frontier_text(postmortem.frontier_before)}")
        console.print(f"frontier after   {frontier_text(postmortem.frontier_after)}")
        if outcome.fallback is not None:
            console.print(f"fallback         {outcome.fallback.value}")
        console.print()
        _print_largest(console, postmortem)
    saved = savings_lines(postmortem.saved)
    if saved:
        console.print("Any of these, at this call, would have let it through", style="italic")
        for line in saved:
            console.print(f"  {line}", markup=False)
        console.print()
    if postmortem.incomplete is not None:
        console.print(f"The rest cannot be told: {postmortem.incomplete}", style="yellow", markup=False)
    _print_window(console, postmortem)
    _print_life(console, postmortem)
    _print_events(console, postmortem)


def print_comparison(console: Console, differences: list[Difference], first: int, second: int) -> None:
    """Print two calls side by side."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", f"call {first}", f"call {second}", "difference"):
        table.add_column(name, justify="right" if name else "left", overflow="fold")
    for row in differences:
        style = "" if row.same else "bold"
        table.add_row(row.name, row.first, row.second, row.change, style=style)
    console.print(table)


def postmortem_json(postmortem: Postmortem) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "call": postmortem.call._asdict(),
        "explanation": postmortem.sentence,
        "outcome": asdict(postmortem.outcome),
        "frontier_before": frontier_text(postmortem.frontier_before),
        "frontier_after": frontier_text(postmortem.frontier_after),
        "waterfall": [asdict(row) for row in postmortem.waterfall],
        "largest_units": [asdict(unit) for unit in postmortem.largest],
        "window": [asdict(part) for part in postmortem.window],
        "frontier_life": [_change_json(change) for change in postmortem.life],
        "would_have_saved": savings_lines(postmortem.saved),
        "incomplete": postmortem.incomplete,
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


def _change_json(change: FrontierChange) -> dict[str, Any]:
    return {
        "sequence": change.stored.sequence,
        "recorded_at": change.stored.recorded_at,
        "type": change.stored.type,
        "call_number": change.number,
        "what": change.what,
        "why": change.transition.value,
        "frontier": frontier_text(change.after),
    }


def _waterfall(rows: tuple[WaterfallRow, ...], budget: float | None) -> Table:
    table = _table(title="Estimate")
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    total = sum(row.tokens for row in rows)
    scale = max(abs(total), budget or 0, *(abs(row.tokens) for row in rows)) or 1
    for row in rows:
        bar = _bar(row.start + min(row.tokens, 0), abs(row.tokens), scale)
        table.add_row(row.name, f"{row.tokens:,.0f}", bar)
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


def _print_window(console: Console, postmortem: Postmortem) -> None:
    if not postmortem.window:
        return
    table = _table(title="The conversation, oldest first")
    for name in ("fate", "units", "messages", "tokens", "sent"):
        table.add_column(name, justify="left" if name in ("fate", "messages") else "right")
    table.show_header = True
    for fate, group in groupby(postmortem.window, lambda part: part.fate):
        parts = list(group)
        table.add_row(*_window_row(fate, parts), style="dim" if fate is Fate.EVICTED else "")
    console.print(table)
    console.print()


def _window_row(fate: Fate, parts: list[WindowPart]) -> list[str]:
    tokens, sent = sum(part.tokens for part in parts), sum(part.sent_tokens for part in parts)
    messages = f"{parts[0].first}–{parts[-1].last}"
    return [fate.value, f"{len(parts):,}", messages, f"{tokens:,.0f}", f"{sent:,.0f}"]


def _print_life(console: Console, postmortem: Postmortem) -> None:
    if not postmortem.life:
        return
    table = _table(title="Life of the frontier")
    for _ in range(5):
        table.add_column(overflow="fold")
    hidden = len(postmortem.life) - SHOWN_CHANGES
    if hidden > 0:
        table.add_row("…", "", "", "", f"{hidden:,} earlier changes; --json has all")
    for change in postmortem.life[-SHOWN_CHANGES:]:
        call = "" if change.number is None else f"call {change.number}"
        where = "" if change.after is None else frontier_text(change.after)
        table.add_row(str(change.stored.sequence), call, change.what, change.transition.value, where)
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
            table.add_row(str(stored.sequence), marker, event_text(stored))
        if len(run) > len(shown):
            table.add_row("…", "", f"{len(run) - len(shown):,} more repairs")
    console.print(table)


def event_text(stored: StoredEvent) -> str:
    """An event in a line."""
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
