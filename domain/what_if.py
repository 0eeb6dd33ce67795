"""What if: a session's events decided again, all else equal, with other settings.

Decisions depend on digests alone, so that the log is enough (design, section 4). What the host, the model and
the tools would have done otherwise is not known: they did what they did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from .conversation import Conversation
from .decide import fold
from .errors import ContextPagingError, SelectionErrorCode
from .estimation import TokenEstimator
from .events import (
    AuditInterrupted,
    BranchRefreshed,
    CompactionCancelled,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    HistoryUnavailable,
    Rule,
    SessionStarted,
    StatusPublished,
    StructureRepaired,
    TrimTargetWarned,
)
from .reducers import evolve
from .repair import OnInvalidStructure
from .selection import select
from .settings import default_trim_target, settings_section
from .state import SessionState

Outcome = ContextSelected | ContextAborted | ContextBypassed
_DECISIONS = (
    ContextSelected,
    ContextAborted,
    HistoryUnavailable,
    CompactionCancelled,
    StatusPublished,
    StructureRepaired,
    TrimTargetWarned,
)


class IncompleteLog(ContextPagingError):
    """Events of the session are missing from the log, so that it cannot be decided again from there on."""

    code = "INCOMPLETE_LOG"


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be otherwise; ``None`` leaves a setting as it was. Token settings in tokens."""

    token_budget: int | None = None
    trim_to_tokens: int | None = None
    on_invalid_structure: OnInvalidStructure | None = None
    context_window: float | None = None

    def of_settings(self) -> dict[str, Any]:
        """The changed settings, as a host's source holds them."""
        return settings_section(self.token_budget, self.trim_to_tokens, self.on_invalid_structure)


@dataclass(frozen=True, slots=True)
class Reconsidered:
    """A provider call as it was decided, and as it would have been. ``number`` counts from 1."""

    number: int
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True)
class Shrink:
    """A part that, alone, would have had to be smaller: from ``tokens`` to at most ``to_tokens``.

    ``part`` is ``resident``, ``message`` at a position of the request, or ``unit`` that begins there.
    """

    part: str
    tokens: float
    to_tokens: float
    position: int | None = None
    history_id: str | None = None


@dataclass(frozen=True, slots=True)
class Savings:
    """What would have let an aborted call through.

    Attributes:
        budget: the smallest token budget; ``None`` if no budget does.
        window: the smallest context window of the model, where it is the window that was in the way.
        shrinks: parts that would have had to be smaller, each by itself, the largest first.
        repair: whether the repair policy would have.
    """

    budget: int | None = None
    window: int | None = None
    shrinks: tuple[Shrink, ...] = ()
    repair: bool = False


class Reconsideration:
    """Folds a session's logged events again, with a change."""

    def __init__(self, change: Change, estimator: TokenEstimator) -> None:
        self.state = SessionState()
        self._change = change
        self._estimator = estimator
        self._previous: Event | None = None

    def take(self, event: Event) -> Outcome | None:
        """Fold a logged event; the new decision, if it is a context request.

        Raises:
            IncompleteLog: events before it are missing.
        """
        previous, self._previous = self._previous, event
        match event:
            case AuditInterrupted():
                raise IncompleteLog(
                    f"{event.events} events are missing from the log ({event.reason}); "
                    "what came before them can be decided again"
                )
            case HistoryUnavailable():
                # Told again without a refresh: the branch had not changed.
                error = self.state.branch.history.error
                if error is not None and not isinstance(previous, BranchRefreshed):
                    self.state = evolve(self.state, HistoryUnavailable(code=error))
                return None
            case ContextBypassed():
                return event
            case _ if isinstance(event, _DECISIONS):
                return None
            case _:
                return self._fold(self._changed(event))

    def _fold(self, event: Event) -> Outcome | None:
        try:
            self.state, taken = fold(self.state, [event], self._estimator)
        except IndexError:
            raise IncompleteLog("a request builds on one that is not in the log") from None
        return next((e for e in taken if isinstance(e, ContextSelected | ContextAborted)), None)

    def _changed(self, event: Event) -> Event:
        match event:
            case SessionStarted():
                changed = self._change.of_settings()
                own = event.project_settings if isinstance(event.project_settings, dict) else {}
                return replace(event, project_settings={**own, **changed}, project_trusted=True)
            case ContextRequested() if self._change.context_window is not None:
                return replace(event, context_window=self._change.context_window)
            case _:
                return event


def reconsider(events: Iterable[Event], change: Change, estimator: TokenEstimator) -> Iterator[Reconsidered]:
    """Every provider call of a session, as it was decided and as it would have been.

    Raises:
        IncompleteLog: events are missing; all calls before them have been yielded.
    """
    again = Reconsideration(change, estimator)
    number = 0
    after: Outcome | None = None
    for event in events:
        taken = again.take(event)
        if isinstance(event, ContextRequested):
            after = taken
        elif isinstance(event, ContextSelected | ContextAborted | ContextBypassed):
            number += 1
            yield Reconsidered(number, event, taken or after or event)


def savings(events: Iterable[Event], estimator: TokenEstimator) -> Savings:
    """What would have let the last context request among ``events`` through, if it was aborted.

    ``events`` are those of its session, from the first one on.

    Raises:
        IncompleteLog: events are missing.
    """
    known = list(events)
    again = Reconsideration(Change(), estimator)
    state, request, outcome = again.state, None, None
    for event in known:
        taken = again.take(event)
        if isinstance(event, ContextRequested):
            # Decided again below, so from the state that has no outcome yet.
            request, outcome, state = event, taken, again.state
    if request is None or not isinstance(outcome, ContextAborted):
        return Savings()
    if outcome.code is SelectionErrorCode.INVALID_MESSAGE_STRUCTURE:
        return Savings(repair=_lives_repaired(known, estimator))
    trial = _Trial(state, request, estimator)
    return Savings(trial.smallest_budget(), trial.smallest_window(), trial.shrinks(outcome))


def _lives_repaired(events: list[Event], estimator: TokenEstimator) -> bool:
    change = Change(on_invalid_structure=OnInvalidStructure.REPAIR)
    last = None
    for call in reconsider(events, change, estimator):
        last = call.after
    return isinstance(last, ContextSelected)


_UNLIMITED = 2**50


class _Trial:
    """One aborted context request, decided again and again."""

    def __init__(self, state: SessionState, request: ContextRequested, estimator: TokenEstimator) -> None:
        self._state = state
        self._request = request
        self._estimator = estimator

    def smallest_budget(self) -> int | None:
        """The smallest budget that lets the request through."""
        return _smallest(self._state.settings.token_budget, lambda budget: self._passes(budget=budget))

    def smallest_window(self) -> int | None:
        """The smallest window of the model that does, as far as it is the window that is in the way."""
        window = self._request.context_window
        if window is None or not window < _UNLIMITED:
            return None
        return _smallest(int(window), lambda larger: self._passes(window=larger))

    def shrinks(self, aborted: ContextAborted) -> tuple[Shrink, ...]:
        """Parts that would have had to be smaller, each by itself."""
        estimate, limit = aborted.estimated_tokens, aborted.budget_tokens
        if aborted.rule is Rule.REFERENCES_OVER_WINDOW:
            limit = self._request.context_window
        if estimate is None or limit is None:
            return ()
        excess = math.ceil(estimate - limit)
        found = [self._shrunk_resident(excess), *map(self._shrunk, self._parts(aborted, excess))]
        return tuple(
            sorted((shrink for shrink in found if shrink is not None), key=lambda shrink: -shrink.tokens)
        )

    def _parts(self, aborted: ContextAborted, excess: int) -> Iterator[tuple[Shrink, range]]:
        conversation = self._state.conversation
        for unit in aborted.largest:
            shrink = Shrink("unit", unit.tokens, unit.tokens - excess, unit.first, unit.history_id)
            yield shrink, range(unit.first, unit.last + 1)
        active = conversation.active_request
        if active is not None and conversation.last is not None:
            for step in conversation.between(active.index, conversation.last.envelope_end):
                shrink = Shrink("message", step.tokens, step.tokens - excess, step.index)
                yield shrink, range(step.index, step.index + 1)

    def _shrunk(self, part: tuple[Shrink, range]) -> Shrink | None:
        shrink, positions = part
        if shrink.to_tokens <= 0:
            return None
        steps = [*self._state.conversation.backwards()][::-1]
        refs = [step.ref for step in steps]
        saved = math.ceil(shrink.tokens - shrink.to_tokens)
        for position in sorted(positions, key=lambda at: -refs[at].tokens):
            less = min(saved, refs[position].tokens)
            refs[position] = structs.replace(refs[position], tokens=refs[position].tokens - less)
            saved -= less
        conversation = Conversation().continued(0, zip(refs, steps, strict=True), self._state.stored)
        return shrink if self._passes(conversation=conversation) else None

    def _shrunk_resident(self, excess: int) -> Shrink | None:
        resident = self._request.resident_tokens
        # What goes out beside it must fit, too; it was not counted where resident input alone is too much.
        if excess >= resident:
            return None
        less = _smallest(excess - 1, lambda saved: self._passes(resident=resident - saved), resident - 1)
        return None if less is None else Shrink("resident", resident, resident - less)

    def _passes(
        self,
        *,
        budget: int | None = None,
        window: int | None = None,
        resident: int | None = None,
        conversation: Conversation | None = None,
    ) -> bool:
        state, request = self._state, self._request
        if budget is not None:
            explicit = state.settings.trim_to_tokens_explicit
            target = state.settings.trim_to_tokens if explicit else default_trim_target(budget)
            settings = replace(state.settings, token_budget=budget, trim_to_tokens=target)
            state = replace(state, settings=settings)
        if window is not None:
            request = replace(request, context_window=window)
        if resident is not None:
            request = replace(request, resident_tokens=resident)
        if conversation is not None:
            state = replace(state, conversation=conversation)
        return isinstance(select(state, request, self._estimator), ContextSelected)


def _smallest(fails: int, passes: Callable[[int], bool], most: int = _UNLIMITED) -> int | None:
    """The smallest number above one that fails, and up to ``most``, that passes; all larger ones do, too."""
    low, high = fails, max(1, fails)
    while not passes(high):
        if high >= most:
            return None
        low, high = high, min(high * 2, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high
