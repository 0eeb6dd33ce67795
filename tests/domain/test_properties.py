"""What holds for every session, whatever the host does."""

from __future__ import annotations

import copy
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.branch import Branch
from context_paging.domain.conversation import Conversation
from context_paging.domain.decide import decide
from context_paging.domain.entries import digest_entry
from context_paging.domain.errors import SelectionErrorCode
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.events import (
    BranchRefreshed,
    ContextAborted,
    ContextRequested,
    ContextSelected,
    Event,
    Mode,
    StructureRepaired,
)
from context_paging.domain.messages import Message
from context_paging.domain.projection import project
from context_paging.domain.reducers import evolve
from context_paging.domain.state import SessionState, repair_key

from .hosts import Action, Call, broken_scripts, played, repairing, scripts, settings
from .observing import observed, observed_branch, observed_conversation

NORMAL = (Mode.WITHIN_BUDGET, Mode.PAGED)


def folded(events: list[Event]) -> list[SessionState]:
    """The states events lead through, the empty one first."""
    states = [SessionState()]
    for event in events:
        states.append(evolve(states[-1], event))
    return states


def selected(call: Call) -> ContextSelected | None:
    """The selection of a call, if there was one."""
    return call.reply.outcome if isinstance(call.reply.outcome, ContextSelected) else None


@given(scripts(), settings())
def test_the_outgoing_request_is_always_structurally_valid(script: list[Action], chosen: Action) -> None:
    for call in played(script, chosen).calls:
        if selected(call) is not None:
            assert_valid(call.reply.messages)


@given(scripts(), settings())
def test_a_selection_stays_below_its_limit(script: list[Action], chosen: Action) -> None:
    for call in played(script, chosen).calls:
        outcome = selected(call)
        if outcome is None:
            continue
        assert outcome.estimated_tokens >= 0
        if outcome.mode in NORMAL:
            assert outcome.estimated_tokens <= outcome.budget_tokens
        else:
            request = next(event for event in call.reply.events if isinstance(event, ContextRequested))
            assert request.context_window is None or outcome.estimated_tokens <= request.context_window


@given(scripts(), settings())
def test_the_estimate_is_the_sum_of_its_parts(script: list[Action], chosen: Action) -> None:
    for call in played(script, chosen).calls:
        outcome = call.reply.outcome
        if outcome is None or outcome.parts is None or outcome.estimated_tokens is None:
            continue
        parts = outcome.parts
        total = parts.resident + parts.request + parts.units + parts.notice + parts.calibration
        assert abs(max(0, total) - outcome.estimated_tokens) < 1e-6


@given(scripts(), settings())
def test_the_active_request_and_unread_results_go_out(script: list[Action], chosen: Action) -> None:
    for call in played(script, chosen).calls:
        outcome = selected(call)
        if outcome is None:
            continue
        sent = {index for first, last in outcome.kept for index in range(first, last + 1)}
        own = [i for i, message in enumerate(call.outgoing) if not _inserted(message)]
        asked = [i for i in own if call.outgoing[i]["role"] in ("user", "custom")]
        if not asked or outcome.fallback is not None:
            continue
        assert asked[-1] in sent
        # Results are unread as long as the history ends with them; a failed response ends that too.
        if call.newest is call.outgoing[own[-1]] and call.newest["role"] == "toolResult":
            assert own[-1] in sent or _follows_interrupted(call.outgoing, own[-1])


@given(scripts(), settings())
def test_what_left_under_a_frontier_never_comes_back_under_it(script: list[Action], chosen: Action) -> None:
    gone: set[int] = set()
    kept_alive: list[Message] = []
    for call in played(script, chosen).calls:
        outcome = selected(call)
        if outcome is None:
            continue
        if outcome.frontier_before is None or outcome.fallback is not None:
            gone = set()
        sent = {id(message) for message in call.reply.messages}
        replaced = {id(call.outgoing[item.index]) for item in outcome.replaced}
        if outcome.fallback is None:
            assert not gone & sent
        if outcome.cut is not None:
            stored = [message for message in call.outgoing if not _inserted(message)]
            gone |= {id(message) for message in stored} - sent - replaced
            kept_alive += stored


@given(scripts(edits=False), settings())
def test_between_advances_each_request_begins_with_the_one_before(
    script: list[Action], chosen: Action
) -> None:
    for before, call in pairwise(played(script, chosen).calls):
        old, new = selected(before), selected(call)
        if old is None or new is None or not call.plain or old.cut != new.cut:
            continue
        if old.mode in NORMAL and new.mode in NORMAL and old.fallback is None and new.fallback is None:
            earlier, later = before.reply.messages, call.reply.messages
            assert later[: len(earlier)] == earlier


@given(scripts(), settings())
def test_an_abort_leaves_cut_and_calibration_alone(script: list[Action], chosen: Action) -> None:
    events = played(script, chosen).events
    for state, event in zip(folded(events), events, strict=False):
        if isinstance(event, ContextAborted):
            after = evolve(state, event)
            assert (after.cut, after.calibration, after.latest_input) == (
                state.cut,
                state.calibration,
                state.latest_input,
            )


@given(scripts(), settings())
def test_no_object_of_the_host_is_changed(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)
    again = played(copy.deepcopy(script), chosen)

    assert host.entries == again.entries
    for call in host.calls:
        known = {id(message) for message in call.outgoing}
        outcome = selected(call)
        if outcome is None:
            continue
        made = [message for message in call.reply.messages if id(message) not in known]
        assert len(made) == (outcome.notice is not None) + len(outcome.replaced)


@given(scripts(), settings())
def test_the_events_alone_lead_to_the_same_state_and_decisions(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)
    states = folded(host.events)

    assert observed(states[-1]) == observed(host.session.state)
    for number, event in enumerate(host.events):
        for offset, decision in enumerate(decide(states[number + 1], event, HeuristicEstimator()), 1):
            assert host.events[number + offset] == decision


@given(scripts(), settings())
def test_older_states_stay_valid_after_newer_ones_were_made(script: list[Action], chosen: Action) -> None:
    events = played(script, chosen).events
    states = folded(events)
    seen = [observed(state) for state in states]

    for number in reversed(range(len(events))):
        assert observed(evolve(states[number], events[number])) == seen[number + 1]

    assert [observed(state) for state in states] == seen


@given(scripts(), settings())
def test_folding_piece_by_piece_equals_folding_at_once(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)
    stored = host.session.stored
    refs = [digest_entry(entry, HeuristicEstimator(), stored.entries.get) for entry in stored.branch]
    at_once = Branch.empty().changed(0, tuple(refs))
    piecemeal = Branch.empty()
    for number, ref in enumerate(refs):
        piecemeal = piecemeal.changed(number, (ref,))

    assert observed_branch(piecemeal) == observed_branch(at_once)
    state = evolve(host.session.state, BranchRefreshed(kept=0, appended=tuple(refs)))
    assert observed_branch(state.branch) == observed_branch(at_once)
    whole = project(refs)
    assert [whole.message(i) for i in range(whole.length)] == [
        at_once.projection.message(i) for i in range(at_once.projection.length)
    ]


@given(scripts(), settings())
def test_a_request_told_as_a_difference_equals_one_told_whole(script: list[Action], chosen: Action) -> None:
    for state, event in zip(folded(events := played(script, chosen).events), events, strict=False):
        if isinstance(event, ContextRequested):
            after = evolve(state, event)
            refs = [step.ref for step in after.conversation.backwards()][::-1]
            whole = Conversation().followed_by(0, refs, state.stored, 0)
            assert observed_conversation(after.conversation) == observed_conversation(whole)


@given(broken_scripts(), repairing())
def test_a_repaired_request_is_always_valid_and_made_of_the_hosts_messages(
    script: list[Action], chosen: Action
) -> None:
    for call in played(script, chosen).calls:
        aborted = call.reply.aborted
        if aborted is not None:
            assert aborted.code is not SelectionErrorCode.INVALID_MESSAGE_STRUCTURE
            continue
        assert_valid(call.reply.messages)
        outcome = selected(call)
        known = {id(message) for message in call.outgoing}
        made = [message for message in call.reply.messages if id(message) not in known]
        assert outcome is None or len(made) == (outcome.notice is not None) + len(outcome.replaced)


@given(broken_scripts(), repairing())
def test_a_message_that_a_repair_moves_is_still_the_stored_one(script: list[Action], chosen: Action) -> None:
    session = played(script, chosen).session
    session.context()
    state = session.state

    assert not [step.index for step in state.conversation.backwards() if step.outgoing_only]
    slots = [step.slot for step in state.conversation.backwards()]
    stored = [state.branch.projection.message(slot).fingerprint for slot in slots]
    assert stored == [step.ref.fingerprint for step in state.conversation.backwards()]
    assert len(set(slots)) == len(slots)


@given(broken_scripts(), repairing())
def test_a_repair_is_told_once(script: list[Action], chosen: Action) -> None:
    events = played(script, chosen).events
    repairs = [event for event in events if isinstance(event, StructureRepaired)]
    keys = [repair_key(event) for event in repairs if event.entry_ids]

    assert len(set(keys)) == len(keys)


@given(broken_scripts(), repairing())
def test_repairs_too_follow_from_the_events_alone_and_leave_older_states_valid(
    script: list[Action], chosen: Action
) -> None:
    host = played(script, chosen)
    states = folded(host.events)
    seen = [observed(state) for state in states]

    assert seen[-1] == observed(host.session.state)
    for number in reversed(range(len(host.events))):
        assert observed(evolve(states[number], host.events[number])) == seen[number + 1]
    assert [observed(state) for state in states] == seen


@given(broken_scripts(), st.sampled_from([None, "repair"]))
def test_the_strict_policy_never_crashes_and_a_change_of_policy_is_a_new_beginning(
    script: list[Action], policy: str | None
) -> None:
    other = {None: "repair", "repair": None}[policy]
    host = played(script, {"contextPaging": {"onInvalidStructure": policy}})
    host.session.start("reload", global_settings={"contextPaging": {"onInvalidStructure": other}})
    fresh = played([], {"contextPaging": {"onInvalidStructure": other}}).session
    fresh.append(list(host.session.stored.entries.values()))
    fresh.navigate(host.session.stored.leaf_id)

    changed, new = host.session.context(), fresh.context()

    assert (changed.aborted is None) == (new.aborted is None)
    if changed.aborted is None:
        assert changed.messages == new.messages


@given(scripts(), settings())
def test_a_new_process_begins_without_cut_and_calibration(script: list[Action], chosen: Action) -> None:
    host = played(script, chosen)
    fresh = played([], chosen).session
    fresh.append(list(host.session.stored.entries.values()))

    reply = fresh.context()

    if isinstance(reply.outcome, ContextSelected | ContextAborted):
        assert reply.outcome.frontier_before is None
    assert fresh.state.calibration.anchor is None


def assert_valid(messages: list[Message]) -> None:
    """Every tool call has exactly one result right behind its assistant message, and no result is astray."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "toolResult":
            assert message["toolCallId"] in open_calls
            open_calls.remove(message["toolCallId"])
            continue
        assert not open_calls
        if message["role"] == "assistant":
            assert message["stopReason"] not in ("aborted", "error")
            calls = [block["id"] for block in message["content"] if block["type"] == "toolCall"]
            open_calls = set(calls)
            assert len(open_calls) == len(calls)
    assert not open_calls


def _inserted(message: Message) -> bool:
    return message["role"] == "user" and str(message["content"]).startswith("instruction")


def _follows_interrupted(messages: list[Message], index: int) -> bool:
    while messages[index]["role"] == "toolResult":
        index -= 1
    return bool(messages[index].get("stopReason") in ("aborted", "error"))
