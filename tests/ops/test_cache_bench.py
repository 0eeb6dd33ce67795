"""The bench of the prompt cache: its model of a provider, and what it counts as a fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from context_paging.domain.estimation import HeuristicEstimator
from context_paging.domain.recovery.tools import tool_definitions

BENCH = Path(__file__).parents[2] / "ops" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The modules of the bench, which is no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))
    import importlib

    yield lambda name: importlib.import_module(f"prompt_cache.{name}")
    for name in [name for name in sys.modules if name.startswith("prompt_cache")]:
        del sys.modules[name]


def _request(bench: Any, *names: str) -> list[Any]:
    return [bench("provider").Sent(name, 1_000, number) for number, name in enumerate(names)]


def test_the_longest_prefix_that_was_sent_within_its_life_is_cached(bench: Any) -> None:
    cache = bench("provider").PromptCache(bench("provider").Prices(life=300, least=0))

    assert cache.send(500, _request(bench, "a", "b"), 0) == 0
    assert cache.send(500, _request(bench, "a", "b", "c"), 200) == 2_500
    assert cache.send(500, _request(bench, "a", "x", "c"), 450) == 1_500
    # Reading renewed what was read, and nothing else.
    assert cache.send(500, _request(bench, "a", "b", "c"), 600) == 1_500
    assert cache.send(500, _request(bench, "a"), 1_000) == 0


def test_a_prefix_that_is_too_short_is_not_cached(bench: Any) -> None:
    cache = bench("provider").PromptCache(bench("provider").Prices(least=2_000))
    cache.send(500, _request(bench, "a"), 0)

    assert cache.send(500, _request(bench, "a", "b"), 1) == 0
    assert cache.send(500, _request(bench, "a", "b"), 2) == 2_500


def test_a_cost_is_in_input_tokens(bench: Any) -> None:
    prices = bench("provider").Prices(write=1.25, read=0.1, output=5, least=1_024)
    cache = bench("provider").PromptCache(prices)

    assert cache.cost(10_000, 8_000, 100) == 800 + 2_500 + 500
    assert cache.cost(1_000, 0, 0) == 1_000


def test_broken_pairs_are_calls_without_results_and_results_without_calls(bench: Any) -> None:
    def call(*ids: str) -> Any:
        return {"role": "assistant", "content": [{"type": "toolCall", "id": i, "name": "t"} for i in ids]}

    def result(call_id: str) -> Any:
        return {"role": "toolResult", "toolCallId": call_id}

    broken = bench("metrics").broken_pairs
    assert broken([call("a", "b"), result("b"), result("a")]) == 0
    assert broken([call("a", "b"), result("a")]) == 1
    assert broken([result("a")]) == 1
    assert broken([call("a"), {"role": "user", "content": "x"}, result("a")]) == 2


class _Fixed:
    name, resident, extra_input, extra_output = "fixed", 5, 0, 0

    def __init__(self, requests: dict[int, Any]) -> None:
        self.requests = requests

    def request(self, count: int) -> Any:
        return self.requests[count]

    def readable(self, index: int) -> bool:
        return index == 0


def test_faults_of_requests_are_counted(bench: Any) -> None:
    sent, conversations = bench("provider").Sent, bench("conversations")
    messages: list[Any] = [
        {"role": "user", "content": "u0"},
        {"role": "assistant", "content": [{"type": "toolCall", "id": "a", "name": "t", "arguments": {}}]},
        {"role": "toolResult", "toolCallId": "a", "content": []},
        {"role": "assistant", "content": []},
        {"role": "user", "content": "u4"},
        {"role": "assistant", "content": []},
    ]
    played = conversations.Conversation("c", messages, [10] * 6, [0.0] * 6)
    whole = [sent(("m", n), 10, n) for n in range(6)]
    cleared = sent("cleared", 1, 2, whole=False)
    contender = _Fixed({1: whole[:1], 3: [whole[1], cleared], 5: [whole[3], whole[4]]})

    limits = bench("contenders").Limits(budget=24, resident=5, window=25)
    result = bench("metrics").play(contender, played, limits, bench("provider").Prices(least=0))

    assert (result.calls, result.refused) == (3, 0)
    # The last request has 25 tokens, which is all the model takes.
    assert (result.above, result.beyond) == (1, 0)
    assert (result.unread, result.dropped, result.broken) == (1, 1, 0)
    # Message 0 can still be read, 1 and 2 cannot; of the last request nothing is missing behind that.
    assert result.lost == 2
    assert result.prefixes == 0


def test_made_up_conversations_are_valid_and_always_the_same(bench: Any) -> None:
    conversations, broken = bench("conversations"), bench("metrics").broken_pairs
    first, again = (list(conversations.made_up()) for _ in range(2))

    assert [one.messages for one in first] == [one.messages for one in again]
    for one in first:
        assert broken(one.messages) == 0
        assert one.calls
        assert one.times == sorted(one.times)


def _huge_results(bench: Any, window: int) -> Any:
    contenders = bench("contenders")
    (played,) = [one for one in bench("conversations").made_up() if one.name == "huge results"]
    limits = contenders.Limits(budget=32_000, resident=3_000, window=window)
    return bench("metrics").play(
        contenders.Paging(played, limits), played, limits, bench("provider").Prices()
    )


def test_context_paging_loses_nothing_and_shows_huge_results_once(bench: Any) -> None:
    result = _huge_results(bench, 200_000)

    assert (result.lost, result.dropped, result.broken, result.unread, result.refused) == (0, 0, 0, 0, 0)
    assert 0 < result.above <= 6
    assert result.cached > result.tokens / 2


def test_results_that_do_not_fit_the_model_count_as_unread(bench: Any) -> None:
    result = _huge_results(bench, 40_000)

    assert result.unread > 0
    assert (result.lost, result.beyond) == (0, 0)


def test_context_paging_pays_for_its_tools(bench: Any) -> None:
    contenders, provider = bench("contenders"), bench("provider")
    said = [{"role": "user", "content": "hello", "timestamp": 1}]
    played = bench("conversations").conversation("c", said, [0.0])
    limits = contenders.Limits(budget=32_000, resident=3_000, window=200_000)
    paging = contenders.Paging(played, limits)

    assert paging.request(1) == [provider.Sent(("m", 0), 2, 0)]
    tools = HeuristicEstimator().resident_tokens("", tool_definitions())
    assert contenders.Everything(played, limits).resident == 3_000
    # Counted together, the two parts are rounded up once.
    assert paging.resident in (3_000 + tools - 1, 3_000 + tools)
    outcome = paging._session.context(
        system_prompt=paging._prompt, tools=paging._tools, context_window=200_000
    ).outcome
    assert outcome is not None
    assert outcome.estimated_tokens == paging.resident + 2


def _compacting(bench: Any, *tokens: tuple[str, int]) -> Any:
    """A compaction that keeps 5,000 tokens, of messages with a role's initial and so many tokens."""
    contenders = bench("contenders")
    roles = {"u": "user", "a": "assistant", "r": "toolResult"}
    messages = [{"role": roles[role], "content": []} for role, _ in tokens]
    sizes = [size for _, size in tokens]
    played = bench("conversations").Conversation("c", messages, sizes, [0.0] * len(sizes))
    return contenders.Compaction(played, contenders.Limits(budget=32_000, resident=3_000, window=200_000))


def _sent_places(request: Any) -> list[int | None]:
    return [sent.index for sent in request]


def test_compaction_cuts_behind_a_result_that_is_more_than_it_keeps(bench: Any) -> None:
    way = _compacting(bench, ("u", 100), ("a", 100), ("r", 30_000), ("a", 100), ("r", 400))

    assert _sent_places(way.request(5)) == [None, 3, 4]
    assert way.extra_output == way.summary_tokens


def test_compaction_keeps_the_call_of_trailing_results(bench: Any) -> None:
    way = _compacting(bench, ("u", 100), ("a", 100), ("r", 15_000), ("r", 15_000))

    assert _sent_places(way.request(4)) == [None, 1, 2, 3]


def test_compaction_leaves_alone_what_is_below_its_threshold_or_cannot_be_cut(bench: Any) -> None:
    below = _compacting(bench, ("u", 100), ("a", 24_000))
    whole = _compacting(bench, ("a", 100), ("r", 30_000))

    assert _sent_places(below.request(2)) == [0, 1]
    assert _sent_places(whole.request(2)) == [0, 1]
    assert whole.extra_input == whole.extra_output == 0


def test_a_summary_reads_the_beginning_of_results_and_no_thinking(bench: Any) -> None:
    def tokens(role: str, *blocks: dict[str, Any]) -> int:
        count: int = bench("contenders").summarised_tokens({"role": role, "content": list(blocks)})
        return count

    said, thought = {"type": "text", "text": "x" * 400}, {"type": "thinking", "thinking": "x" * 400}
    long, picture = {"type": "text", "text": "x" * 40_000}, {"type": "image", "data": ""}
    assert tokens("assistant", said, thought) == 100
    assert tokens("user", long, picture) == 10_000
    assert tokens("toolResult", said, picture) == 100
    assert tokens("toolResult", long) == 500


def _entry(number: int, stamp: str, **rest: Any) -> dict[str, Any]:
    parent = str(number - 1) if number > 1 else None
    return {"type": "message", "id": str(number), "parentId": parent, "timestamp": stamp, **rest}


def test_a_recorded_session_is_played_whole_with_its_pauses(bench: Any, tmp_path: Path) -> None:
    said = [{"type": "text", "text": "said"}]
    asked = {"role": "user", "content": "one", "timestamp": 1}
    answer = {"role": "assistant", "content": said, "stopReason": "stop", "timestamp": 2}
    compaction = {"type": "compaction", "summary": "s", "firstKeptEntryId": "2", "tokensBefore": 9}
    entries = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"},
        _entry(1, "2026-01-01T00:00:00Z", message=asked),
        _entry(2, "2026-01-01T00:00:07Z", message=answer),
        _entry(3, "2026-01-01T00:00:08Z", **compaction),
        _entry(4, "2026-01-03T12:00:00Z", message={**asked, "timestamp": 3}),
        _entry(5, "2026-01-03T11:00:00Z", message={**answer, "timestamp": 4}),
    ]
    file = tmp_path / "recorded.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    conversations = bench("conversations")

    played = conversations.recorded(file)

    assert [message["timestamp"] for message in played.messages] == [1, 2, 3, 4]
    day = conversations.LONGEST_PAUSE
    assert played.times == [0, 7, 7 + day, 7 + day + conversations.DEFAULT_PAUSE]
