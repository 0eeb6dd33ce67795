"""A host's conversation as a session: what is new is taken in, and what was changed branches off."""

from __future__ import annotations

import copy
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from context_paging.domain.events import ContextSelected
from context_paging.service.hosts.conversation import HostConversation
from context_paging.service.hosts.conversations import Conversations
from context_paging.service.hosts.conversion import InvalidHostMessage
from context_paging.service.hosts.openai_chat import ChatConverter, OpenAIChat
from context_paging.service.log import EventLog, LogOptions, LogUnavailable
from context_paging.service.paging import ContextPaging, PagingSettings
from context_paging.service.replies import ContextAbortedError
from context_paging.service.session import Session

SMALL = PagingSettings(token_budget=1_000)


def turn(number: int, size: int = 60) -> list[Any]:
    """A question, a call, its result, an answer."""
    call: Any = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"text {number} " * size},
        {"role": "assistant", "content": f"answer {number}"},
    ]


def turns(count: int) -> list[Any]:
    """Several turns, and a further question."""
    return [*(message for n in range(count) for message in turn(n)), {"role": "user", "content": "and?"}]


def chat(paging: ContextPaging | None = None) -> OpenAIChat:
    """A conversation with a small budget."""
    return OpenAIChat(paging or ContextPaging(settings=SMALL), "s", recovery_tools=False)


def stored(paged: OpenAIChat) -> int:
    """How many messages were taken in so far, those on other branches too."""
    return len(paged.conversation.session.stored.entries)


def test_only_what_is_new_is_taken_in_however_the_list_comes() -> None:
    paged, messages = chat(), turns(9)
    paged.page(messages[:-5])

    for further in (messages[:-5], copy.deepcopy(messages[:-5]), tuple(messages[:-5])):
        paged.page(further)
        assert stored(paged) == len(messages) - 5
    paged.page(copy.deepcopy(messages))
    assert stored(paged) == len(messages)


def test_the_newest_objects_go_out() -> None:
    paged, messages = chat(), turns(1)
    paged.page(messages)
    again = copy.deepcopy(messages)

    request = paged.page(again)

    assert all(one is other for one, other in zip(request.messages, again, strict=True))


def test_a_change_behind_the_cut_keeps_the_cut_and_one_before_it_does_not() -> None:
    paged, messages = chat(), turns(12)
    first = paged.page(messages).reply.outcome
    assert isinstance(first, ContextSelected)
    assert first.notice is not None

    behind = [*messages[:-1], {"role": "user", "content": "or rather?"}]
    kept = paged.page(behind).reply.outcome
    before = [{"role": "user", "content": "another beginning"}, *messages[1:]]
    moved = paged.page(before).reply.outcome

    assert isinstance(kept, ContextSelected)
    assert isinstance(moved, ContextSelected)
    assert kept.notice == first.notice
    assert moved.notice != first.notice


def test_instructions_that_change_with_each_call_leave_the_cut_where_it_is() -> None:
    paged, messages = chat(), turns(12)
    notices = set()
    for number in range(6):
        clock = {"role": "system", "content": f"It is {number} o'clock."}
        request = paged.page([clock, *messages])
        assert request.messages[0] is clock
        notices.add(request.messages[1]["content"])

    assert len(notices) == 1
    assert stored(paged) == len(messages)


def test_instructions_between_a_call_and_its_result_are_no_valid_request() -> None:
    messages = [*turn(1)[:2], {"role": "developer", "content": "Be quick."}, *turn(1)[2:]]
    with pytest.raises(ContextAbortedError, match="onInvalidStructure"):
        chat().page([*messages, {"role": "user", "content": "and?"}])

    repaired = PagingSettings(token_budget=1_000, on_invalid_structure="repair")
    sent = (
        chat(ContextPaging(settings=repaired)).page([*messages, {"role": "user", "content": "and?"}]).messages
    )

    assert [message["role"] for message in sent] == [
        "user",
        "assistant",
        "tool",
        "developer",
        "assistant",
        "user",
    ]


def test_messages_of_one_call_alone_go_out_last_and_leave_the_window_as_it_is() -> None:
    paged, messages = chat(), turns(12)
    notices = set()
    for number in range(3):
        reminder = {"role": "user", "content": f"It is {number} o'clock."}
        request = paged.page(messages, transient=[reminder])
        assert request.messages[-1] is reminder
        notices.add(request.messages[0]["content"])
        messages = [*messages, {"role": "assistant", "content": "so"}, {"role": "user", "content": "go on"}]

    assert len(notices) == 1
    assert not any("o'clock" in str(m) for m in paged.conversation.session.stored.messages())


def test_a_response_that_was_told_is_not_taken_in_again_when_it_comes_in_the_list() -> None:
    paged, messages = chat(), turns(1)
    paged.page(messages)
    usage = {"prompt_tokens": 500, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 100}}
    said = paged.responded(
        {"choices": [{"message": {"role": "assistant", "content": "yes"}}], "usage": usage}
    )

    paged.page([*messages, dict(said), {"role": "user", "content": "why?"}])

    assert stored(paged) == len(messages) + 2
    anchor = paged.conversation.session.state.calibration.anchor
    assert anchor is not None
    assert anchor.reported_tokens == 505


def test_a_usage_without_input_is_none() -> None:
    paged, messages = chat(), turns(1)
    paged.page(messages)
    usage = {"prompt_tokens": 0, "completion_tokens": 5, "prompt_tokens_details": None}
    answer = {"role": "assistant", "content": "yes"}
    paged.responded({"choices": [{"message": answer}], "usage": usage})

    assert paged.conversation.session.state.calibration.anchor is None
    outcome = paged.page([*turns(12)[:-1], answer, {"role": "user", "content": "why?"}]).reply.outcome
    assert isinstance(outcome, ContextSelected)
    assert outcome.notice is not None


def test_a_message_that_cannot_be_read_changes_nothing() -> None:
    paged, messages = chat(), turns(2)
    paged.page(messages)

    with pytest.raises(InvalidHostMessage, match="'alien'"):
        paged.page([*messages[:3], {"role": "alien", "content": "hi"}])
    paged.page(messages)
    assert stored(paged) == len(messages)


def test_texts_that_are_all_the_same_can_still_be_told_apart() -> None:
    paged = OpenAIChat(ContextPaging(settings=PagingSettings(token_budget=300)), "s", recovery_tools=False)
    messages: list[Any] = []
    for _ in range(60):
        messages += [{"role": "user", "content": "continue"}, {"role": "assistant", "content": "done " * 10}]
    outcome = paged.page([*messages, {"role": "user", "content": "continue"}]).reply.outcome

    assert isinstance(outcome, ContextSelected)
    assert outcome.fallback is None
    assert outcome.notice is not None


def test_threads_wait_for_each_other() -> None:
    paged, messages = chat(), turns(6)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            for count in (5, 9, 13, 17, 21, 25):
                assert paged.page(messages[:count]).messages[-1] == messages[count - 1]
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_two_programs_that_take_turns_both_go_on_in_the_log(tmp_path: Path) -> None:
    options = LogOptions(durability="sync")
    with (
        EventLog.open(tmp_path / "a.db", options) as log,
        EventLog.open(tmp_path / "a.db", options) as other_log,
    ):
        one, other = (chat(ContextPaging(opened, settings=SMALL)) for opened in (log, other_log))
        messages = turns(12)
        for count in (5, 9, 13, 17):
            for paged in (one, other):
                assert paged.page(messages[:count]).messages[-1] is messages[count - 1]
                paged.responded({"choices": [{"message": {"role": "assistant", "content": "yes"}}]})
        for paged in (one, other, one):
            assert "text 0" in paged.conversation.tool("load_history", {"historyIds": ["m2"]})
        calls = [e.event.type for e in log.events("s")].count("context-selected")
        assert calls == 8
        assert [verified.finding for verified in log.verify("s")] == [None]


def test_an_answer_is_not_lost_when_the_log_is() -> None:
    class Sink:
        keeps_content = False
        gone = False

        def append(self, session_id: str, sequence: int, records: Any, *, label: Any = None) -> int:
            if self.gone:
                raise LogUnavailable("the disk is full")
            return sequence + len(records)

    sink = Sink()

    def start() -> Session:
        session = Session("s", sink=sink)
        session.start()
        return session

    conversation: HostConversation[Any] = HostConversation(start, ChatConverter())
    messages = turns(1)
    conversation.page(messages)
    sink.gone = True
    conversation.responded([{"role": "assistant", "content": "yes"}])
    messages += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "and?"}]

    with pytest.raises(LogUnavailable):
        conversation.page(messages)
    sink.gone = False
    assert conversation.page(messages).messages == messages


def test_conversations_that_are_too_many_are_let_go_and_come_again() -> None:
    paging = ContextPaging(settings=SMALL)
    many: Conversations[Any] = Conversations(paging, ChatConverter(), host="test", most=3)
    first: HostConversation[Any] = many.of("0")
    first.page(turns(1))

    for number in range(1, 4):
        many.of(str(number)).page(turns(1))

    assert not first.session.live
    assert many.of("3") is many.of("3")
    again = many.of("0")
    assert again is not first
    assert len(again.page(turns(1)).messages) == 5
    many.close()
    assert not again.session.live
