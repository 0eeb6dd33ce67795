"""Recovery tools of a live session: answers, refusals, and what the log says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from context_paging.domain.events import (
    BranchRefreshed,
    RecoveryToolAnswered,
    RecoveryToolCalled,
    RecoveryToolRejected,
)
from context_paging.domain.json_text import stringify
from context_paging.domain.recovery.errors import RecoveryErrorCode, RecoveryRefused
from context_paging.domain.recovery.pages import joined
from context_paging.domain.recovery.public_view import RECOVERY_TOOLS, public_block
from context_paging.domain.repair import RepairKind
from context_paging.service.log import EventLog, LogUnavailable, Record
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file
from tests.conformance.answers import NotFoundInCorpus, corpus_file

from .test_session import Host

REPAIR = {"contextPaging": {"onInvalidStructure": "repair"}}


@pytest.fixture
def host() -> Host:
    """A host with three turns."""
    host = Host(Session("s"))
    host.turns(3)
    return host


@pytest.mark.parametrize("name", ["pi-before-compaction.jsonl.gz", "pi-large-session.jsonl.gz"])
def test_joined_pages_of_every_output_of_a_real_session_are_its_text(name: str) -> None:
    try:
        file = read_session_file(corpus_file(name))
    except NotFoundInCorpus as missing:
        pytest.skip(str(missing))
    session = Session("s")
    session.start(global_settings=REPAIR)
    session.append(file.entries)
    session.navigate(file.leaf_id)
    outputs = 0
    for item in session.state.branch.history.items:
        content = file_entry(session, item.id)["content"]
        blocks = content if isinstance(content, list) else [content]
        wanted: list[tuple[dict[str, Any], Any]] = [
            ({"source": "assistant", "contentIndex": index}, block)
            for index, block in enumerate(blocks)
            if item.kind == "user" or public_block(block) is not None
        ]
        wanted += [
            ({"source": "toolResult", "toolCallId": ref.call_id}, file_entry(session, entry_id))
            for ref, entry_id in zip(item.results, item.result_ids, strict=True)
            if ref.tool_name not in RECOVERY_TOOLS
        ]
        for which, value in wanted:
            shown = value if item.kind == "user" or "toolCallId" in which else public_block(value)
            assert joined(pages(session, {"historyId": item.id, **which})) == stringify(shown)
            outputs += 1
    assert outputs > 700


def file_entry(session: Session, entry_id: str) -> Any:
    """The message of an entry."""
    return session.stored.entries[entry_id]["message"]


def pages(session: Session, which: dict[str, Any]) -> list[str]:
    """All pages of an output."""
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = session.tool("read_context_output", {**which, "offset": offset}).result
        found.append(page["text"])
        offset = page["nextOffset"]
    return found


def test_a_call_and_its_answer_are_events_with_sizes_and_ids(host: Host) -> None:
    host.user()
    reply = host.session.tool("search_history", {"query": "please", "limit": 2, "load": True})

    ids = tuple(reference["historyId"] for reference in reply.result["references"])
    assert reply.events[-2:] == (
        RecoveryToolCalled(tool="search_history", query_characters=6, limit=2),
        RecoveryToolAnswered(tool="search_history", characters=len(reply.text), history_ids=ids),
    )
    # Entries that no callback had read yet are read first.
    assert any(isinstance(event, BranchRefreshed) for event in reply.events)

    page = host.session.tool(
        "read_context_output", {"historyId": ids[0], "source": "assistant", "contentIndex": 0, "limit": 5}
    )
    called, answered = page.events
    assert called == RecoveryToolCalled(tool="read_context_output", history_ids=ids[:1], limit=5)
    assert isinstance(answered, RecoveryToolAnswered)
    assert answered.next_offset == 5
    assert answered.total_characters == page.result["totalCharacters"]


def test_no_content_of_calls_and_answers_is_logged(host: Host, tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db")) as log:
        logged = Host(Session("s", sink=log))
        logged.user("a secret wish")
        logged.answer("c1", stop="toolUse")
        logged.result("c1")
        logged.session.tool("search_history", {"query": "secret", "load": True})
        with pytest.raises(RecoveryRefused):
            logged.session.tool("read_context_output", {"historyId": "secret" * 99, "source": "secret"})
        with pytest.raises(RecoveryRefused):
            logged.session.tool("secret_tool", {"secret": "secret"})
        events = list(log.events("s", 0))

    texts = [json.dumps(repr(stored.event)) for stored in events]
    assert [stored.type for stored in events][-2:] == ["recovery-tool-called", "recovery-tool-rejected"]
    assert not any("wish" in text for text in texts)
    # An id that the model made up is kept, but no longer than an id may be.
    assert sum("secret" in text for text in texts) == 1
    assert "secret" * 22 not in "".join(texts)


@pytest.mark.parametrize("parameters", [{"query": "please"}, None, "nonsense"])
def test_tools_refuse_while_paging_is_off(host: Host, parameters: Any) -> None:
    host.session.command("off")
    before = host.session.state

    with pytest.raises(RecoveryRefused) as refused:
        host.session.tool("search_history", parameters)

    assert refused.value.reason is RecoveryErrorCode.PAGING_DISABLED
    assert host.session.state.branch is before.branch
    host.session.command("on")
    assert host.session.tool("search_history", {"query": "please"}).result["references"]


def test_a_refusal_is_logged_with_its_code(tmp_path: Path) -> None:
    with EventLog.open(str(tmp_path / "log.db")) as log:
        session = Session("s", sink=log)
        session.start()
        with pytest.raises(RecoveryRefused):
            session.tool("load_history", {"historyIds": ["nope"]})
        called, rejected = [stored.event for stored in log.events("s", 0)][-2:]

    assert called == RecoveryToolCalled(tool="load_history", history_ids=("nope",))
    assert rejected == RecoveryToolRejected(tool="load_history", code="UNKNOWN_HISTORY_ID")


class Deaf:
    """A sink that takes nothing."""

    keeps_content = False

    def append(
        self, session_id: str, expected_sequence: int, records: Sequence[Record], *, label: str | None = None
    ) -> int:
        """Refuse."""
        raise LogUnavailable("away")


def test_a_log_that_is_away_leaves_everything_as_it_was() -> None:
    session = Session("s", sink=Deaf())
    before = session.state

    for parameters in ({"query": "x"}, {"query": 1}):
        with pytest.raises(LogUnavailable):
            session.tool("search_history", parameters) if session.state.enabled else session.start()
    assert session.state is before


def test_recovery_reads_what_a_navigation_made_visible(host: Host) -> None:
    found = host.session.tool("browse_history", {"direction": "forward", "count": 10}).result["references"]
    host.session.navigate(found[2]["historyId"])

    again = host.session.tool("browse_history", {"direction": "forward", "count": 10}).result["references"]
    assert [reference["historyId"] for reference in again] == [r["historyId"] for r in found[:3]]


def test_a_repair_is_told_once_and_only_where_something_is_broken() -> None:
    host = Host(Session("s"), REPAIR)
    host.turns(2)
    assert not host.session.context().repairs
    host.user()
    host.answer("open", stop="toolUse")
    host.user()
    first = host.session.context()
    host.answer()
    second = host.session.context()
    host.user()
    third = host.session.context()

    assert [repair.call_ids for repair in first.repairs] == [("open",)]
    assert not second.repairs
    assert not third.repairs
    assert not host.session.start("resume", global_settings=REPAIR).repairs


def test_a_change_of_the_policy_takes_hold_when_the_session_starts_again() -> None:
    host = Host(Session("s"))
    host.user()
    host.answer("open", stop="toolUse")
    host.user()
    assert host.session.context().aborted is not None
    (told,) = host.session.start("reload", global_settings=REPAIR).repairs
    assert (told.kind, told.call_ids) == (RepairKind.INCOMPLETE_EXCHANGE, ("open",))
    repaired = host.session.context()
    assert [message["role"] for message in repaired.messages] == ["user", "user"]
    assert host.session.tool("browse_history", {"direction": "forward"}).result["references"]
    host.session.start("reload")
    assert host.session.context().aborted is not None


def note(text: str) -> dict[str, Any]:
    """A note that looks like any other with its text."""
    return {"customType": "note", "content": text, "display": True}


def test_a_moved_message_with_a_later_twin_is_not_taken_for_it() -> None:
    stepped, entries = Host(Session("s"), REPAIR), []
    sent: list[Any] = []
    stepped.user()
    for call in ("a", "b", "c"):
        stepped.answer(call, stop="toolUse")
        if call != "c":
            stepped.store("custom_message", **note("the same note"))
        stepped.result(call)
        now = stepped.session.context().messages
        assert now[: len(sent)] == sent
        sent = now
    entries = list(stepped.session.stored.entries.values())
    fresh = Session("f")
    fresh.start(global_settings=REPAIR)
    fresh.append(entries)

    assert fresh.context().messages == sent
    assert not [s for s in fresh.state.conversation.backwards() if s.outgoing_only]


def test_a_copy_that_only_the_request_carries_is_sent_as_under_the_strict_policy() -> None:
    hosts = [Host(Session("s"), settings) for settings in ({}, REPAIR)]
    orders = []
    for host in hosts:
        host.user()
        host.answer("a", stop="toolUse")
        host.result("a")
        host.store("custom_message", **note("once"))
        host.answer("b", stop="toolUse")
        host.result("b")
        outgoing = list(host.session.stored.messages())
        outgoing.insert(4, dict(outgoing[3]))
        orders.append([outgoing.index(message) for message in host.session.context(outgoing).messages])
        assert sum(s.outgoing_only for s in host.session.state.conversation.backwards()) == 1
    assert orders[0] == orders[1]


def test_a_stray_result_like_a_valid_one_is_told_by_its_own_entry() -> None:
    host = Host(Session("s"), REPAIR)
    host.user()
    host.answer("a", stop="toolUse")
    result = host.result("a")
    host.user()
    stray = host.store("message", message=dict(host.session.stored.entries[result]["message"]))

    assert [repair.entry_ids for repair in host.session.context().repairs] == [(stray,)]
    assert not host.session.context().repairs


def test_a_lasting_exchange_is_told_once_while_its_results_arrive() -> None:
    host = Host(Session("s"), REPAIR)
    host.user()
    host.answer("a", "b", "c", stop="toolUse")
    told = [*host.session.context().repairs]
    for call in ("a", "b"):
        host.result(call)
        told += host.session.context().repairs

    assert len(told) == 1


def test_a_session_that_starts_again_on_another_branch_tells_what_it_had_repaired_by_its_entries() -> None:
    host = Host(Session("s"), REPAIR)
    first = host.user()
    host.turns(1)
    host.user()
    host.answer("open", stop="toolUse")
    host.user()
    host.session.context()
    host.session.navigate(first)

    assert not host.session.start("resume", global_settings=REPAIR).repairs
    assert not host.session.start("resume").repairs
    assert host.session.start("resume", global_settings=REPAIR).status == "paging on"
    assert host.session.context().messages
