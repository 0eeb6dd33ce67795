"""Two provider calls of a session, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from context_paging.domain.events import ContextAborted, ContextBypassed
from context_paging.domain.hindsight import Fate

from .postmortem import Postmortem, frontier_text

NAMED_UNITS = 5
"""How many units that only one of them sent are named."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One line of a comparison; ``change`` is what a number grew by, or empty."""

    name: str
    first: str
    second: str
    change: str = ""

    @property
    def same(self) -> bool:
        """Whether the calls agree here."""
        return self.first == self.second


def compared(first: Postmortem, second: Postmortem) -> list[Difference]:
    """What two calls were like, line by line."""
    lines = [
        Difference("outcome", _outcome(first), _outcome(second)),
        Difference("rule", first.call.rule or "", second.call.rule or ""),
        Difference("fallback", first.call.fallback or "", second.call.fallback or ""),
        _numbers("estimate", first.call.estimated_tokens, second.call.estimated_tokens),
        *_parts(first, second),
        _numbers("budget", first.call.budget_tokens, second.call.budget_tokens),
        _numbers("target", first.call.target_tokens, second.call.target_tokens),
        _numbers("context window", first.call.context_window, second.call.context_window),
        _numbers("reported with the response", first.call.response_tokens, second.call.response_tokens),
        Difference("model", first.call.model or "", second.call.model or ""),
        _numbers("messages sent", _sent(first), _sent(second)),
        _numbers("messages outside the window", _left(first), _left(second)),
        Difference("frontier", frontier_text(first.frontier_after), frontier_text(second.frontier_after)),
        _only_one(first, second),
    ]
    return [line for line in lines if line.first or line.second]


def _outcome(postmortem: Postmortem) -> str:
    outcome = postmortem.outcome
    return (
        f"aborted ({outcome.code.value})" if isinstance(outcome, ContextAborted) else postmortem.call.outcome
    )


def _parts(first: Postmortem, second: Postmortem) -> list[Difference]:
    sides = [{row.name: row.tokens for row in side.waterfall} for side in (first, second)]
    return [_numbers(f"  {name}", sides[0].get(name), sides[1].get(name)) for name in sides[0] | sides[1]]


def _numbers(name: str, first: float | None, second: float | None) -> Difference:
    grown = "" if first is None or second is None or first == second else f"{second - first:+,.0f}"
    return Difference(name, _number(first), _number(second), grown)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _sent(postmortem: Postmortem) -> int | None:
    if isinstance(postmortem.outcome, ContextBypassed):
        return postmortem.outcome.messages
    if isinstance(postmortem.outcome, ContextAborted):
        return 0
    return sum(part.sent for part in postmortem.window) if postmortem.window else None


def _left(postmortem: Postmortem) -> int | None:
    if isinstance(postmortem.outcome, ContextAborted):
        return None
    return sum(part.messages - part.sent for part in postmortem.window) if postmortem.window else None


def _only_one(first: Postmortem, second: Postmortem) -> Difference:
    sides = [
        {
            part.history_id: part
            for part in side.window
            if part.history_id is not None
            and part.fate is not Fate.EVICTED
            and not isinstance(side.outcome, ContextAborted)
        }
        for side in (first, second)
    ]
    texts: list[str] = []
    for own, other in ((sides[0], sides[1]), (sides[1], sides[0])):
        ids = [history_id for history_id in own if history_id not in other]
        more = f" and {len(ids) - NAMED_UNITS:,} more" if len(ids) > NAMED_UNITS else ""
        texts.append(", ".join(ids[:NAMED_UNITS]) + more)
    return Difference("units that only it sent", texts[0], texts[1])
