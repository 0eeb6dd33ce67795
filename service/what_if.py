"""What if, over a logged session: every call decided again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from context_paging.domain.estimation import HEURISTIC, HeuristicEstimator, TokenEstimator
from context_paging.domain.events import ContextAborted, ContextBypassed, SessionStarted
from context_paging.domain.what_if import Change, IncompleteLog, Outcome, Reconsidered, reconsider

from .replies import outcome_name

if TYPE_CHECKING:
    from .log import EventLog


def differs(call: Reconsidered) -> bool:
    """Whether anything that matters would be otherwise: the outcome, what is kept, where the cut is."""
    return _decided(call.before) != _decided(call.after)


def call_json(call: Reconsidered) -> dict[str, Any]:
    """A call as JSON values."""
    sides = {"before": call.before, "after": call.after}
    told = {name: {**_decided(outcome), **_limits(outcome)} for name, outcome in sides.items()}
    return {"number": call.number, "differs": differs(call), **told}


def what_if(
    log: EventLog, session_id: str, change: Change, estimator: TokenEstimator | None = None
) -> Iterator[Reconsidered]:
    """Every provider call of a session, decided again with a change.

    Raises:
        UnknownSession: the log has no such session.
        IncompleteLog: events are missing; all calls before them have been yielded.
    """
    last = log.session(session_id).last_sequence
    events = (stored.event for stored in log.events(session_id, 0, last))
    yield from reconsider(events, change, estimator or logged_estimator(log, session_id))


def logged_estimator(log: EventLog, session_id: str) -> TokenEstimator:
    """How a session counted tokens, for what the log does not have: notices. If it is not to be had here,
    the heuristic."""
    started = next((s.event for s in log.events(session_id, 0, 1)), None)
    name = started.estimator if isinstance(started, SessionStarted) else HEURISTIC
    if name == HEURISTIC:
        return HeuristicEstimator()
    from .tokenizers import known_estimator

    return known_estimator(name)


def gathered(calls: Iterable[Reconsidered]) -> tuple[list[Reconsidered], str | None]:
    """The calls that could be decided again, and why the rest could not."""
    known: list[Reconsidered] = []
    try:
        for call in calls:
            known.append(call)
    except IncompleteLog as error:
        return known, str(error)
    return known, None


def _limits(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ContextBypassed):
        return {}
    return {"budget_tokens": outcome.budget_tokens, "target_tokens": outcome.target_tokens}


def _decided(outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {"outcome": outcome_name(outcome)}
    if isinstance(outcome, ContextBypassed):
        return told
    told["estimated_tokens"] = outcome.estimated_tokens
    if isinstance(outcome, ContextAborted):
        return told
    told["kept"] = [list(run) for run in outcome.kept]
    told["evicted_units"] = outcome.evicted_units
    told["frontier"] = None if outcome.cut is None else asdict(outcome.cut.frontier)
    told["fallback"] = None if outcome.fallback is None else outcome.fallback.value
    return told
