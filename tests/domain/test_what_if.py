"""What-if: the same settings decide the same, others decide as they would have, and savings hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.errors import SelectionErrorCode
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.events import (
    AuditInterrupted,
    ContextAborted,
    ContextBypassed,
    ContextRequested,
    ContextSelected,
    Event,
    Rule,
)
from context_paging.domain.repair import OnInvalidStructure
from context_paging.domain.what_if import Change, IncompleteLog, Reconsideration, reconsider, savings

from .hosts import Action, Host, broken_scripts, played, scripts, settings

ESTIMATOR = HeuristicEstimator()
OUTCOMES = (ContextSelected, ContextAborted, ContextBypassed)


@given(st.one_of(scripts(), broken_scripts()), settings())
def test_without_a_change_every_call_is_decided_as_it_was(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)

    calls = list(reconsider(host.events, Change(), ESTIMATOR))

    assert [call.before for call in calls] == [event for event in host.events if isinstance(event, OUTCOMES)]
    assert [call.after for call in calls] == [call.before for call in calls]


@given(scripts(), settings(), st.sampled_from([400, 5_000]))
def test_with_another_budget_calls_are_decided_as_a_host_with_it_would_have_seen(
    script: list[Action], chosen: Action, budget: int
) -> None:
    host = played(script, chosen)
    # Turns that ended are the same in both, so only what the budget decides differs.
    changed = {"contextPaging": {**chosen["contextPaging"], "tokenBudget": budget}}
    other = played(script, changed)

    calls = list(reconsider(host.events, Change(token_budget=budget), ESTIMATOR))

    assert [call.after for call in calls] == [event for event in other.events if isinstance(event, OUTCOMES)]


@given(broken_scripts(), settings())
def test_with_repair_no_call_is_aborted_for_its_structure(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)

    for call in reconsider(host.events, Change(on_invalid_structure=OnInvalidStructure.REPAIR), ESTIMATOR):
        if isinstance(call.after, ContextAborted):
            assert call.after.code is not SelectionErrorCode.INVALID_MESSAGE_STRUCTURE


@given(st.one_of(scripts(), broken_scripts()), settings())
def test_what_would_have_saved_a_call_does(script: list[Action], chosen: Action) -> None:
    events = played(script, chosen).events
    at = [number for number, event in enumerate(events) if isinstance(event, ContextAborted)]
    for number in at[:2]:
        upto = events[: number + 1]
        saved = savings(upto, ESTIMATOR)
        if saved.budget is not None:
            assert isinstance(decided_with(upto, budget=saved.budget), ContextSelected)
            assert isinstance(decided_with(upto, budget=saved.budget - 1), ContextAborted)
        if saved.window is not None:
            assert isinstance(decided_with(upto, window=saved.window), ContextSelected)
            assert isinstance(decided_with(upto, window=saved.window - 1), ContextAborted)
        for shrink in saved.shrinks:
            assert 0 < shrink.to_tokens < shrink.tokens


def decided_with(events: list[Event], budget: int | None = None, window: int | None = None) -> Any:
    """The last request decided with another budget or window, in the state it met."""
    at = max(number for number, event in enumerate(events) if isinstance(event, ContextRequested))
    again = Reconsideration(Change(), ESTIMATOR)
    for event in events[:at]:
        again.take(event)
    request = events[at]
    assert isinstance(request, ContextRequested)
    if budget is not None:
        chosen = again.state.settings
        target = chosen.trim_to_tokens if chosen.trim_to_tokens_explicit else max(1, budget * 5 // 8)
        again.state = replace(
            again.state, settings=replace(chosen, token_budget=budget, trim_to_tokens=target)
        )
    if window is not None:
        request = replace(request, context_window=window)
    return again.take(request)


def small(text: str, **options: Any) -> tuple[Host, ContextAborted]:
    """A host with a budget of 200 whose only request is too large, and the abort."""
    host = played([], {"contextPaging": {"tokenBudget": 200}})
    host.session.append(
        [{"type": "message", "id": "e", "parentId": None, "message": {"role": "user", "content": text}}]
    )
    reply = host.session.context(**options)
    host.events.extend(reply.events)
    assert reply.aborted is not None
    return host, reply.aborted


def test_a_request_that_is_too_long_can_be_shortened() -> None:
    host, aborted = small("word" * 300)
    saved = savings(host.events, ESTIMATOR)

    assert aborted.rule is Rule.REQUEST_OVER_BUDGET
    assert saved.budget == aborted.estimated_tokens
    (shrink,) = saved.shrinks
    assert (shrink.part, shrink.tokens, shrink.position) == ("message", 300, 0)
    assert shrink.to_tokens == 200 - 1
    shorter, _ = small("word" * 300)
    shorter.session.append(
        [
            {
                "type": "message",
                "id": "f",
                "parentId": None,
                "message": {"role": "user", "content": "word" * int(shrink.to_tokens)},
            }
        ]
    )
    assert shorter.session.context().aborted is None


def test_resident_input_that_is_too_long_can_be_shortened() -> None:
    host, _ = small("go", system_prompt="word" * 400)
    saved = savings(host.events, ESTIMATOR)

    assert saved.budget == 401 + 1
    assert [(shrink.part, shrink.tokens) for shrink in saved.shrinks] == [("resident", 401)]
    # What must go out beside it has to fit, too.
    assert saved.shrinks[0].to_tokens == 199


def test_a_window_that_is_too_small_is_told_apart_from_the_budget() -> None:
    host, _ = small("word" * 150, context_window=100)
    saved = savings(host.events, ESTIMATOR)

    assert saved.budget is None
    assert saved.window == 151


def test_a_gap_in_the_log_ends_what_can_be_told() -> None:
    host = played([], {"contextPaging": {}})
    host.events.extend(host.session.context().events)
    calls = reconsider([*host.events, AuditInterrupted(events=3, reason="full")], Change(), ESTIMATOR)

    assert next(calls).number == 1
    with pytest.raises(IncompleteLog, match="3 events are missing"):
        next(calls)
