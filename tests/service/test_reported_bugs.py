"""Shapes of public bug reports (the corpus' ``bugs``): strict answers without a crash, repaired sessions.

Where a file's expectation is not met on purpose, the test that belongs to it says why. Files whose
expectation asks for neither selection nor recovery (how a host writes thinking blocks or half characters to
its provider) are held to what touches this project: messages go out as the host's own objects, unchanged.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from context_paging.domain.cut import Cut
from context_paging.domain.errors import SelectionErrorCode
from context_paging.domain.events import Mode
from context_paging.domain.json_text import stringify
from context_paging.domain.recovery.pages import joined
from context_paging.domain.repair import RepairKind
from context_paging.service.replies import ContextReply
from context_paging.service.session import Session
from context_paging.service.session_file import read_session_file
from tests.conformance.answers import NotFoundInCorpus, corpus_file

BROKEN = {"01", "02", "04", "06", "13"}
"""Reports in which an exchange is broken, so that the strict policy aborts."""
TOO_DEEP = "32"


def names() -> list[str]:
    """The files, by number."""
    try:
        return sorted(path.name[:2] for path in corpus_file("bugs").glob("*.json"))
    except NotFoundInCorpus:
        return []


def report(number: str) -> dict[str, Any]:
    """A report."""
    try:
        (path,) = corpus_file("bugs").glob(f"{number}-*.json")
    except NotFoundInCorpus as missing:
        pytest.skip(str(missing))
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


class Play:
    """A host that stores a report's entries one by one and asks before each assistant, and at the end."""

    def __init__(self, entries: list[Any], *, repair: bool = True, **settings: Any) -> None:
        policy = {"onInvalidStructure": "repair"} if repair else {}
        self.session = Session("report")
        self.session.start(global_settings={"contextPaging": {**policy, **settings}})
        self.entries = {entry["id"]: entry for entry in entries}
        self.calls: list[ContextReply] = []
        for entry in entries:
            is_assistant = entry.get("message", {}).get("role") == "assistant"
            if is_assistant:
                self.ask()
            self.session.append([entry])
            if entry["type"] == "compaction":
                self.session.compacted(entry["id"])
            if is_assistant:
                self.session.turn_end(entry["id"])
        self.last = self.ask()

    def ask(self, **options: Any) -> ContextReply:
        """A context request."""
        reply = self.session.context(**options)
        self.calls.append(reply)
        return reply

    def sent(self, reply: ContextReply | None = None) -> list[str]:
        """What went out: entry ids, and roles of messages that are no entry's own."""
        ids = {id(entry.get("message")): entry_id for entry_id, entry in self.entries.items()}
        return [ids.get(id(message), str(message["role"])) for message in (reply or self.last).messages]

    def repairs(self) -> list[tuple[RepairKind, tuple[str, ...]]]:
        """Every repair that was told, with its entries."""
        return [(done.kind, done.entry_ids) for reply in self.calls for done in reply.repairs]

    def output(self, history_id: str, call_id: str) -> str:
        """A tool result, page by page."""
        return joined(pages(self.session, history_id, source="toolResult", toolCallId=call_id))


def cut_of(session: Session) -> Cut | None:
    """The cut a session remembers."""
    return session.state.cut


def pages(session: Session, history_id: str, **which: Any) -> Iterator[str]:
    """All pages of an output."""
    offset: int | None = 0
    while offset is not None:
        page = session.tool(
            "read_context_output", {"historyId": history_id, "offset": offset, **which}
        ).result
        yield page["text"]
        offset = page["nextOffset"]


@pytest.mark.parametrize("number", [number for number in names() if number != TOO_DEEP])
def test_the_strict_policy_answers_every_report(number: str) -> None:
    play = Play(report(number)["entries"], repair=False)

    codes = {call.aborted.code for call in play.calls if call.aborted is not None}
    assert codes == ({SelectionErrorCode.INVALID_MESSAGE_STRUCTURE} if number in BROKEN else set())
    if number in BROKEN:
        assert play.last.aborted is not None
        assert "onInvalidStructure" in play.last.aborted.message


@pytest.mark.parametrize("number", [number for number in names() if number != TOO_DEEP])
def test_a_repaired_session_always_lives_and_changes_nothing_it_stores(number: str) -> None:
    entries = report(number)["entries"]
    before = copy.deepcopy(entries)
    play = Play(entries)

    assert not any(call.aborted for call in play.calls)
    assert entries == before
    again = Play(entries)
    assert [again.sent(call) for call in again.calls] == [play.sent(call) for call in play.calls]
    assert bool(play.repairs()) == (number in BROKEN | {"07"})


def test_01_an_orphan_between_two_compactions_is_left_out_and_an_unanswered_call_with_its_turn() -> None:
    play = Play(report("01")["entries"])

    assert play.sent() == ["compactionSummary", "00000004", "00000005", "00000009", "0000000a", "0000000c"]
    assert set(play.repairs()) == {
        (RepairKind.ORPHAN_RESULT, ("00000008",)),
        (RepairKind.INCOMPLETE_EXCHANGE, ("00000006",)),
    }


def test_02_a_result_behind_a_compaction_is_left_out() -> None:
    play = Play(report("02")["entries"])

    assert play.sent() == ["compactionSummary", "00000003", "00000004", "00000007", "00000008"]
    assert play.repairs() == [(RepairKind.ORPHAN_RESULT, ("00000006",))]
    assert play.output("00000006", "c77") == stringify(play.entries["00000006"]["message"])


def test_03_an_aborted_turn_is_an_item_and_is_not_sent() -> None:
    play = Play(report("03")["entries"])

    assert play.sent() == ["00000001", "00000003"]
    items = play.session.tool("browse_history", {"direction": "forward"}).result["references"]
    assert [(item["historyId"], item["failed"]) for item in items][1] == ("00000002", True)


def test_04_an_unanswered_call_is_left_out_and_can_be_read() -> None:
    play = Play(report("04")["entries"])

    assert play.sent() == ["00000001", "00000003", "00000004", "00000005"]
    (item,) = play.session.tool("load_history", {"historyIds": ["00000002"]}).result["items"]
    assert item["metadata"]["failed"]


def test_06_a_note_between_call_and_result_goes_behind_the_result() -> None:
    play = Play(report("06")["entries"])

    assert play.sent() == ["00000001", "00000002", "00000004", "custom", "00000005"]
    assert [kind for kind, _ in play.repairs()][-1] is RepairKind.MESSAGES_MOVED


def test_07_parallel_results_go_out_in_the_order_of_their_calls() -> None:
    play = Play(report("07")["entries"])

    assert play.sent() == ["00000001", "00000002", "00000004", "00000003", "00000005"]


def test_09_the_same_call_id_in_two_turns_is_two_calls() -> None:
    play = Play(report("09")["entries"])

    assert len(play.sent()) == 8
    for turn, result in (("00000002", "00000003"), ("00000006", "00000007")):
        assert play.output(turn, "call_0") == stringify(play.entries[result]["message"])


@pytest.mark.parametrize("number", ["11", "12"])
def test_11_and_12_ids_are_compared_as_they_are(number: str) -> None:
    play = Play(report(number)["entries"])

    calls = [block["id"] for block in play.entries["00000002"]["message"]["content"] if "id" in block]
    results = ["00000003", "00000004", "00000005"]
    assert play.sent()[:4] == ["00000001", "00000002", "00000003", "00000004"]
    for call, result in zip(calls, results, strict=False):
        assert play.output("00000002", call) == stringify(play.entries[result]["message"])


def test_13_the_last_result_for_a_call_stands_where_the_first_one_was_and_both_can_be_read() -> None:
    play = Play(report("13")["entries"])

    assert play.sent() == ["00000001", "00000002", "00000004", "00000005", "00000006"]
    assert play.output("00000002", "c1") == stringify(play.entries["00000004"]["message"])
    assert play.output("00000003", "c1") == stringify(play.entries["00000003"]["message"])


@pytest.mark.parametrize("number", ["14", "15"])
def test_14_and_15_the_newest_compaction_decides_what_is_sent_and_everything_can_be_found(
    number: str,
) -> None:
    play = Play(report(number)["entries"])

    assert play.sent()[0] == "compactionSummary"
    assert "00000004" not in play.sent()
    found = play.session.tool("browse_history", {"direction": "forward", "count": 10}).result["references"]
    stored = [entry["id"] for entry in play.entries.values() if entry["type"] == "message"]
    assert [item["historyId"] for item in found] == stored


def write(folder: Path, entries: list[Any]) -> Path:
    """A session file."""
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "", "cwd": "/w"}
    path = folder / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *entries]))
    return path


def test_15_a_missing_first_kept_entry_is_told(tmp_path: Path) -> None:
    file = read_session_file(write(tmp_path, report("15")["entries"]))

    assert any("'0000beef'" in str(problem) for problem in file.problems)


def test_17_another_longer_leaf_is_told_and_has_its_own_cut(tmp_path: Path) -> None:
    file = read_session_file(write(tmp_path, report("17")["entries"]))
    assert file.leaf_id == "00000007"
    assert any("'00000006' is" in str(problem) for problem in file.problems)

    session = Session("s")
    session.start(global_settings={"contextPaging": {"tokenBudget": 600, "trimToTokens": 400}})
    session.append(file.entries)
    session.navigate("00000006")
    session.append(
        [
            {
                "type": "message",
                "id": f"long-{n}",
                "parentId": "00000006" if n == 0 else f"long-{n - 1}",
                "message": {"role": "user", "content": "far out at sea " * 50, "timestamp": n},
            }
            for n in range(4)
        ]
    )
    assert session.context().messages
    assert cut_of(session) is not None
    session.navigate("00000007")
    assert cut_of(session) is None


def test_18_a_compaction_on_another_branch_has_no_effect() -> None:
    play = Play(report("18")["entries"])

    assert play.last.messages[0]["summary"] == "try 2"
    assert play.sent() == ["compactionSummary", "00000001", "00000004"]


def test_20_what_cannot_fit_is_final_and_says_by_how_much() -> None:
    found = report("20")
    play = Play(found["entries"], tokenBudget=33_536)
    tokens = found["params"]["fixed_overhead_tokens"]

    for _ in range(2):
        aborted = play.ask(system_prompt="x" * 4 * tokens, context_window=65_536).aborted
        assert aborted is not None
        assert aborted.code is SelectionErrorCode.RESIDENT_INPUT_TOO_LARGE
        assert (aborted.resident_tokens, aborted.budget_tokens) == (tokens + 1, 33_536)
        assert play.session.state.cut is None
    assert play.session.before_compaction("threshold").cancelled


def test_21_a_long_tool_loop_is_cut_between_exchanges_and_keeps_its_request() -> None:
    found = report("21")
    for entry in found["entries"]:
        if entry["message"]["role"] == "toolResult":
            entry["message"]["content"] = [{"type": "text", "text": "x" * 20_000}]
    play = Play(found["entries"], tokenBudget=found["params"]["budget_tokens"])

    assert any(call.outcome is not None and call.outcome.parts is not None for call in play.calls)
    paged = [call for call in play.calls if getattr(call.outcome, "mode", None) is Mode.PAGED]
    assert paged
    for call in paged:
        assert call.messages[1] is found["entries"][0]["message"]
        calls = [block["id"] for m in call.messages for block in m["content"] if "arguments" in block]
        assert calls == [m["toolCallId"] for m in call.messages if m["role"] == "toolResult"]


def test_22_a_picture_is_1200_tokens_however_large_and_reads_exactly() -> None:
    # The report asks that pages name a picture instead of printing it. The specification wants tool results
    # exact, so that joined pages are the stored text; it is the host that decides what is read.
    found = report("22")
    picture = found["entries"][2]["message"]["content"][1]
    picture["data"] = "QUJD" * (found["params"]["scale_image_base64_chars"] // 4)
    play = Play(found["entries"])

    assert 0 < play.session.state.conversation.input_tokens < 1_300
    first = play.session.tool(
        "read_context_output", {"historyId": "00000002", "source": "toolResult", "toolCallId": "c1"}
    ).result
    assert first["totalCharacters"] > 3_300_000
    assert len(first["text"]) == 2_000
    assert play.session.tool("search_history", {"query": "screenshot"}).result["references"]


def test_23_usage_that_is_no_number_measures_nothing() -> None:
    play = Play(report("23")["entries"])

    assert all(call.outcome is not None for call in play.calls)
    assert play.session.statistics().used_percent is not None


def test_25_usage_from_before_a_compaction_is_not_measured_input() -> None:
    play = Play(report("25")["entries"])
    session = Session("resumed")
    session.start("resume")
    session.append(play.entries.values())

    assert session.statistics().input_tokens is None
    assert play.session.state.calibration.anchor is None


def test_27_each_request_has_the_budget_of_its_model_and_a_switch_starts_a_new_cut() -> None:
    found = report("27")
    small = found["params"]["windows"]["m-32k"]
    play = Play(found["entries"])
    for entry in found["entries"][:2]:
        entry["message"]["content"] = [{"type": "text", "text": "x" * 100_000}]
    play = Play(found["entries"])

    play.session.select_model("m-32k", small)
    shown = play.ask(context_window=small)
    assert getattr(shown.outcome, "budget_tokens", None) == small
    assert cut_of(play.session) is not None
    # A switch back starts anew: everything fits again, and goes out at once.
    play.session.select_model("m-1m", 1_000_000)
    assert cut_of(play.session) is None
    assert play.sent(play.ask(context_window=1_000_000)) == ["00000001", "00000002", "00000004"]


def test_28_half_a_character_is_stored_sent_and_read_as_it_is() -> None:
    # What goes out are the host's own messages: replacing the half is for whoever encodes them.
    play = Play(report("28")["entries"])

    result = play.entries["00000003"]["message"]
    assert play.output("00000002", "c1") == stringify(result)
    assert json.loads(play.output("00000002", "c1")) == result
    assert any(message is result for message in play.last.messages)


def test_30_a_line_of_null_bytes_is_left_out_and_told(tmp_path: Path) -> None:
    found = report("30")
    path = tmp_path / "session.jsonl"
    path.write_text(found["raw"], "utf-8")

    file = read_session_file(path)
    assert [entry["id"] for entry in file.entries] == [entry["id"] for entry in found["entries"]]
    assert file.problems


def test_31_a_huge_state_entry_costs_nothing_and_parts_nothing() -> None:
    found = report("31")
    found["entries"][2]["data"] = {"pages": ["p" * found["params"]["scale_custom_chars"]]}
    play = Play(found["entries"], repair=False)

    assert play.sent() == ["00000001", "00000002", "00000004", "00000005"]
    assert play.session.statistics().history_tokens < 200


def test_32_a_very_deep_branch_is_read_and_a_cycle_is_told(tmp_path: Path) -> None:
    found = report("32")
    entries = list(found["entries"])
    pattern = entries[-2:]
    while len(entries) < found["params"]["repeat_to"]:
        for shape in pattern:
            entries.append({**shape, "id": f"deep-{len(entries)}", "parentId": entries[-1]["id"]})
    session = Session("deep")
    session.start(global_settings={"contextPaging": {"onInvalidStructure": "repair"}})
    session.append(entries)
    assert session.context().messages
    assert session.tool("browse_history", {"direction": "backward"}).result["references"]

    cycle = [{**entries[0], "parentId": entries[3]["id"]}, *entries[1:4]]
    session = Session("cycle")
    session.append(cycle)
    assert len(session.stored.branch) == 4
    (problem,) = read_session_file(write(tmp_path, cycle)).problems
    assert "begins a branch of its own" in str(problem)


def test_34_thinking_blocks_are_never_touched() -> None:
    play = Play(report("34")["entries"])

    assert play.sent() == ["00000001", "00000002", "00000003", "00000004", "00000005"]


def test_35_the_window_moves_in_few_steps_and_keeps_its_beginning_in_between() -> None:
    # The report also asks for equal cuts after a restart. The specification keeps cuts in memory only: a
    # restarted session begins without one.
    found = report("35")
    for entry in found["entries"]:
        entry["message"]["content"] = [{"type": "text", "text": "knots " * 60}]
    size = 90
    play = Play(found["entries"], tokenBudget=5 * size + 100, trimToTokens=3 * size)

    starts = [call.messages[0] for call in play.calls]
    steps = sum(before != after for before, after in pairwise(starts))
    assert 1 <= steps <= len(play.calls) // 3
    for before, after in pairwise(play.calls):
        if before.messages[0] == after.messages[0]:
            assert after.messages[: len(before.messages)] == before.messages
