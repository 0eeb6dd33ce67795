"""The session runtime: callbacks in, events and answers out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from context_paging.domain.errors import InvalidEntry, InvalidMessage
from context_paging.domain.events import ContextSelected, Mode, SessionStarted
from context_paging.domain.state import SessionState
from context_paging.service.log import EventLog, LogUnavailable, Record
from context_paging.service.replies import ContextAbortedError
from context_paging.service.session import Session

SMALL = {"contextPaging": {"tokenBudget": 1_000}}


class Host:
    """A host that stores its conversation and tells a session about it."""

    def __init__(self, session: Session, settings: Any = SMALL) -> None:
        self.session = session
        self.count = 0
        session.start(global_settings=settings)

    def store(self, kind: str, **fields: Any) -> str:
        """Store an entry below the leaf."""
        self.count += 1
        entry_id = f"{self.count:04x}"
        parent = self.session.stored.leaf_id
        self.session.append([{"type": kind, "id": entry_id, "parentId": parent, "timestamp": "", **fields}])
        return entry_id

    def message(self, role: str, content: Any, **fields: Any) -> str:
        """Store a message."""
        message = {"role": role, "content": content, "timestamp": self.count, **fields}
        return self.store("message", message=message)

    def user(self, text: str = "please " * 20) -> str:
        """Store a request."""
        return self.message("user", text)

    def answer(self, *calls: str, stop: str = "stop") -> str:
        """Store an assistant message with tool calls."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": "well " * 10}]
        blocks += [{"type": "toolCall", "id": call, "name": "read", "arguments": {}} for call in calls]
        return self.message("assistant", blocks, stopReason=stop)

    def result(self, call: str, size: int = 200) -> str:
        """Store a tool result of about so many tokens."""
        text = [{"type": "text", "text": "line" * size}]
        return self.message("toolResult", text, toolCallId=call, toolName="read")

    def turns(self, count: int) -> None:
        """Ask and answer so many times, with a tool call each."""
        for _ in range(count):
            self.user()
            call = f"call-{self.count}"
            self.session.context()
            self.session.turn_end(self.answer(call, stop="toolUse"))
            self.result(call)
            self.session.context()
            self.session.turn_end(self.answer())


@pytest.fixture
def host() -> Host:
    """A host with a new session."""
    return Host(Session("s"))


def has_cut(session: Session) -> bool:
    """Whether a cut is remembered."""
    return session.state.cut is not None


class FailingSink:
    """A log that refuses everything while it is told to."""

    def __init__(self) -> None:
        self.log = EventLog.open()
        self.fails = False
        self.keeps_content = False

    def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        """Append, or fail."""
        if self.fails:
            raise LogUnavailable("the disk is full")
        return self.log.append(session_id, expected_sequence, records, label=label)


def test_a_start_publishes_the_status_and_resolves_settings(host: Host) -> None:
    reply = host.session.start(
        "resume", global_settings={"contextPaging": {"enabled": False}, "apiKey": "secret"}
    )

    assert reply.status == "paging off"
    assert isinstance(reply.events[0], SessionStarted)
    assert "secret" not in repr(reply.events)


def test_an_untrusted_project_is_not_looked_at(host: Host) -> None:
    project = {"contextPaging": {"tokenBudget": 5}}
    reply = host.session.start(project_settings=project, project_trusted=False)

    assert host.session.state.settings.token_budget == 128_000
    assert reply.events[0].project_settings is None  # type: ignore[union-attr]


def test_settings_that_cannot_be_read_turn_paging_off(host: Host) -> None:
    reply = host.session.start_without_settings("new", "permission denied")

    assert reply.status == "paging off"
    assert host.session.context().outcome is None


def test_messages_go_out_as_the_hosts_own_objects(host: Host) -> None:
    host.turns(6)
    host.user()
    before = copy.deepcopy(host.session.stored.messages())

    reply = host.session.context()

    assert isinstance(reply.outcome, ContextSelected)
    assert reply.outcome.notice is not None
    stored = {id(message) for message in host.session.stored.messages()}
    assert [id(message) in stored for message in reply.messages] == [False] + [True] * (
        len(reply.messages) - 1
    )
    assert reply.messages[0] == {"role": "user", "content": reply.outcome.notice.text, "timestamp": 0}
    assert host.session.stored.messages() == before


def test_a_replaced_result_is_a_copy(host: Host) -> None:
    host.user()
    host.answer("big", stop="toolUse")
    host.result("big", 5_000)
    before = copy.deepcopy(host.session.stored.messages())

    reply = host.session.context(context_window=2_000)

    assert isinstance(reply.outcome, ContextSelected)
    assert reply.outcome.mode is Mode.RECOVERY
    assert "read_context_output" in reply.messages[-1]["content"][0]["text"]
    assert host.session.stored.messages() == before


def test_the_list_of_messages_gives_the_same_as_the_stored_branch() -> None:
    fed, listed = Host(Session("fed")), Host(Session("listed"))
    for turn in range(12):
        for host in (fed, listed):
            host.user()
        one = fed.session.context()
        other = listed.session.context(copy.deepcopy(listed.session.stored.messages()))
        assert one.outcome == other.outcome, turn
        for host in (fed, listed):
            host.session.turn_end(host.answer(f"c{turn}", stop="toolUse"))
            host.result(f"c{turn}")


def test_an_abort_says_why_and_has_no_messages(host: Host) -> None:
    host.user("x" * 8_000)

    reply = host.session.context()

    assert reply.aborted is not None
    assert reply.aborted.code == "ACTIVE_REQUEST_TOO_LARGE"
    assert [note.level for note in reply.notifications] == ["error"]
    with pytest.raises(ContextAbortedError) as error:
        _ = reply.messages
    assert error.value.aborted is reply.aborted


def test_a_message_that_cannot_be_read_changes_nothing(host: Host) -> None:
    host.turns(3)
    before = host.session.state

    with pytest.raises(InvalidMessage):
        host.session.context([{"role": "user", "content": object()}])

    assert host.session.state is before
    assert host.session.context().outcome is not None


def test_an_append_that_fails_changes_nothing_and_can_be_tried_again() -> None:
    sink = FailingSink()
    host, twin = Host(Session("s", sink=sink)), Host(Session("twin"))
    for one in (host, twin):
        one.turns(5)
        one.user()
    before = host.session.state

    sink.fails = True
    with pytest.raises(LogUnavailable):
        host.session.context()
    assert host.session.state is before
    sink.fails = False

    assert host.session.context().outcome == twin.session.context().outcome
    assert host.session.turn_end(host.answer()).events == twin.session.turn_end(twin.answer()).events


def test_turning_paging_off_lets_everything_through(host: Host) -> None:
    host.turns(8)

    reply = host.session.command(" off ")

    assert (reply.status, reply.notifications[-1].text) == (
        "paging off",
        "Context paging is off for this session.",
    )
    assert host.session.context().messages == host.session.stored.messages()
    assert not has_cut(host.session)


@pytest.mark.parametrize("arguments", ["", "status", "stats"])
def test_asking_changes_nothing(host: Host, arguments: str) -> None:
    host.turns(8)
    before = host.session.state

    reply = host.session.command(arguments)

    assert [note.level for note in reply.notifications] == ["info"]
    assert reply.status is None
    assert host.session.state is before


def test_nonsense_arguments_show_the_usage(host: Host) -> None:
    (note,) = host.session.command("perhaps").notifications

    assert (note.level, note.text) == ("warning", "Usage: /context-paging [on|off|status|stats]")


def test_an_automatic_compaction_is_cancelled_only_while_paging_is_on(host: Host) -> None:
    assert host.session.before_compaction("threshold").cancelled
    assert not host.session.before_compaction("manual").cancelled
    host.session.command("off")
    assert not host.session.before_compaction("overflow").cancelled


def test_a_retry_edit_keeps_the_cut(host: Host) -> None:
    host.turns(8)
    host.user()
    host.session.context()
    cut = host.session.state.cut
    assert cut is not None
    failed = host.answer(stop="error")
    host.session.turn_end(failed)
    host.store("context_edit", targetId=failed, replacement=None)

    reply = host.session.context()

    assert isinstance(reply.outcome, ContextSelected)
    assert host.session.state.cut == cut
    assert all(message.get("stopReason") != "error" for message in reply.messages)


def test_any_other_edit_resets_the_cut(host: Host) -> None:
    first = host.user()
    host.turns(8)
    assert has_cut(host.session)
    host.store("context_edit", targetId=first, replacement={"content": "short"})

    host.session.start("reload", global_settings={"contextPaging": {"tokenBudget": 100_000}})
    reply = host.session.context()

    assert not has_cut(host.session)
    assert reply.messages[0]["content"] == "short"


def test_navigation_resets_the_cut_and_goes_on_from_the_other_leaf(host: Host) -> None:
    leaf = host.user()
    host.turns(8)
    assert has_cut(host.session)

    host.session.navigate(leaf)

    assert not has_cut(host.session)
    assert len(host.session.context().messages) == 1


@pytest.mark.parametrize("kind", ["compaction", "context_edit"])
@pytest.mark.parametrize("again", ["start", "start_without_settings", "navigate"])
def test_what_was_there_at_a_new_beginning_does_not_reset_a_later_cut(
    host: Host, kind: str, again: str
) -> None:
    host.turns(1)
    result = next(e["id"] for e in host.session.stored.branch if e["message"]["role"] == "toolResult")
    if kind == "compaction":
        host.store(kind, summary="so far", firstKeptEntryId=host.user(), tokensBefore=1)
    else:
        host.store(kind, targetId=result, replacement={"content": "edited"})
    host.turns(5)
    match again:
        case "start":
            host.session.start("reload", global_settings=SMALL)
        case "start_without_settings":
            host.session.start_without_settings("reload", "no file")
        case _:
            host.session.navigate(host.session.stored.leaf_id)
    seen = host.session.state.seen
    host.session.command("on")
    host.session.context()
    cut = host.session.state.cut
    host.user("and?")
    outcome = host.session.context().outcome

    assert len(seen) == 1
    assert host.session.state.seen == seen
    assert isinstance(outcome, ContextSelected)
    assert outcome.frontier_before == (cut.frontier if cut else None)
    assert cut is not None or again == "start_without_settings"


def test_navigating_to_an_unknown_entry_is_a_typed_error(host: Host) -> None:
    with pytest.raises(InvalidEntry, match="no entry 'nowhere'"):
        host.session.navigate("nowhere")


def test_a_turn_cannot_end_with_an_unknown_entry(host: Host) -> None:
    with pytest.raises(InvalidEntry, match="no stored message"):
        host.session.turn_end("nowhere")


@pytest.mark.parametrize(
    "entry", [{}, {"id": "x"}, {"type": "message"}, {"id": 5, "type": "message"}, "text"]
)
def test_an_entry_without_id_or_type_is_a_typed_error(host: Host, entry: Any) -> None:
    with pytest.raises(InvalidEntry):
        host.session.append([entry])


def test_an_entry_id_cannot_be_used_for_another_entry(host: Host) -> None:
    host.user()

    with pytest.raises(InvalidEntry, match="taken by another entry"):
        host.session.append([{"type": "custom", "id": "0001", "parentId": None}])


def test_a_restarted_process_begins_with_an_empty_cut() -> None:
    log = EventLog.open()
    host = Host(Session("s", sink=log))
    host.turns(8)
    assert has_cut(host.session)
    entries = list(host.session.stored.entries.values())
    written = log.session("s").last_sequence

    restarted = Session("s", sink=log, sequence=written)

    fresh = SessionState()
    assert (restarted.state.cut, restarted.state.calibration) == (fresh.cut, fresh.calibration)
    restarted.start("resume", global_settings=SMALL)
    restarted.append(entries)
    reply = restarted.context()
    assert isinstance(reply.outcome, ContextSelected)
    assert reply.outcome.frontier_before is None
    assert log.session("s").last_sequence > written


def test_the_log_holds_digests_and_no_content() -> None:
    log = EventLog.open()
    host = Host(Session("s", sink=log))
    host.user("the secret of the harbour")
    host.session.context(system_prompt="a secret prompt")
    host.session.turn_end(host.answer())

    text = "".join(event.payload for event in log.events("s"))

    assert "secret" not in text
    assert "well" not in text


def test_the_log_grows_with_the_conversation_not_with_its_square() -> None:
    sizes = []
    for turns in (20, 40, 80):
        log = EventLog.open()
        Host(Session("s", sink=log)).turns(turns)
        sizes.append(sum(len(event.payload) for event in log.events("s")))

    assert sizes[2] / sizes[1] < 2.2
    assert sizes[1] / sizes[0] < 2.2
