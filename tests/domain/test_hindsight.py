"""Hindsight: what the log says of a call is what was decided, and what the session's state was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.events import (
    AuditInterrupted,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    Rule,
)
from context_paging.domain.hindsight import Fate, Hindsight, look_back
from context_paging.domain.what_if import IncompleteLog

from .hosts import Action, Host, broken_scripts, played, scripts, settings


def calls_of(host: Host) -> list[tuple[list[Event], ContextSelected | ContextAborted, Hindsight]]:
    """For each decided call of a session: the events up to it, its outcome, and the look back."""
    found = []
    for number, event in enumerate(host.events, 1):
        if isinstance(event, ContextSelected | ContextAborted):
            events = host.events[:number]
            found.append((events, event, look_back(events)))
    return found


@given(st.one_of(scripts(), broken_scripts()), settings())
def test_the_window_is_what_went_out(script: list[Action], chosen: Action) -> None:
    for _, outcome, hindsight in calls_of(played(script, chosen)):
        if not hindsight.window or isinstance(outcome, ContextAborted):
            continue
        kept = sum(last - first + 1 for first, last in outcome.kept)
        sent = sum(part.sent for part in hindsight.window)
        assert sent == kept
        tokens = sum(part.sent_tokens for part in hindsight.window)
        counted = outcome.parts.request + outcome.parts.units
        assert tokens == pytest.approx(counted)
        for part in hindsight.window:
            assert (part.fate is Fate.EVICTED) == (part.sent == 0)
            assert (part.fate is Fate.PARTLY_EVICTED) == (0 < part.sent < part.messages)
            assert 0 <= part.sent_tokens <= part.tokens
            assert part.first <= part.last


@given(st.one_of(scripts(), broken_scripts()), settings())
def test_what_an_aborted_call_had_left_is_what_its_numbers_count(
    script: list[Action], chosen: Action
) -> None:
    for _, outcome, hindsight in calls_of(played(script, chosen)):
        if isinstance(outcome, ContextAborted) and hindsight.window and outcome.parts is not None:
            left = sum(p.sent_tokens for p in hindsight.window if p.fate is not Fate.REQUEST)
            if outcome.rule is not Rule.REFERENCES_OVER_WINDOW:
                assert left == pytest.approx(outcome.parts.units)


@given(st.one_of(scripts(), broken_scripts()), settings())
def test_the_life_of_the_frontier_ends_where_the_session_is(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)
    life = look_back(host.events).life

    assert (life[-1].after if life else None) == host.session.state.frontier
    before = None
    for change in life:
        assert change.before == before
        assert change.after != before
        assert change.event is host.events[change.index]
        before = change.after


def test_a_log_with_a_gap_is_not_looked_back_on() -> None:
    for events in ([AuditInterrupted(events=3, reason="x")], [ContextRequested(reused=2, resident_tokens=1)]):
        with pytest.raises(IncompleteLog):
            look_back(events)


def test_without_a_decision_there_is_no_window() -> None:
    assert look_back([]) == Hindsight((), ())
    assert look_back([ContextBypassed(messages=1)]).window == ()
