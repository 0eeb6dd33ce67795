"""The window over time, drawn in characters: history, window, budget, cuts and aborts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from context_paging.domain.events import ContextAborted, ContextSelected

from .replay import ReplayedCall

HEIGHT = 12
LABEL_WIDTH = 9
EIGHTHS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class _Column:
    """Calls drawn above each other, as their maxima in tokens."""

    history: float
    window: float
    budget: float
    cut: bool
    aborted: bool


def window_chart(calls: Sequence[ReplayedCall], width: int) -> Text:
    """The picture: a column is one call or a few, the height is tokens.

    ``█`` is what went out, ``░`` the history that did not, ``─`` the budget; below, ``^`` marks a cut and
    ``x`` an abort.
    """
    columns = _columns(calls, max(10, min(width, 120) - LABEL_WIDTH - 1))
    top = max(max(column.history, column.window, column.budget) for column in columns) or 1
    budget_row = int(max(column.budget for column in columns) / top * (HEIGHT - 0.01))
    text = Text("Window over time, in tokens\n")
    for row in range(HEIGHT - 1, -1, -1):
        label = {HEIGHT - 1: f"{top:,.0f}", budget_row: "budget", 0: "0"}.get(row, "")
        text.append(f"{label:>{LABEL_WIDTH}} ", "dim")
        for column in columns:
            text.append(*_cell(column, row, top, is_budget=row == budget_row))
        text.append("\n")
    text.append(" " * (LABEL_WIDTH + 1))
    for column in columns:
        text.append(*(("x", "bold red") if column.aborted else ("^", "bold") if column.cut else (" ", "")))
    first, last = calls[0].number, calls[-1].number
    text.append(f"\n{'call':>{LABEL_WIDTH}} {first}{last:>{max(1, len(columns) - len(str(first)))}}\n", "dim")
    text.append(" " * (LABEL_WIDTH + 1))
    text.append("█ sent  ", "green")
    text.append("░ outside the window  ─ budget  ^ cut  ")
    text.append("x abort", "red")
    return text


def _cell(column: _Column, row: int, top: float, *, is_budget: bool) -> tuple[str, str]:
    filled = column.window / top * HEIGHT - row
    if filled >= 1:
        return "█", "green"
    history = column.history / top * HEIGHT - row
    if filled > 0 and round(filled * 8):
        # What is above the window in this row cannot be drawn in the same character.
        return EIGHTHS[round(filled * 8)], "green"
    if is_budget:
        return "─", "yellow"
    return ("░", "dim") if history >= 0.5 else (" ", "")


def _columns(calls: Sequence[ReplayedCall], width: int) -> list[_Column]:
    count = min(width, len(calls))
    bounds = [len(calls) * index // count for index in range(count + 1)]
    return [_column(calls[first:last]) for first, last in pairwise(bounds)]


def _column(calls: Sequence[ReplayedCall]) -> _Column:
    outcomes = [call.reply.outcome for call in calls]
    selected = [outcome for outcome in outcomes if isinstance(outcome, ContextSelected)]
    return _Column(
        history=max(call.history_tokens for call in calls),
        window=max((call.sent_tokens for call in calls), default=0),
        budget=max((outcome.budget_tokens for outcome in selected), default=0),
        cut=any(outcome.advanced for outcome in selected),
        aborted=any(isinstance(outcome, ContextAborted) for outcome in outcomes),
    )
