"""Recovery: exact pages, an index that equals a new one, bounded replies, nothing private or out of reach."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_paging.domain.entries import Entry, digest_entry
from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.history import History
from context_paging.domain.json_text import stringify, utf16_length
from context_paging.domain.recovery.errors import RecoveryErrorCode, RecoveryRefused
from context_paging.domain.recovery.navigator import Navigator
from context_paging.domain.recovery.pages import joined
from context_paging.domain.recovery.reply import REPLY_CHARACTERS
from context_paging.domain.recovery.terms import expanded_terms, plain_terms
from context_paging.domain.recovery.tools import RecoveryTools, parameter_schema, tool_definitions
from context_paging.domain.repair import OnInvalidStructure
from tests.conformance import DATA

ESTIMATOR = HeuristicEstimator()
ODD_TEXT = st.text(st.characters(min_codepoint=1), max_size=40) | st.sampled_from(
    ["😀", "\ud83d", "\ude00\ud83d", 'a"b\\c\n', "", "数据 src/main.rs", "\u2028", "x" * 3_000]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=8,
)


class Stored:
    """A branch of stored entries with its history and tools."""

    def __init__(self, policy: OnInvalidStructure = OnInvalidStructure.REPAIR) -> None:
        self.entries: dict[str, Entry] = {}
        self.history = History.empty(policy)
        self.tools = RecoveryTools(self.entries.__getitem__)

    def add(self, message: dict[str, Any]) -> str:
        """Store a message behind the others."""
        entry_id = f"e{len(self.entries)}"
        self.entries[entry_id] = {
            "type": "message",
            "id": entry_id,
            "timestamp": "2026-01-05T09:00:00.000Z",
            "message": {"timestamp": len(self.entries), **message},
        }
        self.history = self.history.appended([digest_entry(self.entries[entry_id], ESTIMATOR)])
        return entry_id

    def call(self, name: str, **parameters: Any) -> Any:
        """The result of a tool call, whose reply is checked."""
        answer = self.tools.call(self.history, name, parameters)
        assert utf16_length(answer.text) <= REPLY_CHARACTERS
        json.loads(answer.text)
        return answer.result

    def output(self, limit: int, **which: Any) -> str:
        """An output, page by page."""
        pages, offset = [], 0
        while True:
            page = self.call("read_context_output", offset=offset, limit=limit, **which)
            assert 0 < utf16_length(page["text"]) <= limit
            pages.append(page["text"])
            if page["nextOffset"] is None:
                return joined(pages)
            assert page["nextOffset"] == offset + utf16_length(page["text"])
            offset = page["nextOffset"]


def call_block(call_id: str, name: str = "read", arguments: Any = None) -> dict[str, Any]:
    """A tool call."""
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments or {}}


def answered(stored: Stored, *calls: dict[str, Any], content: Any = "out", **fields: Any) -> str:
    """Store an exchange."""
    turn = stored.add({"role": "assistant", "content": list(calls), **fields})
    for block in calls:
        stored.add(
            {"role": "toolResult", "toolCallId": block["id"], "toolName": block["name"], "content": content}
        )
    return turn


@given(JSON, JSON, st.sampled_from([1, 2, 7, 100, 2_000]))
def test_joined_pages_are_the_json_text_of_the_output(arguments: Any, content: Any, limit: int) -> None:
    stored = Stored()
    user = stored.add(
        {"role": "user", "content": [{"type": "text", "text": stringify(content)[:300]}, content]}
    )
    turn = answered(stored, call_block("c", arguments={"given": arguments}), content=content)

    whole = stringify(stored.entries[turn]["message"]["content"][0])
    assert (
        stored.output(max(limit, len(whole) // 200), historyId=turn, source="assistant", contentIndex=0)
        == whole
    )
    for which, value in (
        ({"historyId": turn, "source": "toolResult", "toolCallId": "c"}, stored.entries["e2"]["message"]),
        ({"historyId": user, "source": "assistant", "contentIndex": 1}, content),
    ):
        text = stringify(value)
        assert stored.output(max(limit, len(text) // 200), **which) == text


def test_a_page_parts_a_character_only_where_it_holds_nothing_else() -> None:
    stored = Stored()
    turn = answered(stored, call_block("c"), content="a😀b")
    text = stringify(stored.entries["e1"]["message"])
    at = text.index("😀")

    def page(offset: int, limit: int) -> Any:
        result = stored.call(
            "read_context_output",
            historyId=turn,
            source="toolResult",
            toolCallId="c",
            offset=offset,
            limit=limit,
        )
        return result["text"], result["nextOffset"]

    assert page(at - 1, 2) == ("a", at)
    assert page(at, 2) == ("😀", at + 2)
    assert page(at, 1) == ("\ud83d", at + 1)
    assert page(at + 1, 1) == ("\ude00", at + 2)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("user"), ODD_TEXT),
        st.tuples(st.just("turn"), st.lists(st.sampled_from(["read", "bash", "load_history"]), max_size=2)),
        st.tuples(st.just("open"), st.none()),
        st.tuples(st.just("failed"), st.none()),
        st.tuples(st.just("result"), st.sampled_from("ab")),
        st.tuples(st.just("back"), st.integers(0, 30)),
        st.tuples(st.just("search"), st.sampled_from(["word", "", "e", "read", "out"])),
    ),
    max_size=25,
)


@given(actions)
def test_the_navigator_always_equals_a_new_one(script: list[tuple[str, Any]]) -> None:
    stored = Stored()
    navigator = Navigator(stored.entries.__getitem__)
    histories = [stored.history]
    for what, value in script:
        match what:
            case "user":
                stored.add({"role": "user", "content": f"word {value}"})
            case "turn":
                answered(stored, *(call_block(f"{n}", name) for n, name in enumerate(value)))
            case "open" | "failed":
                stop = "error" if what == "failed" else "toolUse"
                blocks = [call_block("a"), call_block("b")]
                stored.add({"role": "assistant", "content": blocks, "stopReason": stop})
            case "result":
                result = {"role": "toolResult", "toolCallId": value, "toolName": "read", "content": "e"}
                stored.add(result)
            case "back":
                stored.history = histories[value % len(histories)]
            case "search":
                new = Navigator(stored.entries.__getitem__)
                assert navigator.search(stored.history, value, limit=10) == new.search(
                    stored.history, value, limit=10
                )
                shown = navigator.browse(stored.history, "forward", count=10, stride=2)
                assert shown == new.browse(stored.history, "forward", count=10, stride=2)
        histories.append(stored.history)


def test_the_schemas_are_those_of_the_conformance_files() -> None:
    wanted = json.loads((DATA / "tools.json").read_text("utf-8"))

    assert {name: parameter_schema(name) for name in wanted} == wanted
    assert [tool["name"] for tool in tool_definitions()] == list(wanted)


@given(st.sampled_from(["search_history", "browse_history", "load_history", "read_context_output"]), JSON)
def test_odd_parameters_are_refused_with_a_code(name: str, parameters: Any) -> None:
    stored = Stored()
    stored.add({"role": "user", "content": "hello"})

    # Anything but an answer or a typed refusal fails the test.
    with suppress(RecoveryRefused):
        stored.tools.call(stored.history, name, parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "code"),
    [
        ("search_history", {"query": 1}, RecoveryErrorCode.INVALID_HISTORY_NAVIGATOR_INPUT),
        ("search_history", {"query": "x", "more": 1}, RecoveryErrorCode.INVALID_HISTORY_NAVIGATOR_INPUT),
        ("search_history", {"query": "x", "limit": True}, RecoveryErrorCode.INVALID_HISTORY_NAVIGATOR_INPUT),
        ("browse_history", {}, RecoveryErrorCode.INVALID_HISTORY_NAVIGATOR_INPUT),
        ("browse_history", {"direction": "around", "sequence": 9}, RecoveryErrorCode.UNKNOWN_HISTORY_ANCHOR),
        ("load_history", {"historyIds": ["e0", "e9"]}, RecoveryErrorCode.UNKNOWN_HISTORY_ID),
        ("erase_history", {}, RecoveryErrorCode.UNKNOWN_RECOVERY_TOOL),
    ],
)
def test_each_refusal_has_its_code(name: str, parameters: Any, code: RecoveryErrorCode) -> None:
    stored = Stored()
    stored.add({"role": "user", "content": "hello"})

    with pytest.raises(RecoveryRefused) as refused:
        stored.tools.call(stored.history, name, parameters)
    assert refused.value.reason is code


@pytest.mark.parametrize(
    ("which", "code"),
    [
        ({"historyId": "e1", "source": "assistant", "contentIndex": 0}, RecoveryErrorCode.OUTPUT_NOT_PUBLIC),
        ({"historyId": "e1", "source": "assistant", "contentIndex": 1}, RecoveryErrorCode.OUTPUT_NOT_PUBLIC),
        ({"historyId": "e1", "source": "assistant", "contentIndex": 9}, RecoveryErrorCode.UNKNOWN_OUTPUT),
        ({"historyId": "e1", "source": "toolResult", "toolCallId": "c"}, RecoveryErrorCode.UNKNOWN_OUTPUT),
        ({"historyId": "e3", "source": "toolResult", "toolCallId": "c"}, RecoveryErrorCode.RECOVERY_OUTPUT),
        ({"historyId": "e5", "source": "toolResult", "toolCallId": "d"}, RecoveryErrorCode.RECOVERY_OUTPUT),
        ({"historyId": "e9", "source": "assistant", "contentIndex": 0}, RecoveryErrorCode.UNKNOWN_HISTORY_ID),
        ({"historyId": "e0", "source": "assistant"}, RecoveryErrorCode.INVALID_OUTPUT_REQUEST),
        (
            {"historyId": "e0", "source": "assistant", "contentIndex": 0, "offset": 7},
            RecoveryErrorCode.OFFSET_OUT_OF_RANGE,
        ),
    ],
)
def test_what_no_page_shows(which: dict[str, Any], code: RecoveryErrorCode) -> None:
    stored = Stored()
    stored.add({"role": "user", "content": "hello"})
    stored.add(
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "secret"}, {"type": "server", "x": "secret"}],
        }
    )
    stored.add({"role": "user", "content": "go on"})
    answered(stored, call_block("c", "search_history"))
    # A host that renamed the call: what was answered is still a recovery tool's reply.
    stored.add({"role": "assistant", "content": [call_block("d")]})
    stored.add({"role": "toolResult", "toolCallId": "d", "toolName": "load_history", "content": "secret"})

    with pytest.raises(RecoveryRefused) as refused:
        stored.call("read_context_output", **which)
    assert refused.value.reason is code
    assert "secret" not in str(refused.value)


def test_private_blocks_are_empty_slots_and_signatures_are_gone() -> None:
    stored = Stored()
    content: list[Any] = [
        {"type": "thinking", "thinking": "secret", "thinkingSignature": "secret"},
        {"type": "text", "text": "shown", "textSignature": "secret"},
        {"type": "redacted", "data": "secret"},
        {**call_block("c", arguments={"path": "a.py"}), "thoughtSignature": "secret"},
        "secret",
    ]
    turn = stored.add({"role": "assistant", "content": content})
    stored.add({"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": "line"})

    (item,) = stored.call("load_history", historyIds=[turn])["items"]
    assert item["assistantMessage"]["content"] == [
        None,
        {"type": "text", "text": "shown"},
        None,
        call_block("c", arguments={"path": "a.py"}),
        None,
    ]
    assert stored.call("search_history", query="secret") == {"references": []}
    assert "secret" not in stringify(stored.call("browse_history", direction="forward"))
    assert content[1]["textSignature"] == "secret"


def test_turns_that_read_history_are_not_shown_and_not_counted() -> None:
    stored = Stored()
    stored.add({"role": "user", "content": "needle"})
    hidden = answered(stored, call_block("c", "search_history", {"query": "needle"}), content="needle")
    stored.add({"role": "user", "content": "needle again"})

    found = stored.call("search_history", query="needle")["references"]
    assert [(reference["historyId"], reference["sequence"]) for reference in found] == [("e0", 0), ("e3", 1)]
    with pytest.raises(RecoveryRefused):
        stored.call("load_history", historyIds=[hidden])
    assert stored.output(50, historyId=hidden, source="assistant", contentIndex=0)


def test_an_interrupted_turn_is_found_by_results_that_came_later() -> None:
    stored = Stored()
    stored.add({"role": "assistant", "content": [call_block("a")], "stopReason": "aborted"})
    assert not stored.call("search_history", query="late")["references"]
    stored.add({"role": "toolResult", "toolCallId": "a", "toolName": "read", "content": "late"})

    assert stored.call("search_history", query="late")["references"]


def reachable(stored: Stored, text: str) -> set[str]:
    """Every call that a reply names, as JSON."""
    return set(re.findall(r'"read_context_output":(\{[^{}]*\})', text))


@given(st.lists(st.sampled_from([10, 900, 5_000, 20_000]), min_size=1, max_size=6), st.booleans())
def test_a_long_item_is_given_in_short_and_names_what_reads_the_rest(
    sizes: list[int], searched: bool
) -> None:
    stored = Stored()
    blocks = [call_block(f"c{n}", arguments={"path": "x" * size}) for n, size in enumerate(sizes)]
    turn = answered(stored, *blocks, content="y" * max(sizes))

    parameters = {"query": "read", "load": True} if searched else {"historyIds": [turn]}
    name = "search_history" if searched else "load_history"
    answer = stored.tools.call(stored.history, name, parameters)

    assert answer.result["items"][0]["assistantMessage"]["content"] == blocks
    assert utf16_length(answer.text) <= REPLY_CHARACTERS
    given = json.loads(answer.text)
    if utf16_length(stringify(answer.result)) <= REPLY_CHARACTERS:
        assert given == answer.result
        return
    calls = reachable(stored, answer.text)
    for call in calls:
        assert stored.output(2_000, **json.loads(call))
    if calls:
        (item,) = given["items"]
        shown = [*item["assistantMessage"]["content"], *item["toolResults"]]
        stored_outputs = [*blocks, *(stored.entries[f"e{n + 1}"]["message"] for n in range(len(blocks)))]
        for output, original in zip(shown, stored_outputs, strict=True):
            named = output.get("read_context_output")
            assert output == original if named is None else stringify(named) in calls


def test_a_very_long_user_message_can_be_read_in_pages() -> None:
    stored = Stored()
    user = stored.add({"role": "user", "content": "pasted " * 20_000})

    text = stored.tools.call(stored.history, "load_history", {"historyIds": [user]}).text
    (call,) = reachable(stored, text)
    assert json.loads(stored.output(2_000, **json.loads(call))) == "pasted " * 20_000


def test_more_outputs_than_a_reply_can_name_are_counted() -> None:
    stored = Stored()
    turn = answered(stored, *(call_block(f"call-{n:04}") for n in range(600)))

    text = stored.tools.call(stored.history, "load_history", {"historyIds": [turn]}).text
    assert json.loads(text)["items"] == [
        {
            "id": turn,
            "kind": "modelTurn",
            "sequence": 0,
            "assistantBlocks": 600,
            "toolResults": 600,
            "readWith": "read_context_output",
        }
    ]


def test_references_with_hundreds_of_files_stay_within_a_reply() -> None:
    stored = Stored()
    for _ in range(10):
        paths = [f"src/module_{n}/{'deep/' * 30}file.py" for n in range(300)]
        answered(stored, call_block("c", arguments={"files": paths}))

    answer = stored.tools.call(stored.history, "browse_history", {"direction": "forward", "count": 10})
    assert utf16_length(answer.text) <= REPLY_CHARACTERS
    shown = json.loads(answer.text)["references"]
    assert len(shown) == 10
    assert all(len(reference["files"]) + reference["moreFiles"] == 300 for reference in shown)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Read src/main.rs, then --help.", ["read", "src/main.rs", "then", "help"]),
        ("数据 naïve_name ÉPSILON", ["数", "据", "naïve_name", "épsilon"]),
        ("./:- ... 1e21 a-b", ["1e21", "a-b"]),
        ("é/-数.据-x_ ./é.y", ["é", "数", "据", "x_", "é.y"]),
        ("", []),
    ],
)
def test_plain_terms(text: str, terms: list[str]) -> None:
    assert list(plain_terms(text)) == terms


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("user name", "getUserNames()"),
        ("indexing history", "src/history_index.py"),
        ("HTTP request", "parseHTTPRequest"),
        ("queue", "queued"),
    ],
)
def test_expanded_terms_find_parts_of_names(query: str, text: str) -> None:
    assert {term for term in expanded_terms(query) if term.startswith("~")} <= set(expanded_terms(text))


def test_a_history_that_is_broken_is_refused_with_its_code() -> None:
    stored = Stored(OnInvalidStructure.ABORT)
    stored.add({"role": "toolResult", "toolCallId": "a", "toolName": "read", "content": "x"})

    with pytest.raises(RecoveryRefused, match="onInvalidStructure") as refused:
        stored.call("browse_history", direction="forward")
    assert refused.value.reason == "ORPHAN_TOOL_RESULT"


def test_text_that_is_no_list_of_blocks_can_be_read() -> None:
    stored = Stored()
    turn = stored.add({"role": "assistant", "content": "plain " * 2_000})

    text = stored.tools.call(stored.history, "load_history", {"historyIds": [turn]}).text
    (call,) = reachable(stored, text)
    assert json.loads(stored.output(2_000, **json.loads(call))) == "plain " * 2_000


def test_a_result_without_an_id_can_be_read() -> None:
    stored = Stored()
    turn = stored.add({"role": "assistant", "content": [call_block("")]})
    result = stored.add({"role": "toolResult", "toolName": "read", "content": "z" * 9_000})

    text = stored.tools.call(stored.history, "load_history", {"historyIds": [turn]}).text
    (call,) = reachable(stored, text)
    assert json.loads(stored.output(2_000, **json.loads(call))) == stored.entries[result]["message"]


@pytest.mark.parametrize("odd", [["read"], {"name": "read"}, 7, None])
def test_a_result_with_an_odd_tool_name_can_be_read(odd: Any) -> None:
    stored = Stored()
    turn = stored.add({"role": "assistant", "content": [call_block("c")]})
    result = stored.add({"role": "toolResult", "toolCallId": "c", "toolName": odd, "content": "z"})

    output = stored.output(2_000, historyId=turn, source="toolResult", toolCallId="c")
    assert json.loads(output) == stored.entries[result]["message"]


def test_a_stray_answer_of_a_recovery_tool_is_not_shown() -> None:
    stored = Stored()
    stored.add({"role": "user", "content": "go"})
    stray = stored.add(
        {"role": "toolResult", "toolCallId": "x", "toolName": "load_history", "content": "secret"}
    )

    assert not stored.call("search_history", query="secret")["references"]
    with pytest.raises(RecoveryRefused) as refused:
        stored.call("read_context_output", historyId=stray, source="toolResult", toolCallId="x")
    assert refused.value.reason is RecoveryErrorCode.RECOVERY_OUTPUT


def test_what_is_nested_too_deeply_hides_nothing_else() -> None:
    stored = Stored()
    deep: Any = 1.5
    for _ in range(600):
        deep = [deep]
    stored.add({"role": "user", "content": "needle"})
    turn = answered(stored, call_block("c", arguments={"given": deep}))

    def limited() -> Any:
        # The host's own calls take part of the stack.
        return nested(200, lambda: stored.call("search_history", query="needle")["references"])

    assert [reference["historyId"] for reference in limited()] == ["e0"]
    with pytest.raises(RecoveryRefused) as refused:
        nested(
            500,
            lambda: stored.call("read_context_output", historyId=turn, source="assistant", contentIndex=0),
        )
    assert refused.value.reason is RecoveryErrorCode.UNREADABLE_OUTPUT


def nested(depth: int, work: Any) -> Any:
    """Do something deep in the stack."""
    return work() if depth == 0 else nested(depth - 1, work)


@pytest.mark.parametrize("number", [10**5_000, 2**53], ids=["endless", "unsafe"])
def test_a_number_beyond_all_outputs_is_refused(number: int) -> None:
    stored = Stored()
    stored.add({"role": "user", "content": "hello"})
    for which in ({"contentIndex": number}, {"contentIndex": 0, "offset": number}):
        with pytest.raises(RecoveryRefused):
            stored.call("read_context_output", historyId="e0", source="assistant", **which)
    with pytest.raises(RecoveryRefused):
        stored.tools.call(stored.history, ["unhashable"], {})
