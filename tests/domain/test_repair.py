"""The repair policy: whatever is broken, what goes out is valid, in order, and nothing but the host's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.conversation import Conversation
from context_paging.domain.entries import EntryRef
from context_paging.domain.events import ContextAborted, ContextSelected, StructureRepaired
from context_paging.domain.history import History
from context_paging.domain.messages import MessageRef, ToolCall
from context_paging.domain.repair import OnInvalidStructure, RepairKind, repair
from context_paging.domain.repaired_request import RepairedRequest

from ..golden.script import Script

CALLS = ("a", "b", "c")
RESULT: dict[str, Any] = {"result": "x", "size": 5}


def message(specification: tuple[str, Any], number: int) -> MessageRef:
    """A message: ``assistant`` or ``failed`` with calls, ``result`` of a call, or any other role."""
    role, value = specification
    fingerprint = number.to_bytes(32, "big")
    match role:
        case "assistant" | "failed":
            calls = tuple(ToolCall(call, "read") for call in value)
            stop = "error" if role == "failed" else "toolUse"
            return MessageRef("assistant", number, fingerprint, 1, calls=calls, stop_reason=stop)
        case "result":
            return MessageRef("toolResult", number, fingerprint, 1, call_id=value)
        case _:
            return MessageRef(role, number, fingerprint, 1)


def messages(*specifications: tuple[str, Any]) -> list[MessageRef]:
    """Messages, numbered."""
    return [message(specification, number) for number, specification in enumerate(specifications)]


def repaired(refs: list[MessageRef]) -> list[MessageRef]:
    """What goes on to selection."""
    return changed(RepairedRequest.empty().followed_by(0, refs))


def changed(request: RepairedRequest) -> list[MessageRef]:
    """What a request has behind its unchanged messages."""
    return [ref for ref, _ in request.changed()]


def numbers(refs: list[MessageRef]) -> list[Any]:
    """The messages by the numbers they were made with."""
    return [ref.timestamp for ref in refs]


specifications = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["user", "custom", "bashExecution"]), st.none()),
        st.tuples(
            st.sampled_from(["assistant", "assistant", "failed"]),
            st.lists(st.sampled_from(CALLS), max_size=3).map(tuple),
        ),
        st.tuples(st.just("result"), st.sampled_from(CALLS)),
    ),
    max_size=30,
)


@given(specifications)
def test_what_is_repaired_is_valid(given_messages: list[tuple[str, Any]]) -> None:
    conversation = Conversation().followed_by(0, repaired(messages(*given_messages)), None, 0)

    assert conversation.valid


@given(specifications)
def test_a_repair_leaves_out_and_moves_and_makes_nothing_up(given_messages: list[tuple[str, Any]]) -> None:
    refs = messages(*given_messages)
    left = repaired(refs)

    assert len(set(numbers(left))) == len(left)
    assert set(numbers(left)) <= set(numbers(refs))
    others = [ref for ref in refs if ref.role not in ("assistant", "toolResult")]
    assert [ref for ref in left if ref.role not in ("assistant", "toolResult")] == others


@given(specifications)
def test_valid_messages_with_results_in_call_order_stay_as_they_are(
    given_messages: list[tuple[str, Any]],
) -> None:
    left = repaired(messages(*given_messages))
    again = RepairedRequest.empty().followed_by(0, left)

    assert changed(again) == left
    assert not again.repairs


@given(specifications, st.data())
def test_a_request_that_grew_is_what_it_would_be_at_once(
    given_messages: list[tuple[str, Any]], data: st.DataObject
) -> None:
    refs = messages(*given_messages)
    request, taken, kept = RepairedRequest.empty(), 0, list[MessageRef]()
    for _ in range(data.draw(st.integers(1, 12))):
        # Now and then the host goes back to an earlier message.
        reused = data.draw(st.integers(0, taken)) if data.draw(st.booleans()) else taken
        taken = data.draw(st.integers(reused, len(refs)))
        older, before = request, numbers(kept)
        request = request.followed_by(reused, refs[reused:taken])
        kept = [*kept[: request.unchanged], *changed(request)]
        assert kept == repaired(refs[:taken])
        assert numbers(kept)[: request.unchanged] == before[: request.unchanged]
        assert [older.message(n) for n in range(older.length)] == refs[: older.length]


@given(specifications)
def test_a_closed_exchange_never_changes_again(given_messages: list[tuple[str, Any]]) -> None:
    refs = messages(*given_messages)
    for length in range(len(refs)):
        if refs[length].role != "assistant":
            continue
        before = numbers(repaired(refs[:length]))
        assert numbers(repaired(refs))[: len(before)] == before


@given(specifications, st.lists(st.integers(0, 30), max_size=4))
def test_the_history_is_repaired_like_the_request(
    given_messages: list[tuple[str, Any]], breaks: list[int]
) -> None:
    refs = [ref for ref in messages(*given_messages) if ref.role in ("user", "assistant", "toolResult")]
    entries = [EntryRef(f"e{ref.timestamp}", "message", ref) for ref in refs]
    history = History.empty(OnInvalidStructure.REPAIR)
    for start, end in zip([0, *sorted(breaks)], [*sorted(breaks), len(entries)], strict=True):
        history = history.appended(entries[start:end])
    at_once = History.empty(OnInvalidStructure.REPAIR).appended(entries)

    assert list(history.items) == list(at_once.items)
    sent = numbers(repaired(refs))
    turns = [item for item in history.items if item.kind == "modelTurn"]
    for item in turns:
        if not item.abandoned:
            at = sent.index(item.message.timestamp)
            results = [result.timestamp for result in item.results]
            assert sent[at + 1 : at + 1 + len(results)] == results
    shown = {ref.timestamp for item in history.items for ref in (item.message, *item.results)}
    newest = next((n for n in range(len(refs) - 1, -1, -1) if refs[n].role == "assistant"), len(refs))
    # Of the newest exchange, what it lacks may still come; all else can be reached.
    assert {ref.timestamp for ref in refs[:newest]} <= shown


@pytest.mark.parametrize(
    ("given_messages", "order", "kinds"),
    [
        ([("user", None), ("result", "a"), ("user", None)], [0, 2], [RepairKind.ORPHAN_RESULT]),
        (
            [("assistant", "a"), ("result", "a"), ("result", "a"), ("user", None)],
            [0, 2, 3],
            [RepairKind.SUPERSEDED_RESULT],
        ),
        (
            [("user", None), ("assistant", "a"), ("user", None), ("assistant", "")],
            [0, 2, 3],
            [RepairKind.INCOMPLETE_EXCHANGE],
        ),
        (
            [("assistant", "aa"), ("result", "a"), ("result", "a"), ("user", None)],
            [3],
            [RepairKind.SUPERSEDED_RESULT, RepairKind.REPEATED_CALL_ID],
        ),
        (
            [("assistant", "ab"), ("result", "b"), ("result", "a"), ("assistant", "")],
            [0, 2, 1, 3],
            [RepairKind.RESULTS_REORDERED],
        ),
        (
            [("assistant", "ab"), ("result", "a"), ("custom", None), ("result", "b"), ("user", None)],
            [0, 1, 3, 2, 4],
            [RepairKind.MESSAGES_MOVED],
        ),
        ([("failed", "ab"), ("custom", None), ("result", "a")], [0, 2, 1], [RepairKind.MESSAGES_MOVED]),
    ],
    ids=["orphan", "superseded", "incomplete", "repeated id", "reordered", "moved", "moved, interrupted"],
)
def test_each_kind_of_repair(
    given_messages: list[tuple[str, Any]], order: list[int], kinds: list[RepairKind]
) -> None:
    request = RepairedRequest.empty().followed_by(0, messages(*given_messages))

    assert numbers(changed(request)) == order
    assert [done.kind for done in request.repairs] == kinds


def test_a_stretch_is_repaired_without_regard_to_what_follows() -> None:
    refs = messages(("assistant", "ab"), ("result", "a"), ("custom", None))

    assert repair(refs).order == (2,)
    assert repair([*refs, message(("result", "b"), 3)]).order == (0, 1, 3, 2)


def test_an_added_call_never_goes_out_without_its_stored_result() -> None:
    script = Script()
    script.play({"started": {"tokenBudget": 150, "onInvalidStructure": "repair"}})
    stored = [
        {"user": 5},
        {"assistant": 5, "calls": ["x"]},
        {"result": "x", "size": 80},
        {"assistant": 5, "calls": ["y"]},
        {"result": "y", "size": 5},
    ]
    script.play({"stored": stored})
    added = [{"user": 1, "at": 1}, {"assistant": 60, "calls": ["x"], "at": 2}]
    outcome = script.play({"requested": {"without": [1], "added": added}})[-1]

    assert isinstance(outcome, ContextSelected)
    assert outcome.kept == ((0, 1), (4, 5))


def test_a_stored_exchange_that_a_change_of_policy_repairs_is_told_once() -> None:
    script = Script()
    script.play({"started": {"tokenBudget": 400}})
    script.play({"stored": [{"user": 5}, {"result": "x", "size": 5}]})
    script.play({"requested": {}})
    happened = script.play({"started": {"tokenBudget": 400, "onInvalidStructure": "repair"}})

    told = [event for event in happened if isinstance(event, StructureRepaired)]
    assert [(repair.entry_ids, repair.unstored) for repair in told] == [(("e1",), 0)]


def test_a_refusal_names_the_added_call_that_a_stored_result_follows() -> None:
    script = Script()
    script.play({"started": {"tokenBudget": 400}})
    script.play({"stored": [{"user": 5}, {"assistant": 5}, {"assistant": 5, "calls": ["x"]}, RESULT]})
    added = [{"assistant": 6, "calls": ["x"], "at": 2}, {"user": 5, "at": 4}]
    outcome = script.play({"requested": {"without": [2], "added": added}})[-1]

    assert isinstance(outcome, ContextAborted)
    assert "(outgoing message 2, only in this request)" in outcome.message


def test_an_added_call_keeps_its_stored_result_in_a_turn_that_was_cut_while_it_was_active() -> None:
    script = Script()
    script.play({"started": {"tokenBudget": 250, "trimToTokens": 240, "onInvalidStructure": "repair"}})
    stored = [
        {"user": 5},
        {"assistant": 5, "calls": ["a"]},
        {"result": "a", "size": 300},
        {"assistant": 5, "calls": ["x"]},
        {"result": "x", "size": 5},
        {"assistant": 5},
    ]
    script.play({"stored": stored})
    requested = {"requested": {"without": [3], "added": [{"assistant": 6, "calls": ["x"], "at": 3}]}}
    cut = script.play(requested)[-1]
    assert isinstance(cut, ContextSelected)
    assert cut.cut is not None
    assert cut.kept == ((0, 0), (3, 5))

    script.play({"stored": [{"user": 5}]})
    later = script.play(requested)[-1]

    assert isinstance(later, ContextSelected)
    assert later.kept == ((0, 0), (3, 6))


def test_a_refusal_names_the_call_whose_results_are_not_all_there() -> None:
    script = Script()
    script.play({"started": {"tokenBudget": 400}})
    script.play({"stored": [{"user": 5}, {"assistant": 5, "calls": ["x", "y"]}, RESULT]})
    outcome = script.play({"requested": {}})[-1]

    assert isinstance(outcome, ContextAborted)
    assert outcome.message.startswith("A tool call has no result yet (outgoing message 1, entry e1).")
