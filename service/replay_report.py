"""What a replay shows: cuts and aborts, the window over time, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from context_paging.domain.cut import Frontier, FrontierKind
from context_paging.domain.events import ContextAborted, ContextSelected, Mode
from context_paging.domain.settings import Settings

from .replay import ReplayedCall
from .replies import outcome_name
from .window_chart import window_chart

SHOWN_ROWS = 24


def print_report(
    console: Console, name: str, session_id: str, settings: Settings, calls: Sequence[ReplayedCall]
) -> None:
    """Print the report of one replay."""
    console.print(Text.assemble((name, "bold"), f"  session {session_id}"))
    if not calls:
        console.print("No context request: the active branch has no assistant message.")
        return
    console.print(f"token budget {settings.token_budget:,}, target {settings.trim_to_tokens:,}")
    console.print()
    events = [call for call in calls if _is_event(call)]
    if events:
        console.print(_table(events))
        console.print(f"every call: context-paging calls --session {session_id}", style="dim")
        console.print()
    console.print(window_chart(calls, console.width))
    console.print()
    console.print(_totals(calls))
    aborted = sum(call.reply.aborted is not None for call in calls)
    if aborted:
        console.print(f"why: context-paging postmortem {session_id} --last-abort")


def advanced(call: ReplayedCall) -> bool:
    """Whether the cut moved at a call."""
    outcome = call.reply.outcome
    return isinstance(outcome, ContextSelected) and outcome.advanced


def _is_event(call: ReplayedCall) -> bool:
    outcome = call.reply.outcome
    if isinstance(outcome, ContextSelected):
        unusual = outcome.mode in (Mode.PROTECTED_OVERFLOW, Mode.RECOVERY)
        return advanced(call) or unusual or outcome.fallback is not None
    return isinstance(outcome, ContextAborted)


def _table(calls: Sequence[ReplayedCall]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title="Cuts and aborts", title_justify="left")
    table.add_column("call", justify="right", no_wrap=True)
    table.add_column("what happened", no_wrap=True)
    table.add_column("history", justify="right")
    table.add_column("sent", justify="right")
    table.add_column("left", justify="right")
    table.add_column("where the cut is", overflow="fold")
    groups = [list(group) for _, group in groupby(calls, _group)]
    half = SHOWN_ROWS // 2
    for group in groups if len(groups) <= SHOWN_ROWS else groups[:half]:
        table.add_row(*_row(group))
    if len(groups) > SHOWN_ROWS:
        table.add_row("…")
        for group in groups[-half:]:
            table.add_row(*_row(group))
    return table


def _group(call: ReplayedCall) -> object:
    """Equal for events that one row tells together; an advance of the cut has a row of its own."""
    outcome = call.reply.outcome
    if isinstance(outcome, ContextAborted):
        return outcome.code
    if isinstance(outcome, ContextSelected) and not advanced(call):
        return (outcome.rule, outcome.fallback)
    return call.number


def _row(group: Sequence[ReplayedCall]) -> list[str | Text]:
    call = group[-1]
    outcome = call.reply.outcome
    number = str(call.number) if len(group) == 1 else f"{group[0].number}–{call.number}"
    history = f"{call.history_tokens:,.0f}"
    if isinstance(outcome, ContextAborted):
        return [number, Text(outcome.code.value, "red"), history, "aborted", "", ""]
    assert isinstance(outcome, ContextSelected)
    what = outcome.fallback.value if outcome.fallback else outcome.rule.value
    style = "" if outcome.fallback is None and outcome.mode is Mode.PAGED else "yellow"
    return [
        number,
        Text(what, style),
        history,
        f"{outcome.estimated_tokens:,.0f}",
        str(outcome.evicted_units or ""),
        _where(outcome.cut.frontier) if outcome.cut else "nowhere",
    ]


def _where(frontier: Frontier) -> str:
    last = frontier.last_evicted.history_id
    if frontier.kind is not FrontierKind.PARTIAL_TURN:
        return f"after {last}"
    return f"after {last}, inside turn {frontier.user_history_id or ''}".rstrip()


def _totals(calls: Sequence[ReplayedCall]) -> Table:
    outcomes = Counter(outcome_name(call.reply.outcome) for call in calls)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    named = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    table.add_row("calls", f"{len(calls):,}", named)
    table.add_row("cuts", f"{sum(map(advanced, calls)):,}", "advances of the cut")
    repairs = Counter(repair.kind.value for call in calls for repair in call.reply.repairs)
    if repairs:
        told = ", ".join(f"{count} {kind}" for kind, count in repairs.most_common())
        table.add_row("repairs", f"{repairs.total():,}", told)
    sent = sum(call.sent_tokens for call in calls)
    whole = sum(call.history_tokens for call in calls)
    table.add_row("sent", f"{sent:,.0f}", f"tokens, instead of {whole:,.0f} with the whole history")
    reused, sliding = _share(calls, sliding=False), _share(calls, sliding=True)
    table.add_row(
        "prefix reuse", f"{reused:.1%}", "of sent tokens were an unchanged prefix of the request before"
    )
    table.add_row("", f"{sliding:.1%}", "with a sliding window of the same budget")
    return table


def _share(calls: Sequence[ReplayedCall], *, sliding: bool) -> float:
    sent = sum(call.sliding_sent_tokens if sliding else call.sent_tokens for call in calls)
    reused = sum(call.sliding_reused_tokens if sliding else call.reused_tokens for call in calls)
    return reused / sent if sent else 0
