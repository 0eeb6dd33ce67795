"""What-if and savings for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.table import Table

from context_paging.domain.events import ContextBypassed, ContextSelected
from context_paging.domain.what_if import Outcome, Reconsidered, Savings

from .replies import outcome_name
from .what_if import differs, gathered

SHOWN_RUNS = 24


def print_what_if(console: Console, calls: Iterable[Reconsidered]) -> None:
    """Print which calls would have been decided otherwise, and what that comes to."""
    known, incomplete = gathered(calls)
    runs = [list(run) for _, run in groupby((call for call in known if differs(call)), _alike)]
    if runs:
        table = Table(box=None, padding=(0, 2, 0, 0), title="Calls that differ", title_justify="left")
        for name in ("call", "was", "would be"):
            table.add_column(name, justify="right" if name == "call" else "left")
        for name in ("estimate", "would be", "left", "would have"):
            table.add_column(name, justify="right")
        for run in runs[:SHOWN_RUNS]:
            table.add_row(*_row(run))
        console.print(table)
        if len(runs) > SHOWN_RUNS:
            rest = sum(map(len, runs[SHOWN_RUNS:]))
            console.print(f"… and {rest:,} more calls; --json lists them all", style="dim")
        console.print()
    console.print(_totals(known))
    if incomplete is not None:
        console.print(incomplete, style="yellow", markup=False)


def savings_lines(savings: Savings) -> list[str]:
    """What would have saved an aborted call, a line each."""
    lines = []
    if savings.budget is not None:
        lines.append(f"a token budget of {savings.budget:,} tokens")
    if savings.window is not None:
        lines.append(f"a model with a context window of {savings.window:,} tokens")
    for shrink in savings.shrinks:
        what = "resident input (system prompt and tools)"
        if shrink.part == "message":
            what = f"message {shrink.position} of the active request"
        elif shrink.part == "unit":
            what = f"the unit at message {shrink.position}"
        if shrink.history_id is not None:
            what += f" ({shrink.history_id})"
        lines.append(f"{what}: {shrink.to_tokens:,.0f} instead of {shrink.tokens:,.0f} tokens")
    if savings.repair:
        lines.append('onInvalidStructure set to "repair"')
    return lines


def _alike(call: Reconsidered) -> tuple[str, str]:
    return outcome_name(call.before), outcome_name(call.after)


def _row(run: list[Reconsidered]) -> list[str]:
    first, last = run[0], run[-1]
    number = str(first.number) if len(run) == 1 else f"{first.number}–{last.number}"
    return [
        number,
        *_alike(last),
        _estimate(last.before),
        _estimate(last.after),
        _evicted(last.before),
        _evicted(last.after),
    ]


def _estimate(outcome: Outcome) -> str:
    if isinstance(outcome, ContextBypassed) or outcome.estimated_tokens is None:
        return ""
    return f"{outcome.estimated_tokens:,.0f}"


def _evicted(outcome: Outcome) -> str:
    return "" if isinstance(outcome, ContextBypassed) else f"{outcome.evicted_units:,}"


def _totals(calls: list[Reconsidered]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column("was", justify="right")
    table.add_column("would be", justify="right")
    before, after = ([getattr(call, side) for call in calls] for side in ("before", "after"))
    counts = (Counter(map(outcome_name, before)), Counter(map(outcome_name, after)))
    for name in sorted(counts[0].keys() | counts[1].keys()):
        table.add_row(name, f"{counts[0][name]:,}", f"{counts[1][name]:,}")
    table.add_row("advances of the cut", *(f"{sum(map(_advanced, side)):,}" for side in (before, after)))
    sent = (
        sum(o.estimated_tokens for o in side if isinstance(o, ContextSelected)) for side in (before, after)
    )
    table.add_row("tokens sent, estimated", *(f"{tokens:,.0f}" for tokens in sent))
    differing = sum(map(differs, calls))
    table.add_row("calls", f"{len(calls):,}", f"{differing:,} differ")
    return table


def _advanced(outcome: Outcome) -> bool:
    return isinstance(outcome, ContextSelected) and outcome.advanced
