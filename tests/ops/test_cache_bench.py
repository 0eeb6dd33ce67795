"""The bench of the prompt cache: its model of a provider, and what it counts as a fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    name, extra_input, extra_output = "fixed", 0, 0

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

    result = bench("metrics").play(
        contender, played, budget=25, resident=5, prices=bench("provider").Prices(least=0)
    )

    assert (result.calls, result.refused, result.above) == (3, 0, 0)
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


def test_context_paging_loses_nothing_in_a_made_up_conversation(bench: Any) -> None:
    conversations, contenders = bench("conversations"), bench("contenders")
    (played,) = [one for one in conversations.made_up() if one.name == "huge results"]

    result = bench("metrics").play(
        contenders.Paging(played, 32_000, 3_000),
        played,
        budget=32_000,
        resident=3_000,
        prices=bench("provider").Prices(),
    )

    assert (result.lost, result.dropped, result.broken, result.unread, result.refused) == (0, 0, 0, 0, 0)
    assert result.cached > result.tokens / 2
