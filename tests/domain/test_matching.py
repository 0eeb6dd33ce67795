"""Outgoing messages are told from stored ones at the least cost, whatever happens between two requests."""

from __future__ import annotations

from typing import Any

import pytest

from context_paging.domain.conversation import Conversation
from context_paging.domain.events import ContextRequested
from context_paging.domain.reducers import evolve
from context_paging.domain.repaired_request import RepairedRequest
from context_paging.domain.state import SessionState

from ..golden.script import Script
from .observing import observed_conversation

POLICIES = ["abort", "repair"]
OMITTED = {"assistant": 10, "time": 1, "at": 1}
"""The second stored message, as the host still passes it once an edit has omitted it."""


def played(policy: str, *steps: dict[str, Any]) -> SessionState:
    """The state after a request of three stored messages, and further steps."""
    script = Script()
    script.play({"started": {"tokenBudget": 400, "onInvalidStructure": policy}})
    script.play({"stored": [{"user": 10}, {"assistant": 10}, {"user": 10}]})
    script.play_all(({"requested": {}}, *steps))
    return script.state


def host(state: SessionState) -> Conversation:
    """The host's messages of the last request."""
    return state.conversation if state.request is None else state.request.host


def at_once(state: SessionState) -> Conversation:
    """The same, matched without any request before."""
    refs = [state.requested(position) for position in range(state.request_length)]
    return Conversation().followed_by(0, refs, state.stored, 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("later", [[], [[{"user": 10}]], [[{"user": 10}], [{"user": 10}]]])
def test_a_message_that_is_not_stored_any_more_counts_as_added(policy: str, later: list[Any]) -> None:
    stored = [{"stored": entries} for entries in [[{"omit": "e1"}], *later]]
    state = played(policy, *stored, {"requested": {"added": [OMITTED]}})

    assert [step.index for step in state.conversation.unstored()] == [1]
    assert observed_conversation(host(state)) == observed_conversation(at_once(state))


@pytest.mark.parametrize("policy", POLICIES)
def test_only_the_first_request_after_an_edit_is_matched_again(policy: str) -> None:
    edited: list[dict[str, Any]] = [
        {"stored": [{"omit": "e1"}, {"user": 10}]},
        {"requested": {"added": [OMITTED]}},
    ]
    further: list[dict[str, Any]] = [{"stored": [{"user": 10}]}, {"requested": {"added": [OMITTED]}}]

    assert host(played(policy, *edited)).shared <= 1
    assert host(played(policy, *edited, *further)).shared == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_request_that_only_grew_shares_all_of_the_one_before(policy: str) -> None:
    state = played(policy, {"stored": [{"assistant": 10}]}, {"requested": {}})

    assert host(state).shared == 3


@pytest.mark.parametrize(("policy", "other"), [POLICIES, POLICIES[::-1]])
def test_after_a_change_of_policy_a_host_goes_on_with_the_request_it_had(policy: str, other: str) -> None:
    script = Script()
    script.play({"started": {"tokenBudget": 400, "onInvalidStructure": policy}})
    broken = [{"user": 10}, {"assistant": 10, "calls": ["x"]}, {"user": 10}, {"assistant": 10}]
    script.play({"stored": broken})
    script.play({"requested": {}})
    before = [script.state.requested(position) for position in range(4)]
    script.play({"started": {"tokenBudget": 400, "onInvalidStructure": other}})
    state = script.state

    assert [state.requested(position) for position in range(state.request_length)] == before
    again = evolve(state, ContextRequested(reused=4, resident_tokens=10))
    assert observed_conversation(host(again)) == observed_conversation(at_once(again))
    if again.request is not None:
        new = RepairedRequest.empty().followed_by(0, before, again.stored)
        conversation = Conversation().continued(0, new.changed(), again.stored)
        assert observed_conversation(again.conversation) == observed_conversation(conversation)
