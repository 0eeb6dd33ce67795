"""Host events twice, too early, or in the wrong order: a typed error or nothing, and nothing is lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_paging.domain.errors import ContextPagingError, InvalidEntry
from context_paging.service.session import Session

Entry = dict[str, Any]


def said(entry_id: str, parent: str | None, text: str = "hello") -> Entry:
    """A stored user message."""
    message = {"role": "user", "content": text, "timestamp": int(entry_id, 36)}
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "", "message": message}


def answered(entry_id: str, parent: str | None, *calls: str) -> Entry:
    """A stored response."""
    blocks = [{"type": "toolCall", "id": call, "name": "read", "arguments": {}} for call in calls]
    message = {
        "role": "assistant",
        "content": blocks,
        "stopReason": "stop",
        "timestamp": int(entry_id, 36),
        "usage": {"input": 90, "output": 10},
    }
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "", "message": message}


def result(entry_id: str, parent: str | None, call: str) -> Entry:
    """A stored tool result."""
    message = {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": "read",
        "content": [{"type": "text", "text": "line"}],
        "timestamp": int(entry_id, 36),
    }
    return {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "", "message": message}


CONVERSATION = [
    said("a", None),
    answered("b", "a", "c1", "c2"),
    result("c", "b", "c2"),
    result("d", "c", "c1"),
    answered("e", "d"),
    said("f", "e"),
]


@pytest.fixture
def session() -> Session:
    """A started session."""
    started = Session("s")
    started.start()
    return started


def texts(session: Session) -> list[Any]:
    """What goes out."""
    return session.context().messages


def test_entries_that_come_twice_count_once(session: Session) -> None:
    session.append(CONVERSATION)
    once = texts(session)
    session.append(copy.deepcopy(CONVERSATION))

    assert texts(session) == once
    assert len(session.stored.entries) == len(CONVERSATION)


def test_an_older_entry_that_comes_again_is_the_leaf_as_it_says(session: Session) -> None:
    session.append(CONVERSATION)
    session.append([CONVERSATION[4]])

    assert session.stored.leaf_id == "e"
    session.append([CONVERSATION[5]])
    assert texts(session) == [entry["message"] for entry in CONVERSATION]


def test_a_child_before_its_parent_is_in_its_place_once_the_parent_is_there(session: Session) -> None:
    session.append(reversed(CONVERSATION))
    session.navigate("f")

    assert texts(session) == [entry["message"] for entry in CONVERSATION]


@given(st.permutations(CONVERSATION))
def test_entries_in_any_order_make_the_same_conversation(entries: list[Entry]) -> None:
    session = Session("s")
    session.start()
    for entry in entries:
        session.append([entry])
        session.context()
    session.navigate("f")

    assert texts(session) == [entry["message"] for entry in CONVERSATION]


def test_a_turn_that_ends_twice_is_measured_once(session: Session) -> None:
    session.append(CONVERSATION[:1])
    session.context()
    session.append([answered("b", "a")])
    session.turn_end("b")
    state = session.state
    session.turn_end("b")

    assert session.state.calibration == state.calibration
    assert session.state.latest_input == state.latest_input


def test_a_turn_that_ends_before_its_response_is_stored_is_a_typed_error(session: Session) -> None:
    session.append(CONVERSATION[:1])
    session.context()
    before = session.state

    with pytest.raises(InvalidEntry, match="'b'"):
        session.turn_end("b")

    assert session.state == before
    session.append([CONVERSATION[1]])
    session.turn_end("b")


def test_a_turn_that_ended_on_another_branch_changes_no_cut(session: Session) -> None:
    session.append(CONVERSATION)
    session.navigate("a")
    session.append([answered("z", "a")])
    cut = session.state.cut
    session.turn_end("e")

    assert session.state.cut == cut
    assert [message["role"] for message in texts(session)] == ["user", "assistant"]


def test_a_compaction_that_nobody_announced_is_one(session: Session) -> None:
    session.append(CONVERSATION)
    kept = {"type": "compaction", "id": "k", "parentId": "f", "summary": "so far", "firstKeptEntryId": "f"}
    session.append([{**kept, "tokensBefore": 1, "timestamp": ""}])
    session.compacted("k")
    session.compacted("k")
    session.compacted("never stored")

    assert [message["role"] for message in texts(session)] == ["compactionSummary", "user"]


def test_a_session_that_starts_twice_keeps_what_is_stored(session: Session) -> None:
    session.append(CONVERSATION)
    before = texts(session)
    session.start("resume")
    session.start("resume")

    assert texts(session) == before


def test_results_before_their_calls_are_told_and_lost_to_nobody(session: Session) -> None:
    session.append([said("a", None), result("c", "a", "c1"), answered("b", "c", "c1")])
    reply = session.context()

    assert reply.aborted is not None
    assert reply.aborted.code == "INVALID_MESSAGE_STRUCTURE"
    assert len(session.stored.messages()) == 3
    session.navigate("a")
    assert session.context().messages


def test_callbacks_before_the_start_are_taken() -> None:
    session = Session("early")
    session.append(CONVERSATION)
    session.turn_end("b")
    session.navigate("f")

    assert len(session.context().messages) == len(CONVERSATION)


IDS = st.sampled_from([*"abcdefgz", "", "none"])
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.just({}),
)
ENTRIES = st.one_of(
    st.sampled_from(CONVERSATION),
    st.builds(said, st.sampled_from("abz"), st.none() | st.sampled_from("abcz")),
    st.builds(answered, st.sampled_from("bez"), st.sampled_from("az"), st.sampled_from(["c1", "c2"])),
    st.builds(result, st.sampled_from("cdz"), st.sampled_from("be"), st.sampled_from(["c1", "c3"])),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["compaction", "context_edit", "branch_summary", "custom_message", "message"]
            )
        },
        optional={
            "id": st.sampled_from("klmn"),
            "parentId": ANYTHING | IDS,
            "targetId": ANYTHING | IDS,
            "replacement": ANYTHING | st.just({"content": "edited"}),
            "summary": ANYTHING,
            "content": ANYTHING,
            "firstKeptEntryId": ANYTHING | IDS,
            "message": ANYTHING | st.just({"role": "user"}) | st.just({"role": "assistant", "content": "x"}),
            "timestamp": ANYTHING,
        },
    ),
    ANYTHING,
)
CALLS = st.one_of(
    st.tuples(st.just("append"), st.lists(ENTRIES, max_size=4)),
    st.tuples(st.just("turn_end"), IDS | st.none()),
    st.tuples(st.just("navigate"), IDS | st.none()),
    st.tuples(st.just("compacted"), IDS | st.none()),
    st.tuples(st.just("before_compaction"), st.sampled_from(["manual", "threshold", "other"])),
    st.tuples(st.just("command"), st.sampled_from(["on", "off", "stats", "what"])),
    st.tuples(st.just("start"), st.sampled_from(["new", "resume"])),
    st.tuples(
        st.just("context"),
        st.none() | st.lists(st.builds(lambda e: e["message"], st.sampled_from(CONVERSATION))),
    ),
    st.tuples(st.just("shut_down")),
)


@settings(max_examples=300)
@given(st.lists(CALLS, max_size=30))
def test_whatever_comes_in_whatever_order_nothing_else_than_typed_errors(calls: list[Any]) -> None:
    session = Session("disorder")
    stored: dict[str, Any] = {}
    for name, *arguments in calls:
        before = session.state, session.sequence
        known = dict(session.stored.entries)
        try:
            getattr(session, name)(*arguments)
        except ContextPagingError:
            assert (session.state, session.sequence) == before
        stored = dict(session.stored.entries)
        assert known.items() <= stored.items()
    session.statistics()
    for entry in CONVERSATION:
        if stored.get(entry["id"]) == entry:
            session.navigate(entry["id"])
            assert session.stored.branch[-1] == entry
